/** The ioctls of gaudi3, whose only driver is the vendor's: what differs from the other generations. Source: gaudi3.c and habanalabs_ioctl.c of that driver. */

import { afterEach, describe, expect, it } from 'vitest';
import { EmulatedCard } from '../../../../test/contract/driver/emulated-card.ts';
import { expectNoLeaks } from '../../../../test/fixtures/leak-check.ts';
import { close, Errno } from '../../../sys/index.ts';
import {
  HL_CB_FLAGS,
  HL_CS_FLAGS,
  HL_DEBUG_OP,
  HL_ENGINE_COMMAND,
  HL_INFO_DEV_MEMALLOC_PAGE_SIZES,
  HL_INFO_DRAM_USAGE,
  HL_INFO_HW_IP_INFO,
  HL_INFO_OP,
  HL_INFO_SYNC_MANAGER,
  HL_MEM,
  HL_MEM_OP,
  HL_PLL_FREQUENCY_INFO,
  HL_SERVER_TYPE,
  HL_WAIT_CS_ARGS,
  HL_WAIT_CS_FLAGS,
  HL_WAIT_CS_STATUS,
  WAIT_CS_INTERRUPT_SHIFT,
} from '../../../uapi/index.ts';
import { PrimaryFile } from './file.ts';

expectNoLeaks();

const { EINVAL, EFAULT, EPERM, ENOMEM, EOPNOTSUPP } = Errno;
const GIB = 2n ** 30n;
const PAGE = 0x200_0000n;

let card: EmulatedCard;
afterEach(() => card.close());

function open() {
  card = new EmulatedCard({ asic: 'gaudi3' });
  const { file } = card.client;
  if (!(file instanceof PrimaryFile)) throw new Error('no primary file');
  return { client: card.client, context: file.context, profile: card.node.config.profile };
}

describe('INFO', () => {
  it('describes the card', () => {
    const { client } = open();
    const { out } = client.info(HL_INFO_OP.HW_IP_INFO, HL_INFO_HW_IP_INFO);
    expect(out).toMatchObject({
      device_id: 0x1060,
      sram_size: 0,
      dram_base_address: 0x0201002000000000n,
      dram_size: 0x1ff4000000n,
      dram_enabled: 1,
      dram_page_size: PAGE,
      device_mem_alloc_default_page_size: PAGE,
      reserved_dram_size: 0xc000000n,
      tpc_enabled_mask_ext: 2n ** 64n - 1n,
      mme_enabled_mask: 0xff,
      edma_enabled_mask: 0xff,
      decoder_enabled_mask: 0x7f7f,
      rotator_enabled_mask: 0x77,
      sched_arc_enabled_mask: 0xffff,
      pdma_user_owned_ch_mask: 0x7fffffn,
      odp_supported: 1,
      first_available_interrupt_id: 71,
      number_of_user_interrupts: 256,
      tpc_interrupt_id: 0xffff,
      num_of_events: 0,
      server_type: HL_SERVER_TYPE.GAUDI3_HLS3_FULL_OAM_3PORTS_SCALE_OUT,
      nic_ports_mask: 0n,
      nic_ports_external_mask: 0n,
    });
    const pages = client.info(HL_INFO_OP.DEV_MEM_ALLOC_PAGE_SIZES, HL_INFO_DEV_MEMALLOC_PAGE_SIZES).out;
    expect(pages.page_order_bitmask).toBe(0x42000000n);
  });

  it('names the first objects of users in hdcore 0 only', () => {
    const { client } = open();
    const of = (dcore_id: number) => client.info(HL_INFO_OP.SYNC_MANAGER, HL_INFO_SYNC_MANAGER, { dcore_id }).out;
    expect(of(0)).toMatchObject({
      first_available_sync_object: 19,
      first_available_monitor: 19,
      first_available_cq: 19,
    });
    for (const dcore of [1, 7]) {
      expect(of(dcore)).toMatchObject({
        first_available_sync_object: 0,
        first_available_monitor: 0,
        first_available_cq: 0,
      });
    }
    const pll = (pll_index: number) =>
      client.info(HL_INFO_OP.PLL_FREQUENCY, HL_PLL_FREQUENCY_INFO, { pll_index }).result;
    expect([pll(13), pll(14)]).toEqual([0, -EINVAL]);
  });

  it('has no event statistics, and passes four requests with up to 1 MiB to the firmware', () => {
    const { client } = open();
    for (const op of [HL_INFO_OP.HW_EVENTS, HL_INFO_OP.HW_EVENTS_AGGREGATE]) {
      expect(client.infoRaw({ op, return_size: 64 })).toBe(-EOPNOTSUPP);
      expect(client.infoRaw({ op, return_size: 0 })).toBe(-EINVAL);
    }
    const request = (fw_sub_opcode: number, return_size = 0) =>
      client.infoRaw({ op: HL_INFO_OP.FW_GENERIC_REQ, fw_sub_opcode, return_size });
    expect([request(3), request(4), request(0, 2 ** 20), request(0, 2 ** 20 + 1)]).toEqual([
      -EOPNOTSUPP,
      -EINVAL,
      -EOPNOTSUPP,
      -EINVAL,
    ]);
  });
});

