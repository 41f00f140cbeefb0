/** Where the bytes of a body go: pieces of a list in order, and nowhere once memory is lost. The statuses that a peer may send. */

import { describe, expect, it } from 'vitest';
import { Errno } from '../../../../sys/index.ts';
import { Status } from '../../../../ucs/type/status.ts';
import type { HostMemory } from '../../../base/host/memory.ts';
import { Payload } from '../inbound.ts';
import { endOf, failureOfPeer } from '../liveness.ts';
import { NO_MEMORY } from '../operations.ts';

/** Memory at a made-up address. */
interface FakeMemory {
  bytes: Uint8Array;
  location: number;
  live: boolean;
  byteLength: number;
}

function memoryAt(location: number, byteLength: number): FakeMemory & HostMemory {
  return { bytes: new Uint8Array(byteLength), location, live: true, byteLength } as FakeMemory & HostMemory;
}

function entry(memory: HostMemory, offset: number, byteLength: number) {
  return { memory, offset, byteLength };
}

const SOURCE = Uint8Array.from({ length: 100 }, (_, i) => i + 1);

describe('a body', () => {
  it('goes to the parts of a list from any byte on', () => {
    const lengths = [3, 0, 5, 4];
    const total = 12;
    for (let from = 0; from <= total; from++) {
      for (let byteLength = 0; from + byteLength <= total; byteLength++) {
        const memories = lengths.map((length, i) => memoryAt(1000 * (i + 1), length + 2));
        const iov = memories.map((memory, i) => entry(memory, 1, lengths[i]!));
        const payload = new Payload();
        payload.begin(byteLength, false);
        payload.addIov(iov, from, byteLength);
        payload.take(SOURCE, 10, byteLength);
        expect(payload.left).toBe(0);
        const all = memories.flatMap(({ bytes }, i) => [...bytes.subarray(1, 1 + lengths[i]!)]);
        const expected = Array.from({ length: total }, (_, i) =>
          i >= from && i < from + byteLength ? SOURCE[10 + i - from]! : 0,
        );
        expect(all).toEqual(expected);
      }
    }
  });

  it('names the address and the length of the next bytes', () => {
    const payload = new Payload();
    payload.begin(10, false);
    payload.add(memoryAt(1000, 8), 2, 0);
    payload.add(memoryAt(2000, 8), 2, 6);
    payload.add(memoryAt(3000, 8), 1, 4);
    const seen = [[payload.address, payload.contiguous, payload.left]];
    for (const bytes of [5, 1, 3]) {
      payload.advance(bytes);
      seen.push([payload.address, payload.contiguous, payload.left]);
    }
    expect(seen).toEqual([
      [2002, 6, 10],
      [2007, 1, 5],
      [3001, 4, 4],
      [3004, 1, 1],
    ]);
    payload.advance(1);
    expect(payload.left).toBe(0);
  });

  it('has no address in memory that has none, and its bytes are copied', () => {
    const memory = memoryAt(0, 8);
    const payload = new Payload();
    payload.begin(4, false);
    payload.add(memory, 3, 4);
    expect(payload.address).toBe(0);
    payload.take(SOURCE, 0, 4);
    expect([...memory.bytes]).toEqual([0, 0, 0, 1, 2, 3, 4, 0]);
  });

  it.each([
    ['freed', (memory: FakeMemory) => (memory.live = false)],
    ['detached', (memory: FakeMemory) => (memory.byteLength = 0)],
    ['cut by one byte', (memory: FakeMemory) => (memory.byteLength = 7)],
  ])('is discarded once its memory is %s, to the last byte', (_what, lose) => {
    const memory = memoryAt(1000, 8);
    const next = memoryAt(2000, 8);
    const payload = new Payload();
    payload.begin(16, false);
    payload.addIov([entry(memory, 0, 8), entry(next, 0, 8)], 0, 16);
    payload.take(SOURCE, 0, 4);
    lose(memory);
    expect(payload.address).toBe(0);
    payload.take(SOURCE, 4, 12);
    expect([payload.left, payload.isLost]).toEqual([0, true]);
    expect([[...memory.bytes], [...next.bytes]]).toEqual([
      [1, 2, 3, 4, 0, 0, 0, 0],
      [0, 0, 0, 0, 0, 0, 0, 0],
    ]);
  });

  it('of a lost key is discarded, and the next one is not', () => {
    const payload = new Payload();
    payload.begin(6, true);
    expect(payload.address).toBe(0);
    payload.take(SOURCE, 0, 6);
    const memory = memoryAt(1000, 4);
    payload.begin(4, false);
    payload.add(memory, 0, 4);
    payload.take(SOURCE, 50, 4);
    expect([payload.left, payload.isLost, [...memory.bytes]]).toEqual([0, false, [51, 52, 53, 54]]);
  });

  it('without a list has no bytes', () => {
    const payload = new Payload();
    payload.begin(0, false);
    payload.addIov(NO_MEMORY, 0, 0);
    expect(payload.left).toBe(0);
  });
});

describe('a status of a peer', () => {
  it('is a failure that does not cause a repetition', () => {
    const words = [Status.INVALID_ADDR, Status.NO_RESOURCE, Status.OK, Status.INPROGRESS, -9999, 17];
    expect(words.map(failureOfPeer)).toEqual([Status.INVALID_ADDR, ...Array(5).fill(Status.IO_ERROR)]);
  });
});

describe('the end of a connection', () => {
  it('is a silent peer if its packets get no answer, and a reset otherwise', () => {
    const codes = [Errno.ETIMEDOUT, Errno.EHOSTUNREACH, Errno.ENETUNREACH, Errno.ECONNRESET, Errno.EPIPE];
    expect(codes.map(endOf)).toEqual([
      ...Array(3).fill(Status.ENDPOINT_TIMEOUT),
      ...Array(2).fill(Status.CONNECTION_RESET),
    ]);
  });
});
