/** The INFO ioctl on a card whose state has a distinct value in every field. */

import { afterEach, describe, expect, it } from 'vitest';
import { EmulatedCard } from '../../../../test/contract/driver/emulated-card.ts';
import { expectNoLeaks } from '../../../../test/fixtures/leak-check.ts';
import { Errno } from '../../../sys/index.ts';
import {
  HL_INFO_CLK_RATE,
  HL_INFO_CS_COUNTERS,
  HL_INFO_CS_TIMEOUT_EVENT,
  HL_INFO_DEVICE_STATUS,
  HL_INFO_DEVICE_UTILIZATION,
  HL_INFO_DRAM_USAGE,
  HL_INFO_ENGINE_ERR_EVENT,
  HL_INFO_FW_ERR_EVENT,
  HL_INFO_HW_ERR_EVENT,
  HL_INFO_HW_IDLE,
  HL_INFO_HW_IP_INFO,
  HL_INFO_LAST_ERR_OPEN_DEV_TIME,
  HL_INFO_OP,
  HL_INFO_PCI_COUNTERS,
  HL_INFO_RAZWI_EVENT,
  HL_INFO_RESET_COUNT,
  HL_INFO_SYNC_MANAGER,
  HL_INFO_TIME_SYNC,
  HL_INFO_UNDEFINED_OPCODE_EVENT,
  HL_MAX_DCORES,
  HL_OPEN_STATS_INFO,
  HL_PAGE_FAULT_INFO,
  HL_PLL_FREQUENCY_INFO,
  HL_POWER_INFO,
  HL_USER_MAPPING,
} from '../../../uapi/index.ts';
import type { CardState } from '../card-state.ts';
import { PrimaryFile } from './file.ts';

expectNoLeaks();

const { EINVAL, EFAULT, EBUSY, EOPNOTSUPP, ENOMEM } = Errno;

let card: EmulatedCard;
afterEach(() => card.close());

function open(options: ConstructorParameters<typeof EmulatedCard>[0] = {}) {
  card = new EmulatedCard(options);
  const { file } = card.client;
  if (!(file instanceof PrimaryFile)) throw new Error('no primary file');
  return { context: file.context, state: file.context.card, client: card.client };
}

/** Replaces a property of the state of a card. */
const set = (state: CardState, name: string, value: unknown): void =>
  void Object.defineProperty(state, name, { value, configurable: true, writable: true });

describe('an answer', () => {
  it('is refused for a firmware request that is unknown or has more than 1 MiB', () => {
    const { client } = open();
    const request = (fw_sub_opcode: number, return_size: number) =>
      client.infoRaw({ op: HL_INFO_OP.FW_GENERIC_REQ, fw_sub_opcode, return_size });
    expect([request(0, 2 ** 20), request(0, 2 ** 20 + 1), request(1, 0)]).toEqual([-EOPNOTSUPP, -EINVAL, -EINVAL]);
  });

  it('has no more bytes than its buffer, and needs one that can be written', () => {
    const { client } = open();
    const { answer } = client;
    answer.u8.fill(0xee);
    expect(client.infoRaw({ op: HL_INFO_OP.HW_IP_INFO, return_size: 4 })).toBe(0);
    expect([answer.u8[3] === 0xee, answer.u8[4]]).toEqual([false, 0xee]);
    expect(client.infoRaw({ op: HL_INFO_OP.HW_IP_INFO, return_size: 0 })).toBe(-EINVAL);
    expect(client.infoRaw({ op: HL_INFO_OP.HW_IP_INFO, return_size: 8, return_pointer: 0n })).toBe(-EINVAL);
    expect(client.infoRaw({ op: HL_INFO_OP.HW_IP_INFO, return_size: 8, return_pointer: 8n })).toBe(-EFAULT);
    expect(client.infoRaw({ op: HL_INFO_OP.HW_IP_INFO, return_size: 8, pad: 1 })).toBe(-EINVAL);
    expect(client.infoRaw({ op: 9999, return_size: 8 })).toBe(-EINVAL);
  });

  it('about the state is given in a reset, others are EBUSY', () => {
    const { client } = open();
    card.node.inject(0, { kind: 'hard-reset' });
    expect(client.info(HL_INFO_OP.DEVICE_STATUS, HL_INFO_DEVICE_STATUS).out.status).not.toBe(0);
    expect(client.info(HL_INFO_OP.RESET_COUNT, HL_INFO_RESET_COUNT).out).toEqual({
      hard_reset_cnt: 1,
      soft_reset_cnt: 0,
    });
    expect(client.info(HL_INFO_OP.CLK_RATE, HL_INFO_CLK_RATE).result).toBe(-EBUSY);
    expect(client.infoRaw({ op: 9999, return_size: 8 })).toBe(-EBUSY);
  });

  it('about firmware that has none is refused', () => {
    const { client } = open();
    expect(client.infoRaw({ op: HL_INFO_OP.FW_GENERIC_REQ, fw_sub_opcode: 0 })).toBe(-EOPNOTSUPP);
    expect(client.infoRaw({ op: HL_INFO_OP.FW_GENERIC_REQ, fw_sub_opcode: 1 })).toBe(-EINVAL);
  });
});

