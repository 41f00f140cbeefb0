/** The loopback transport: messages in a ring of few slots, puts and gets of lists, and keys that end with their memory. */

import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { expectNoLeaks } from '../../../test/fixtures/leak-check.ts';
import { createTestLog } from '../../../test/fixtures/test-log.ts';
import { loadConfig } from '../../ucs/config/config.ts';
import { MemoryType } from '../../ucs/memory/memory-type.ts';
import { ManualClock } from '../../ucs/sys/clock.ts';
import { Status } from '../../ucs/type/status.ts';
import { type AmFrame, AtomicOperation, type Iface, type UctEndpoint } from '../api/iface.ts';
import type { MdMemory, RemoteKey } from '../api/memory.ts';
import type { MemoryDomain } from '../api/memory-domain.ts';
import { identityText } from '../base/iface.ts';
import { selfComponent } from './md.ts';
import type { SelfMemory } from './memory.ts';

expectNoLeaks();
const DONE = { count: 1, failure: Status.OK as Status, onComplete: () => undefined };
/** Messages that wait at most. */
const WAITING_MAX = 63;

let clock: ManualClock;
let md: MemoryDomain;
let iface: Iface;
let endpoint: UctEndpoint;

beforeEach(() => {
  clock = new ManualClock(1e9);
  md = selfComponent().openMd({ log: createTestLog().log, clock, config: loadConfig([]) });
  iface = md.openIface(md.resources[0]!);
  endpoint = iface.connect(iface.address);
});
afterEach(() => {
  iface.close();
  md.close();
});

function send(value: number): Status {
  return endpoint.amShort(3, Int32Array.of(value, 7), 2, Uint8Array.of(1, 2, 3), 1, 2);
}

function numberIn({ words, offset }: AmFrame): number {
  return words[offset / 4]!;
}

function keyed(byteLength: number): {
  readonly memory: SelfMemory;
  readonly key: RemoteKey;
  readonly packed: Uint8Array;
} {
  const memory = md.memAlloc(byteLength, { memoryType: MemoryType.HOST }) as SelfMemory;
  const packed = new Uint8Array(md.attributes.rkeyPackedBytes);
  md.mkeyPack(memory, packed, 0);
  return { memory, key: md.rkeyUnpack(packed), packed };
}

describe('messages', () => {
  it('wait up to a limit, and arrive whole, in order, once', () => {
    const seen: [number, number, number[], string][] = [];
    const sent = Array.from({ length: WAITING_MAX }, (_, value) => send(value));
    expect([new Set(sent), send(99), iface.progress()]).toEqual([new Set([Status.OK]), Status.NO_RESOURCE, 0]);
    iface.setAmHandler((id, frame) => {
      const { bytes, offset, byteLength, source } = frame;
      seen.push([id, numberIn(frame), [...bytes.slice(offset + 4, offset + byteLength)], source]);
    });
    expect([iface.progress(), iface.progress()]).toEqual([WAITING_MAX, 0]);
    const source = identityText(iface.address);
    expect(seen).toEqual(Array.from({ length: WAITING_MAX }, (_, value) => [3, value, [7, 0, 0, 0, 2, 3], source]));
    expect(iface.stats!().counters).toMatchObject({ am: 63, no_res: 1, rx_am: 63, rx_am_bytes: 630, bytes_short: 630 });
  });

  it('that a handler sends wait for the next progress, and do not write over its own', () => {
    let kept: number[] = [];
    iface.setAmHandler((_id, frame) => {
      if (numberIn(frame) !== 0) return;
      let count = 0;
      while (send(100 + count) === Status.OK) count += 1;
      expect(count).toBe(WAITING_MAX);
      kept = [numberIn(frame), frame.byteLength];
    });
    send(0);
    expect(iface.progress()).toBe(1);
    expect([kept, iface.outstanding]).toEqual([[0, 10], WAITING_MAX]);
    expect(iface.progress()).toBe(WAITING_MAX);
  });

  it('arrive once if a handler throws, or calls progress', () => {
    const seen: number[] = [];
    iface.setAmHandler((_id, frame) => {
      seen.push(numberIn(frame));
      if (seen.length === 1) throw new Error('of the program');
      if (seen.length === 2) iface.progress();
    });
    for (let value = 0; value < 4; value++) send(value);
    expect(() => iface.progress()).toThrow('of the program');
    iface.progress();
    expect([seen, iface.outstanding]).toEqual([[0, 1, 2, 3], 0]);
  });

  it('of a packer have at most 8 KiB', () => {
    const rooms: number[] = [];
    const pack = (length: number) => ({
      pack: ({ byteLength }: AmFrame) => {
        rooms.push(byteLength);
        return length;
      },
    });
    const lengths = [8192, 8193, -1, 0.5, 16];
    expect(lengths.map((length) => endpoint.amBcopy(1, pack(length)))).toEqual([
      Status.OK,
      ...Array(3).fill(Status.INVALID_PARAM),
      Status.OK,
    ]);
    const received: number[] = [];
    iface.setAmHandler((_id, { byteLength }) => received.push(byteLength));
    iface.progress();
    endpoint.amBcopy(1, pack(8));
    expect([received, new Set(rooms)]).toEqual([[8192, 16], new Set([8192])]);
    expect(iface.stats!().counters).toMatchObject({ bytes_bcopy: 8216, am: 3 });
  });
});

