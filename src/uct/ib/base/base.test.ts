/** The parts that ib is made of, over devices that execute nothing: slots, completions in batches, inline data, regions, keys, memory in use. */

import { describe, expect, it } from 'vitest';
import { Errno, mapAnonymous, SyscallError } from '../../../sys/index.ts';
import { loadConfig } from '../../../ucs/config/config.ts';
import { createLog, LogLevel } from '../../../ucs/debug/log.ts';
import { MEMORY_TYPE_COUNT, MemoryType } from '../../../ucs/memory/memory-type.ts';
import { ManualClock } from '../../../ucs/sys/clock.ts';
import { Status } from '../../../ucs/type/status.ts';
import { AccessFlag, Wc, WcStatus } from '../../../verbs/abi.ts';
import { MemAccess } from '../../api/memory-domain.ts';
import { hostRange } from '../../base/host/memory.ts';
import { IB_CONFIG_TABLE } from './config.ts';
import type { IbDevice } from './device.ts';
import { DEVICES_MAX, IbKeyTable, keyBytes } from './key.ts';
import { accessFlags, IbMemory, IbRegions, IbRegistry } from './memory.ts';
import { CqReader, connectionStatusOfWc, inlineBytesOf, SlotMemory, statusOfWc } from './queues.ts';

function region(lkey: number): { readonly lkey: number; readonly rkey: number; closes: number; close(): void } {
  return {
    lkey,
    rkey: lkey + 1000,
    closes: 0,
    close() {
      this.closes += 1;
    },
  };
}

function memoryOf(bytes: Uint8Array, generation = 5, exposed?: IbRegions): IbMemory {
  return new IbMemory({
    memoryType: MemoryType.HOST,
    sysDevice: undefined,
    address: 0x5000n,
    byteLength: bytes.byteLength,
    bytes,
    generation,
    iova: 0x40,
    lkeys: Uint32Array.of(1, 2),
    access: MemAccess.ALL,
    ...(exposed === undefined ? {} : { exposed }),
  });
}

describe('slots', () => {
  it('are taken until none is free, and given back', () => {
    const device = { pd: { regMr: () => region(7) } } as unknown as IbDevice;
    const slots = new SlotMemory(device, 3, 64);
    const taken = [0, 1, 2, 3].map(() => slots.take());
    expect([taken.slice(0, 3).sort(), taken[3], slots.numFree]).toEqual([[0, 1, 2], -1, 0]);
    slots.give(1);
    expect([slots.numFree, slots.take(), slots.take()]).toEqual([1, 1, -1]);
    slots.close();
  });
});

describe('a reader of completions', () => {
  it('takes what it has read before it reads more, and nothing of a queue that fails', () => {
    const results = [2, 1, -5, 0];
    let polls = 0;
    const poll = (): number => results[polls++]!;
    const reader = new CqReader({ poll, requestNotify: () => undefined, close: () => undefined });
    expect([reader.fill(), reader.next(), reader.fill(), polls]).toEqual([2, 0, 1, 1]);
    expect([reader.next(), reader.fill(), reader.next(), polls]).toEqual([Wc.WORDS, 1, 0, 2]);
    expect([reader.fill(), reader.fill()]).toEqual([0, 0]);
    reader.close();
  });
});

describe('inline data', () => {
  const queues = { sendCq: {}, receiveCq: {}, srq: {}, maxSendWr: 16 } as never;
  function limited(most: number): {
    readonly device: IbDevice;
    readonly asked: number[];
    readonly state: { open: number };
  } {
    const asked: number[] = [];
    const state = { open: 0 };
    const createQp = ({ maxInlineBytes }: { maxInlineBytes: number }) => {
      asked.push(maxInlineBytes);
      if (maxInlineBytes > most) throw new SyscallError('ibv_create_qp', Errno.EINVAL, '');
      state.open += 1;
      return {
        close() {
          state.open -= 1;
        },
      };
    };
    return { device: { pd: { createQp }, attributes: { maxSge: 5 } } as unknown as IbDevice, asked, state };
  }

  it('are as many as the device takes, a multiple of 8, and leave no queue pair', () => {
    const { device, asked, state } = limited(40);
    expect(inlineBytesOf(device, queues, 104)).toBe(24);
    expect([asked, state.open]).toEqual([[104, 48, 24], 0]);
  });

  it('of a device that makes no queue pair are its error', () => {
    const { device, asked } = limited(-1);
    expect(() => inlineBytesOf(device, queues, 16)).toThrow(expect.objectContaining({ errno: Errno.EINVAL }));
    expect(asked).toEqual([16, 8, 0]);
  });
});