describe('the card', () => {
  it('has its module, its reserved memory, its clock and its managers', () => {
    const { client, state } = open();
    set(state, 'place', { ...state.place, moduleId: 6, minor: 2 });
    const hw = client.info(HL_INFO_OP.HW_IP_INFO, HL_INFO_HW_IP_INFO).out;
    const { dram } = state.profile;
    expect([hw.module_id, hw.reserved_dram_size, hw.dram_page_size]).toEqual([6, dram.reservedSize, dram.pageSize]);
    set(state, 'limits', { clockMhz: 1234, maxClockMhz: 2345 });
    expect(client.info(HL_INFO_OP.CLK_RATE, HL_INFO_CLK_RATE).out).toEqual({
      cur_clk_rate_mhz: 1234,
      max_clk_rate_mhz: 2345,
    });
    const dcore = (dcore_id: number) => client.info(HL_INFO_OP.SYNC_MANAGER, HL_INFO_SYNC_MANAGER, { dcore_id }).result;
    expect([dcore(HL_MAX_DCORES - 1), dcore(HL_MAX_DCORES)]).toEqual([0, -EINVAL]);
    const pll = (pll_index: number) =>
      client.info(HL_INFO_OP.PLL_FREQUENCY, HL_PLL_FREQUENCY_INFO, { pll_index }).result;
    expect([pll(11), pll(12)]).toEqual([0, -EINVAL]);
  });

  it('has memory in use of all contexts, and of this one', () => {
    const { client, context, state } = open();
    client.allocate(64);
    const own = context.deviceMemory.usedBytes;
    state.dramUsedBytes += 1000;
    const user = state.device.hbm.byteLength - Number(state.profile.dram.reservedSize);
    expect(client.info(HL_INFO_OP.DRAM_USAGE, HL_INFO_DRAM_USAGE).out).toEqual({
      dram_free_mem: BigInt(user - own - 1000),
      ctx_dram_mem: BigInt(own),
    });
    state.dramUsedBytes -= 1000;
  });

  it('has rejections by reason, of all contexts and of this one', () => {
    const { client, context, state } = open();
    const own = { outOfMemory: 1, parsing: 2, queueFull: 3, inReset: 4, maxCsInFlight: 5, validation: 6 };
    Object.assign(context.counters, own);
    set(state, 'dropTotals', {
      outOfMemory: 11,
      parsing: 12,
      queueFull: 13,
      inReset: 14,
      maxCsInFlight: 15,
      validation: 16,
    });
    expect(client.info(HL_INFO_OP.CS_COUNTERS, HL_INFO_CS_COUNTERS).out).toEqual({
      total_out_of_mem_drop_cnt: 11n,
      ctx_out_of_mem_drop_cnt: 1n,
      total_parsing_drop_cnt: 12n,
      ctx_parsing_drop_cnt: 2n,
      total_queue_full_drop_cnt: 13n,
      ctx_queue_full_drop_cnt: 3n,
      total_device_in_reset_drop_cnt: 14n,
      ctx_device_in_reset_drop_cnt: 4n,
      total_max_cs_in_flight_drop_cnt: 15n,
      ctx_max_cs_in_flight_drop_cnt: 5n,
      total_validation_drop_cnt: 16n,
      ctx_validation_drop_cnt: 6n,
    });
  });

  it('has opens, times, throughput and power in their units', () => {
    const { client, state } = open();
    Object.assign(state.openRecord, { opens: 7, openedAtNs: 123_456_789, lastPeriodNs: 8_900_000 });
    expect(client.info(HL_INFO_OP.OPEN_STATS, HL_OPEN_STATS_INFO).out).toMatchObject({
      open_counter: 7n,
      last_open_period_ms: 8n,
      is_compute_ctx_active: 1,
      compute_ctx_in_release: 0,
    });
    expect(client.info(HL_INFO_OP.LAST_ERR_OPEN_DEV_TIME, HL_INFO_LAST_ERR_OPEN_DEV_TIME).out.timestamp).toBe(
      123_456_789n,
    );
    const { throughputAt } = state.device.traffic;
    state.device.traffic.throughputAt = () => ({ receive: 3_000_400, transmit: 5_000_600 });
    expect(client.info(HL_INFO_OP.PCI_COUNTERS, HL_INFO_PCI_COUNTERS).out).toMatchObject({
      rx_throughput: 3000n,
      tx_throughput: 5001n,
    });
    state.device.traffic.throughputAt = throughputAt;
    state.readSensor = (name) => (name === 'power1_input' ? 118_000_000 : 1);
    expect(client.info(HL_INFO_OP.POWER, HL_POWER_INFO).out.power).toBe(118_000n);
    card.clock.advance(7);
    expect(client.info(HL_INFO_OP.TIME_SYNC, HL_INFO_TIME_SYNC).out.device_time).toBe(1_000_000_007n);
  });

  it('is busy with the engines whose queues wait', () => {
    const { client } = open();
    const idle = () => client.info(HL_INFO_OP.HW_IDLE, HL_INFO_HW_IDLE).out;
    const use = () => client.info(HL_INFO_OP.DEVICE_UTILIZATION, HL_INFO_DEVICE_UTILIZATION).out.utilization;
    expect([idle().is_idle, idle().busy_engines_mask_ext.every((word) => word === 0n), use()]).toEqual([1, true, 0]);
    // PDMA 0 of gaudi2 has the engine id 126: bit 62 of the second word.
    card.block(0);
    const { is_idle, busy_engines_mask_ext } = idle();
    const bits = busy_engines_mask_ext.flatMap((word, index) => {
      return Array.from({ length: 64 }, (_, bit) => bit)
        .filter((bit) => ((word >> BigInt(bit)) & 1n) === 1n)
        .map((bit) => index * 64 + bit);
    });
    expect([is_idle, bits.length, use()]).toEqual([0, 1, 100]);
    expect(bits[0]! % 64).toBeGreaterThanOrEqual(32);
  });

  it('counts events since the last reset, and all of them', () => {
    const { client, state } = open();
    state.eventCounts.set(3, 5);
    state.eventTotals.set(3, 9);
    const at = (op: number) => {
      expect(client.infoRaw({ op, return_size: 16_384 })).toBe(0);
      return client.answer.words[3];
    };
    expect([at(HL_INFO_OP.HW_EVENTS), at(HL_INFO_OP.HW_EVENTS_AGGREGATE)]).toEqual([5, 9]);
  });

  it('tells of its engines in a buffer of 1 KiB at least, with the length of the text', () => {
    const { client } = open();
    card.block(0);
    const ask = (return_size: number) => client.infoRaw({ op: HL_INFO_OP.ENGINE_STATUS, return_size });
    expect([ask(1023), ask(2 ** 20 + 1), ask(1024)]).toEqual([-EINVAL, -EINVAL, 0]);
    const length = client.block.words[4]!;
    const text = new TextDecoder().decode(client.answer.u8.subarray(0, length));
    expect(text).toMatch(/N {8}\d\n$/);
  });
});