describe('a sleep', () => {
  it('ends with a message or when the interface closes, and does not begin with one', async () => {
    await iface.wait(60e9);
    iface.setAmHandler(() => undefined);
    const slept = iface.wait(60e9);
    expect(clock.pendingTimers).toBe(1);
    send(1);
    await slept;
    expect(clock.pendingTimers).toBe(0);
    await iface.wait(60e9);
    iface.progress();
    const last = iface.wait(60e9);
    iface.close();
    await last;
    await iface.wait(60e9);
    expect(clock.pendingTimers).toBe(0);
  });
});

describe('memory', () => {
  it('takes the entries of a put one behind the other, and gives those of a get', () => {
    const { memory, key } = keyed(64);
    const local = md.memReg(Uint8Array.from({ length: 16 }, (_, i) => i + 1)) as SelfMemory;
    const iov = [
      { memory: local, offset: 1, byteLength: 2 },
      { memory: local, offset: 8, byteLength: 3 },
    ];
    expect(endpoint.putZcopy(iov, 59, key, DONE)).toBe(Status.OK);
    expect([...memory.bytes.subarray(58)]).toEqual([0, 2, 3, 9, 10, 11]);
    memory.bytes.set([21, 22, 23, 24, 25], 59);
    expect(endpoint.getZcopy(iov, 59, key, DONE)).toBe(Status.OK);
    expect([...local.bytes]).toEqual([1, 21, 22, 4, 5, 6, 7, 8, 23, 24, 25, 12, 13, 14, 15, 16]);
    expect(endpoint.putZcopy(iov, 60, key, DONE)).toBe(Status.INVALID_ADDR);
  });

  it('of short operations has at most 8 KiB, within its bounds', () => {
    const { key } = keyed(16_384);
    const bytes = new Uint8Array(9000);
    expect(endpoint.putShort(bytes, 0, 8192, 8192, key)).toBe(Status.OK);
    expect([
      endpoint.putShort(bytes, 0, 8193, 0, key),
      endpoint.getShort(bytes, 0, 8193, 0, key, DONE),
      endpoint.putShort(bytes, 8999, 2, 0, key),
      endpoint.putShort(bytes, 0, 2, 16_383, key),
    ]).toEqual([Status.INVALID_PARAM, Status.INVALID_PARAM, Status.INVALID_PARAM, Status.INVALID_ADDR]);
  });

  it('that was freed has neither bytes nor a key', () => {
    const { memory, key, packed } = keyed(64);
    const registered = md.memReg(new Uint8Array(8));
    expect(() => md.memDereg(memory)).toThrow('must come from memReg');
    expect(() => md.memFree(registered)).toThrow('must come from memAlloc');
    expect(md.stats!().counters).toEqual({ memory_handles: 2 });
    const call = { operation: AtomicOperation.ADD, wordBytes: 4, value32: 5, compare32: 0, result32: 0 } as never;
    expect([endpoint.atomic(call, 4, key, DONE), endpoint.atomic(call, 61, key, DONE)]).toEqual([
      Status.OK,
      Status.INVALID_ADDR,
    ]);
    expect(iface.stats!().counters).toMatchObject({ atomic: 1 });
    md.memFree(memory);
    md.memDereg(registered);
    expect([key.live, endpoint.putShort(new Uint8Array(1), 0, 1, 0, key), endpoint.atomic(call, 4, key, DONE)]).toEqual(
      [false, Status.INVALID_ADDR, Status.INVALID_ADDR],
    );
    expect(() => md.rkeyUnpack(packed)).toThrow(expect.objectContaining({ code: 'ERR_RKEY_STALE' }));
    expect(md.stats!().counters).toEqual({ memory_handles: 0 });
    expect(() => md.memFree(memory as MdMemory)).toThrow('has been freed');
  });
});
