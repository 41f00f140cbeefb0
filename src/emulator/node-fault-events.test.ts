/** The events of which the driver notifies after faults of engines, and what it records with them. */

import { afterEach, describe, expect, it } from 'vitest';
import { halves } from '../../test/contract/driver/driver-fixture.ts';
import { EmulatedCard } from '../../test/contract/driver/emulated-card.ts';
import {
  HL_INFO_ARGS,
  HL_INFO_ENGINE_ERR_EVENT,
  HL_INFO_FW_ERR_EVENT,
  HL_INFO_HW_ERR_EVENT,
  HL_INFO_OP,
  HL_INFO_RAZWI_EVENT,
  HL_INFO_UNDEFINED_OPCODE_EVENT,
  HL_NOTIFIER_EVENT,
  HL_RAZWI,
  linDmaCtl,
  PacketOpcode,
  packetCtl,
  writeCpDma,
  writeLinDma,
  writeShortPacket,
} from '../uapi/index.ts';

const MIB = 2 ** 20;
const NO_ENGINE = 0xffff;
const EVENT = HL_NOTIFIER_EVENT;
/** An address that nothing maps. */
const NOWHERE = 0x20_0000_1000n;

describe.each(['gaudi', 'gaudi2'] as const)('the events of faults of %s', (asic) => {
  let card: EmulatedCard;
  afterEach(() => card.close());
  /** An error of a queue or of an address is notified as one that needs a reset on gaudi (gaudi_handle_eqe, Linux 6.12). */
  const engineError = EVENT.USER_ENGINE_ERR | (asic === 'gaudi' ? EVENT.DEVICE_RESET : 0);
  const fabric = asic === 'gaudi' ? 0 : HL_RAZWI.HBW;

  function events(): number {
    expect(card.client.infoRaw({ op: HL_INFO_OP.GET_EVENTS, return_size: 8 })).toBe(0);
    return card.client.answer.words[0]!;
  }

  const copy = (from: bigint, to: bigint): bigint =>
    card.run((words) => writeLinDma(words, 0, linDmaCtl(asic), 64, ...halves(from), ...halves(to)));
  const engineRecord = () => card.client.info(HL_INFO_OP.USER_ENGINE_ERR_EVENT, HL_INFO_ENGINE_ERR_EVENT).out;
  const razwi = () => card.client.info(HL_INFO_OP.RAZWI_EVENT, HL_INFO_RAZWI_EVENT).out;

  it('name the direction of an access without translation', () => {
    card = new EmulatedCard({ asic });
    card.client.answer.u8.fill(0);
    expect(engineRecord().timestamp).toBe(0n);
    const sram = card.node.config.profile.sram.start;
    copy(NOWHERE, sram);
    expect(events()).toBe(EVENT.PAGE_FAULT | EVENT.RAZWI | EVENT.USER_ENGINE_ERR);
    expect(razwi()).toMatchObject({ addr: NOWHERE, flags: HL_RAZWI.READ | fabric });
    // Only the driver of gaudi2 records errors of engines; an access of the MMU is not one of an engine.
    card.client.answer.u8.fill(0);
    expect(engineRecord()).toMatchObject(
      asic === 'gaudi' ? { timestamp: 0n } : { engine_id: NO_ENGINE, error_count: 1 },
    );
    card.client.close();
    card.reopen();
    copy(sram, NOWHERE);
    expect(razwi()).toMatchObject({ addr: NOWHERE, flags: HL_RAZWI.WRITE | fabric });
  });

  if (asic === 'gaudi2') {
    it('keep the mappings of the memory management unit of the address', () => {
      card = new EmulatedCard({ asic });
      const { client, hostVa } = card;
      const block = client.allocate(MIB).out;
      const device = client.mapDevice(block).out;
      const mapped = (): bigint[] => {
        expect(client.infoRaw({ op: HL_INFO_OP.USER_MAPPINGS, return_size: 64 })).toBe(0);
        const count = client.block.words[HL_INFO_ARGS.words.array_size]!;
        return Array.from({ length: count }, (_, i) => client.answer.view.getBigUint64(16 * i, true));
      };
      copy(hostVa, device + 2n ** 40n);
      expect(mapped()).toEqual([device]);
      client.close();
      card.reopen();
      card.client.mapDevice(card.client.allocate(MIB).out);
      copy(card.hostVa, NOWHERE);
      expect(card.client.infoRaw({ op: HL_INFO_OP.USER_MAPPINGS, return_size: 64 })).toBe(0);
      expect(card.client.answer.view.getBigUint64(0, true)).toBe(card.hostVa);
      expect(card.client.block.words[HL_INFO_ARGS.words.array_size]).toBe(1);
    });
  }

  it.each([HL_RAZWI.READ, HL_RAZWI.WRITE])('name a transfer of registers by its direction (%i)', (direction) => {
    card = new EmulatedCard({ asic });
    const { cfg } = card.node.config.profile;
    if (direction === HL_RAZWI.READ) copy(cfg.start, card.hostVa);
    else copy(card.hostVa, cfg.start);
    expect(events()).toBe(EVENT.RAZWI | engineError);
    expect(razwi()).toMatchObject({ addr: cfg.start, flags: direction | fabric });
  });

  it('name an undefined opcode, of the lower command processor as that of a fifth stream', () => {
    card = new EmulatedCard({ asic });
    // External queues of gaudi refuse the packets: there the queue is that of a TPC.
    const [queue, engine] = asic === 'gaudi' ? [41, 12] : [0, 45];
    const run = (write: (words: Uint32Array) => number): void => {
      const byteLength = 4 * write(card.words(0));
      const chunk = { queue, cb: card.hostVa, byteLength };
      if (asic === 'gaudi') card.run((words) => writeShortPacket(words, 0, packetCtl(PacketOpcode.NOP), 0), [chunk]);
      else card.client.submit([chunk]);
    };
    const record = () => card.client.info(HL_INFO_OP.UNDEFINED_OPCODE_EVENT, HL_INFO_UNDEFINED_OPCODE_EVENT).out;
    run((words) => writeShortPacket(words, 0, packetCtl(0x1e), 0));
    expect(events()).toBe(EVENT.UNDEFINED_OPCODE | engineError);
    expect(record()).toMatchObject({ engine_id: engine, stream_id: 0 });
    card.client.answer.u8.fill(0);
    expect(engineRecord()).toMatchObject(asic === 'gaudi' ? { timestamp: 0n } : { engine_id: engine, error_count: 1 });
    card.client.close();
    card.reopen();
    writeShortPacket(card.words(MIB), 0, packetCtl(0x1e), 0);
    run((words) => writeCpDma(words, 0, packetCtl(PacketOpcode.CP_DMA), 8, ...halves(card.hostVa + BigInt(MIB))));
    expect(record()).toMatchObject({ engine_id: engine, stream_id: 4 });
  });

  it('name a firmware that does not answer, and the reset', () => {
    card = new EmulatedCard({ asic });
    expect(card.node.debugFs(0).write('device', 'cpu_timeout')).toBe(11);
    card.clock.advance(5e9);
    expect(events()).toBe(EVENT.DEVICE_UNAVAILABLE | EVENT.CRITICL_FW_ERR | EVENT.DEVICE_RESET);
    const { out } = card.client.info(HL_INFO_OP.FW_ERR_EVENT, HL_INFO_FW_ERR_EVENT);
    expect(out).toMatchObject({ err_type: 0, event_id: 0 });
    expect(out.timestamp).toBeGreaterThan(0n);
  });

  if (asic === 'gaudi') {
    it('name an ECC error, and record one that resets the card', () => {
      card = new EmulatedCard({ asic });
      const debugFs = card.node.debugFs(0);
      const raise = (event: number): void => {
        debugFs.write('addr', `0x${(card.node.config.profile.cfg.start + 0x80_0040n).toString(16)}`);
        debugFs.write('data32', `0x${event.toString(16)}`);
      };
      raise(38);
      expect(events()).toBe(EVENT.GENERAL_HW_ERR);
      raise(47);
      expect(events()).toBe(EVENT.GENERAL_HW_ERR | EVENT.CRITICL_HW_ERR | EVENT.DEVICE_RESET);
      expect(card.client.info(HL_INFO_OP.HW_ERR_EVENT, HL_INFO_HW_ERR_EVENT).out.event_id).toBe(47);
    });
  }
});