describe('faults', () => {
  it.each(['gaudi', 'gaudi2', 'gaudi3'] as const)('of %s leave the buffer as it is until one is recorded', (asic) => {
    const { client } = open({ asic });
    const { RAZWI_EVENT, PAGE_FAULT_EVENT, USER_MAPPINGS, HW_ERR_EVENT, FW_ERR_EVENT, USER_ENGINE_ERR_EVENT } =
      HL_INFO_OP;
    for (const op of [
      RAZWI_EVENT,
      PAGE_FAULT_EVENT,
      USER_MAPPINGS,
      HW_ERR_EVENT,
      FW_ERR_EVENT,
      USER_ENGINE_ERR_EVENT,
    ]) {
      client.answer.u8.fill(0xee);
      expect([op, client.infoRaw({ op, return_size: 280 }), client.answer.u8[0]]).toEqual([op, 0, 0xee]);
      // The latter copy a result as a whole, or none.
      const isWhole = op !== RAZWI_EVENT && op !== PAGE_FAULT_EVENT;
      expect(client.infoRaw({ op, return_size: 0 })).toBe(isWhole ? 0 : -EINVAL);
      expect(client.infoRaw({ op, return_size: 280, return_pointer: 0n })).toBe(-EINVAL);
    }
  });

  it.each(['gaudi2', 'gaudi3'] as const)('of %s are copied as a whole if they are errors', (asic) => {
    const { client, state } = open({ asic });
    set(state, 'records', {
      lastPageFault: { timestampNs: 1, address: 2n, engineId: 3, mappings: [{ address: 4n, byteLength: 5 }] },
      lastHardwareError: { timestampNs: 6, event: 7 },
      lastFirmwareError: { timestampNs: 8, type: 1 },
      lastEngineError: { timestampNs: 9, engineId: 10 },
    });
    for (const [op, { size }] of [
      [HL_INFO_OP.USER_MAPPINGS, HL_USER_MAPPING],
      [HL_INFO_OP.HW_ERR_EVENT, HL_INFO_HW_ERR_EVENT],
      [HL_INFO_OP.FW_ERR_EVENT, HL_INFO_FW_ERR_EVENT],
      [HL_INFO_OP.USER_ENGINE_ERR_EVENT, HL_INFO_ENGINE_ERR_EVENT],
    ] as const) {
      const results = [0, size - 1, size].map((return_size) => client.infoRaw({ op, return_size }));
      expect([op, ...results]).toEqual([op, -ENOMEM, -ENOMEM, 0]);
    }
  });

  it('have their engine, their stream, their address and their time', () => {
    const { client, state } = open();
    set(state, 'records', {
      lastCsTimeout: { timestampNs: 11, seq: 12 },
      lastRazwi: { timestampNs: 13, address: 14n, engineId: 15, flags: 3 },
      lastUndefinedOpcode: { timestampNs: 16, engineId: 17, streamId: 4, opcode: 0x1e },
      lastPageFault: {
        timestampNs: 18,
        address: 19n,
        engineId: 20,
        mappings: [
          { address: 21n, byteLength: 22 },
          { address: 23n, byteLength: 24 },
        ],
      },
      lastEngineError: { timestampNs: 25, engineId: 26 },
    });
    const { info } = client;
    const of = info.bind(client);
    expect(of(HL_INFO_OP.CS_TIMEOUT_EVENT, HL_INFO_CS_TIMEOUT_EVENT).out).toEqual({ timestamp: 11n, seq: 12n });
    expect(of(HL_INFO_OP.RAZWI_EVENT, HL_INFO_RAZWI_EVENT).out).toMatchObject({
      timestamp: 13n,
      addr: 14n,
      num_of_possible_engines: 1,
      flags: 3,
    });
    expect(of(HL_INFO_OP.UNDEFINED_OPCODE_EVENT, HL_INFO_UNDEFINED_OPCODE_EVENT).out).toMatchObject({
      timestamp: 16n,
      engine_id: 17,
      stream_id: 4,
    });
    expect(of(HL_INFO_OP.PAGE_FAULT_EVENT, HL_PAGE_FAULT_INFO).out).toMatchObject({ timestamp: 18n, addr: 19n });
    expect(of(HL_INFO_OP.USER_ENGINE_ERR_EVENT, HL_INFO_ENGINE_ERR_EVENT).out).toMatchObject({
      timestamp: 25n,
      engine_id: 26,
      error_count: 1,
    });
    const mappings = (return_size: number) => client.infoRaw({ op: HL_INFO_OP.USER_MAPPINGS, return_size });
    expect([mappings(HL_USER_MAPPING.size), client.block.words[4]]).toEqual([-ENOMEM, 2]);
    expect(mappings(2 * HL_USER_MAPPING.size)).toBe(0);
    const second = HL_USER_MAPPING.decode(client.answer.view, HL_USER_MAPPING.size);
    expect(second).toEqual({ dev_va: 23n, size: 24n });
    expect(client.infoRaw({ op: HL_INFO_OP.GET_EVENTS, return_size: 7 })).toBe(-EINVAL);
  });
});