describe('CS', () => {
  it('rejects jobs, signals and staged submissions', () => {
    const { client } = open();
    const job = [{ queue: 0, cb: card.hostVa, byteLength: 8 }];
    expect(client.submit(job).result).toBe(-EINVAL);
    expect(client.submit([{ ...job[0]!, queue: 5 }]).result).toBe(-EINVAL);
    expect(client.submit([]).result).toBe(-EINVAL);
    for (const cs_flags of [HL_CS_FLAGS.SIGNAL, HL_CS_FLAGS.WAIT, HL_CS_FLAGS.COLLECTIVE_WAIT]) {
      expect(client.submit(job, { cs_flags }).result).toBe(-EINVAL);
    }
    expect(client.submit(job, { cs_flags: HL_CS_FLAGS.STAGED_SUBMISSION }).result).toBe(-EPERM);
    const two = HL_CS_FLAGS.SIGNAL | HL_CS_FLAGS.FLUSH_PCI_HBW_WRITES;
    expect(client.submit(job, { cs_flags: two }).result).toBe(-EINVAL);
  });

  it('flushes writes, and commands cores and engines by the ids of the generation', () => {
    const { client } = open();
    expect(client.cs({ cs_flags: HL_CS_FLAGS.FLUSH_PCI_HBW_WRITES }).result).toBe(0);
    const command = (cs_flags: number, engine_command: number, ids: readonly number[]) => {
      for (const [index, id] of ids.entries()) client.data.setUint32(index * 4, id, true);
      const values = { engines: BigInt(client.dataAddress), num_engines: ids.length, engine_command, cs_flags };
      return client.cs(values).result;
    };
    const { STALL, RESUME, CORE_HALT, CORE_RUN } = HL_ENGINE_COMMAND;
    const engines = (id: number) => command(HL_CS_FLAGS.ENGINES_COMMAND, STALL, [id]);
    // EDMA 16 to 23, MME 24 to 31, TPC 32 to 95; neither decoders, nor spare ids, nor PDMA channels.
    expect([16, 23, 31, 95].map(engines)).toEqual([0, 0, 0, 0]);
    expect([15, 96, 120, 185].map(engines)).toEqual([-EINVAL, -EINVAL, -EINVAL, -EINVAL]);
    expect(command(HL_CS_FLAGS.ENGINES_COMMAND, RESUME, [16])).toBe(0);
    const cores = (count: number, code: number) =>
      command(
        HL_CS_FLAGS.ENGINE_CORE_COMMAND,
        code,
        Array.from({ length: count }, (_, id) => id),
      );
    expect([cores(108, CORE_HALT), cores(108, CORE_RUN), cores(109, CORE_HALT)]).toEqual([0, 0, -EINVAL]);
  });
});