describe('the status of a work request', () => {
  it('is that of its operation, and of its connection', () => {
    const rows = Object.entries({
      SUCCESS: [Status.OK, Status.OK],
      REM_ACCESS_ERR: [Status.INVALID_ADDR, Status.CONNECTION_RESET],
      LOC_PROT_ERR: [Status.INVALID_ADDR, Status.CONNECTION_RESET],
      RETRY_EXC_ERR: [Status.ENDPOINT_TIMEOUT, Status.ENDPOINT_TIMEOUT],
      RNR_RETRY_EXC_ERR: [Status.ENDPOINT_TIMEOUT, Status.ENDPOINT_TIMEOUT],
      WR_FLUSH_ERR: [Status.CONNECTION_RESET, Status.CONNECTION_RESET],
      LOC_LEN_ERR: [Status.IO_ERROR, Status.IO_ERROR],
    });
    for (const [name, expected] of rows) {
      const code = WcStatus[name as keyof typeof WcStatus];
      expect([statusOfWc(code), connectionStatusOfWc(code)], name).toEqual(expected);
    }
  });
});

describe('regions', () => {
  it('have the keys of each device, and are registered with all or none', () => {
    const [first, second] = [region(10), region(20)];
    const regions = new IbRegions(3, [() => first as never, () => second as never]);
    expect([[...regions.lkeys], [...regions.rkeys]]).toEqual([
      [10, 20],
      [1010, 1020],
    ]);
    regions.close();
    expect([first.closes, second.closes]).toEqual([1, 1]);
    const third = region(30);
    const fail = (): never => {
      throw new SyscallError('ibv_reg_mr', Errno.ENOMEM, '');
    };
    expect(() => new IbRegions(3, [() => third as never, fail])).toThrow(/ENOMEM/);
    expect(third.closes).toBe(1);
  });

  it('permit what the memory is for', () => {
    const base = AccessFlag.RELAXED_ORDERING;
    const { LOCAL_WRITE, REMOTE_WRITE, REMOTE_READ, REMOTE_ATOMIC } = AccessFlag;
    expect(accessFlags(MemAccess.LOCAL_READ)).toBe(base);
    expect(accessFlags(MemAccess.LOCAL_WRITE)).toBe(base | LOCAL_WRITE);
    expect(accessFlags(MemAccess.REMOTE_GET)).toBe(base | REMOTE_READ);
    expect(accessFlags(MemAccess.REMOTE_PUT)).toBe(base | LOCAL_WRITE | REMOTE_WRITE);
    expect(accessFlags(MemAccess.REMOTE_ATOMIC)).toBe(base | LOCAL_WRITE | REMOTE_ATOMIC);
  });
});

describe('registrations', () => {
  function open() {
    const made: ReturnType<typeof region>[] = [];
    const regMr = () => {
      const one = region(made.length);
      made.push(one);
      return one;
    };
    const config = loadConfig([IB_CONFIG_TABLE]);
    const log = createLog('ib', LogLevel.FATAL, () => undefined);
    const registry = new IbRegistry([{ pd: { regMr } } as unknown as IbDevice], {
      log,
      clock: new ManualClock(),
      config,
    });
    return { registry, made };
  }

  it.each([Errno.ENOMEM, Errno.EAGAIN])('that are idle give way when a device answers %s', (errno) => {
    const { registry, made } = open();
    registry.release(registry.acquire(new Uint8Array(8)).region);
    let calls = 0;
    const regions = registry.onDevices(0, () => {
      calls += 1;
      if (calls === 1) throw new SyscallError('ibv_reg_mr', errno, '');
      return region(9) as never;
    });
    expect([calls, [...regions.lkeys], made[0]!.closes]).toEqual([2, [9], 1]);
    const fail = (): never => {
      throw new SyscallError('ibv_reg_mr', errno, '');
    };
    expect(() => registry.onDevices(0, fail)).toThrow(expect.objectContaining({ errno }));
  });

  it('of a range are not found after they were invalidated', () => {
    const { registry, made } = open();
    const memory = mapAnonymous(4096);
    const range = hostRange(memory.address, 4096);
    const [first, second] = [0, 1].map(() => registry.acquire(range).region);
    expect(second).toBe(first);
    registry.invalidate(first!);
    expect(first!.valid).toBe(false);
    const next = registry.acquire(range).region;
    expect(next).not.toBe(first);
    for (const each of [first, second, next]) registry.release(each!);
    expect(made.map(({ closes }) => closes)).toEqual([1, 0]);
    registry.rcache.close();
    memory.close();
  });
});