describe('WAIT_CS', () => {
  const flagsOf = (interrupt: number) => (HL_WAIT_CS_FLAGS.INTERRUPT | (interrupt << WAIT_CS_INTERRUPT_SHIFT)) >>> 0;

  it('waits for user interrupts and enabled decoders', () => {
    const { client } = open();
    const wait = (id: number) =>
      client.waitCs({ flags: flagsOf(id), addr: BigInt(card.host.address), target: 0n }).result;
    expect([0, 6, 8, 14, 71, 326, 0xfff, 0xffe].map(wait)).toEqual(new Array(8).fill(0));
    expect([7, 15, 16, 70, 327, 523].map(wait)).toEqual(new Array(6).fill(-EINVAL));
    expect(client.waitCs({ flags: flagsOf(71), addr: 8n }).result).toBe(-EFAULT);
    expect(client.waitCs({ flags: HL_WAIT_CS_FLAGS.MULTI_CS }).result).toBe(-EPERM);
  });

  it('ends when the doorbell gets the interrupt and the counter has its target', async () => {
    const { client, context, profile } = open();
    const { msixDoorbell } = profile.interrupts;
    const start = async (id: number, target: bigint) => {
      const block = { words: new Uint32Array(16), address: 0 };
      const view = new DataView(block.words.buffer);
      const addr = BigInt(card.host.address + 64);
      HL_WAIT_CS_ARGS.in.encode({ flags: flagsOf(id), addr, target, interrupt_timeout_us: 1000n }, view);
      const result = await client.file.ioctlAsync(client.file.numbers.WAIT_CS, block);
      return [result, HL_WAIT_CS_ARGS.out.decode(view).status];
    };
    const ring = (vector: number) =>
      context.device.writeWord(Number(msixDoorbell! >> 32n), Number(msixDoorbell! & 0xffff_ffffn), vector);
    const waits = [start(71, 1n), start(0xfff, 1n), start(2, 1n), start(0xffe, 1n), start(5, 1n)];
    await Promise.resolve();
    card.words(64)[0] = 1;
    ring(71);
    // Vector 5 is that of decoder 2.
    ring(5);
    const ended = [0, HL_WAIT_CS_STATUS.COMPLETED];
    expect(await Promise.all(waits.slice(0, 4))).toEqual([ended, ended, ended, ended]);
    card.words(64)[0] = 0;
    card.clock.advance(1_000_000);
    expect(await waits[4]).toEqual([0, HL_WAIT_CS_STATUS.BUSY]);
  });
});