describe('memory', () => {
  it('stays registered until its last transfer has ended', () => {
    const memory = memoryOf(new Uint8Array(8));
    memory.inFlight = 2;
    let ends = 0;
    memory.retire(() => {
      ends += 1;
    });
    expect([memory.live, ends]).toEqual([false, 0]);
    memory.unuse();
    expect(ends).toBe(0);
    memory.unuse();
    expect(ends).toBe(1);
  });

  it('hides its keys once', () => {
    const one = region(1);
    const memory = memoryOf(new Uint8Array(8), 1, new IbRegions(0, [() => one as never]));
    memory.hide();
    memory.hide();
    expect(one.closes).toBe(1);
  });
});

describe('a key', () => {
  const regions = { iova: 0x123, rkeys: Uint32Array.of(71, 72) } as unknown as IbRegions;

  function packedOf(table: IbKeyTable, memory: IbMemory): Uint8Array {
    memory.exposed = regions;
    table.add(memory);
    const packed = new Uint8Array(keyBytes(2)).fill(0xee);
    table.pack(memory, regions, packed, 0);
    return packed;
  }

  it('has the same bytes each time, and arrives with each of its fields', () => {
    const table = new IbKeyTable();
    const memory = memoryOf(new Uint8Array(48));
    const packed = packedOf(table, memory);
    const again = new Uint8Array(packed.byteLength);
    table.pack(memory, regions, again, 0);
    expect(again).toEqual(packed);
    const fields = { byteLength: 48, iova: 0x123, rkeys: Uint32Array.of(71, 72), memoryType: MemoryType.HOST };
    expect(new IbKeyTable().unpack(packed)).toMatchObject({ ...fields, memory: undefined, live: true });
    expect(table.unpack(packed)).toMatchObject({ ...fields, memory, live: true });
  });

  it('of memory whose buffer was detached, or that is not registered any more, is not live', () => {
    const table = new IbKeyTable();
    const bytes = new Uint8Array(48);
    const memory = memoryOf(bytes);
    const packed = packedOf(table, memory);
    const key = table.unpack(packed);
    structuredClone(bytes.buffer, { transfer: [bytes.buffer] });
    expect(key.live).toBe(false);
    table.remove(memory);
    expect(() => table.unpack(packed)).toThrow(expect.objectContaining({ code: 'ERR_RKEY_STALE' }));
  });

  it('is refused with a change in any byte, and with more devices than there can be', () => {
    const table = new IbKeyTable();
    const packed = packedOf(table, memoryOf(new Uint8Array(48)));
    for (let at = 0; at < packed.byteLength; at++) {
      const changed = packed.slice();
      changed[at]! ^= 1;
      expect(() => table.unpack(changed), `byte ${at}`).toThrow(
        expect.objectContaining({ code: 'ERR_RKEY_MALFORMED' }),
      );
    }
    const rkeys = new Uint32Array(DEVICES_MAX + 1);
    const many = new Uint8Array(keyBytes(rkeys.length));
    table.pack(memoryOf(new Uint8Array(8)), { iova: 0, rkeys } as unknown as IbRegions, many, 0);
    expect(() => new IbKeyTable().unpack(many)).toThrow(expect.objectContaining({ code: 'ERR_RKEY_MALFORMED' }));
    const odd = memoryOf(new Uint8Array(8));
    Object.assign(odd, { memoryType: MEMORY_TYPE_COUNT });
    expect(() => new IbKeyTable().unpack(packedOf(table, odd))).toThrow(
      expect.objectContaining({ code: 'ERR_RKEY_MALFORMED' }),
    );
  });

  it('of other regions than those that were handed out is forged', () => {
    const table = new IbKeyTable();
    const memory = memoryOf(new Uint8Array(48));
    packedOf(table, memory);
    const forged = new Uint8Array(keyBytes(2));
    table.pack(memory, { iova: 0x123, rkeys: Uint32Array.of(71, 73) } as unknown as IbRegions, forged, 0);
    expect(() => table.unpack(forged)).toThrow(expect.objectContaining({ code: 'ERR_RKEY_FORGED' }));
  });
});