describe('MEMORY', () => {
  const allocate = (bytes: bigint, alloc_page_size: bigint, flags = 0) => {
    const { result, out } = card.client.memory({ op: HL_MEM_OP.ALLOC, alloc_mem_size: bytes, alloc_page_size, flags });
    return { result, handle: out.handle };
  };

  it('allocates in the page sizes of the card', () => {
    const { client } = open();
    for (const size of [1n, PAGE - 1n, PAGE * 2n, GIB * 2n]) expect(allocate(4096n, size).result).toBe(-EINVAL);
    expect(allocate(0n, 0n).result).toBe(-EINVAL);
    const used = () => client.info(HL_INFO_OP.DRAM_USAGE, HL_INFO_DRAM_USAGE).out.ctx_dram_mem;
    expect([allocate(1n, 0n).result, used()]).toEqual([0, PAGE]);
    expect([allocate(PAGE + 1n, PAGE).result, used()]).toEqual([0, 3n * PAGE]);
    const large = allocate(1n, GIB, HL_MEM.CONTIGUOUS);
    expect([large.result, used()]).toEqual([0, 3n * PAGE + GIB]);
    expect(client.mapDevice(allocate(1n, 0n).handle).out % PAGE).toBe(0n);
    expect(client.mapDevice(large.handle).out % GIB).toBe(0n);
    expect(allocate(128n * GIB, 0n).result).toBe(-ENOMEM);
    expect(allocate(128n * GIB, GIB).result).toBe(-ENOMEM);
  });

  it('maps device memory in the range of HBM, and at a hint that is aligned to its pages', () => {
    const { client } = open();
    const { handle } = allocate(1n, GIB);
    const first = client.mapDevice(handle).out;
    expect(first >= 0x0201002000000000n && first < 0x0201e00000000000n).toBe(true);
    const reserved = 0x0201e00000000000n;
    expect(client.mapDevice(handle, reserved).out).toBe(reserved);
    expect(client.mapDevice(handle, reserved + GIB + PAGE, HL_MEM.FORCE_HINT).result).toBe(-ENOMEM);
    expect(client.mapDevice(handle, reserved + GIB, HL_MEM.FORCE_HINT).out).toBe(reserved + GIB);
    expect(client.free(handle)).toBe(-EINVAL);
  });

  it('maps host memory in two ranges, with on-demand paging and prefetching or without', () => {
    const { client } = open();
    const base = Math.ceil(card.host.address / 0x200000) * 0x200000;
    const small = client.mapHost(base + 12, 4096, 0n, HL_MEM.ODP);
    expect([small.result, small.out >> 40n, small.out & 0xfffn]).toEqual([0, 0xff7000n, 12n]);
    const huge = client.mapHost(base, 0x200000, 0n, HL_MEM.PREFETCH);
    expect([huge.result, huge.out >> 40n, huge.out % 0x200000n]).toEqual([0, 0xfff000n, 0n]);
    expect(client.mapHost(base, 4096).out % 0x200000n).toBe(0n);
    expect(client.mapHost(base, 0).result).toBe(-EINVAL);
    expect(client.mapHost(8, 4096).result).toBe(-EFAULT);
    for (const { out } of [small, huge]) expect(client.unmap(out)).toBe(0);
    expect(client.unmap(small.out)).toBe(-EINVAL);
  });

  it('exports mapped device memory, and imports none', () => {
    const { client } = open();
    const address = client.mapDevice(allocate(PAGE, 0n).handle).out;
    expect(client.exportDmabuf(address + 4096n, 4096).result).toBe(-EINVAL);
    expect(client.exportDmabuf(address, Number(PAGE), 4096).result).toBe(-EINVAL);
    const { out: fd } = client.exportDmabuf(address, 4096, 4096);
    expect(client.unmap(address)).toBe(-EINVAL);
    expect(client.importDmabuf(fd, 4096).result).toBe(-EINVAL);
    close(fd);
    expect(client.unmap(address)).toBe(0);
  });

  it('maps command buffers of the driver for the card', () => {
    const { client } = open();
    const { result, out } = client.createCommandBuffer(4096, HL_CB_FLAGS.MAP);
    expect([result, client.destroyCommandBuffer(out)]).toEqual([0, 0]);
  });
});

describe('DEBUG', () => {
  it('fetches traces in debug mode, and never copies memory', () => {
    const { client } = open();
    expect(client.debug({ op: HL_DEBUG_OP.FETCH_TRACE })).toBe(-EFAULT);
    expect(client.debug({ op: HL_DEBUG_OP.SET_MODE, enable: 1 })).toBe(0);
    expect(client.debug({ op: HL_DEBUG_OP.FETCH_TRACE })).toBe(0);
    for (const op of [HL_DEBUG_OP.READMEM, HL_DEBUG_OP.MEMCPY]) expect(client.debug({ op })).toBe(-EFAULT);
    for (const op of [1031, 1032]) expect(client.debug({ op })).toBe(-EINVAL);
    card.close();
    card = new EmulatedCard();
    expect(card.client.debug({ op: HL_DEBUG_OP.FETCH_TRACE })).toBe(-EINVAL);
  });
});
