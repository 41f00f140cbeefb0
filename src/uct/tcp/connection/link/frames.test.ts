/** Queued frames and their pool, and the operations that wait for answers: each memory is released once, and each failure has one reader. */

import { afterEach, describe, expect, it } from 'vitest';
import { expectNoLeaks } from '../../../../../test/fixtures/leak-check.ts';
import { NotedCompletion } from '../../../../../test/fixtures/transports/tcp-line.ts';
import { Status } from '../../../../ucs/type/status.ts';
import type { HostMemory } from '../../../base/host/memory.ts';
import { FrameType, HEADER_BYTES_MAX, PUT_HEADER_BYTES, PUT_RUN_MAX, writeAm, writePut } from '../../layout.ts';
import { Flushes, NO_MEMORY, Outstanding, PendingOperations } from '../operations.ts';
import { type Outgoing, OutgoingPool } from '../queue.ts';

expectNoLeaks();
const KEY = Int32Array.of(1, 2, 3, 4, 5, 6);
/** Index of the end in small frames. */
const END_WORD = HEADER_BYTES_MAX / 4;

interface FakeMemory {
  location: number;
  live: boolean;
  byteLength: number;
  inFlight: number;
}

function memoryAt(location: number, byteLength: number): FakeMemory & HostMemory {
  return { location, live: true, byteLength, inFlight: 0 } as FakeMemory & HostMemory;
}

describe('a frame', () => {
  const pools: OutgoingPool[] = [];
  function poolOf(largeBytes = 20_000): OutgoingPool {
    const pool = new OutgoingPool(largeBytes);
    pools.push(pool);
    return pool;
  }
  afterEach(() => {
    for (const pool of pools.splice(0)) pool.close();
  });

  function piecesOf(frame: Outgoing): [number, number][] {
    return Array.from({ length: frame.count }, (_, i) => [frame.addresses[i]!, frame.lengths[i]!]);
  }

  it('is as long as wanted, and no longer than its class', () => {
    const pool = poolOf();
    const lengths = [56, 57, 512, 513, 8256, 8257, 20_000].map((bytes) => pool.take(bytes).block.byteLength);
    expect(lengths).toEqual([56, 512, 512, 8256, 8256, 20_000, 20_000]);
    expect(pool.takenBytes).toBe(lengths.reduce((sum, each) => sum + each, 0));
  });

  it('that is used again has nothing of its last use', () => {
    const pool = poolOf();
    const frame = pool.takeRun();
    const fresh = { ...frame, addresses: [], lengths: [], memories: [], runLength: -1, count: 0 };
    const memory = memoryAt(4096, 64);
    frame.addRunHeader();
    frame.addMemory(memory, 0, 64);
    frame.owner = pool;
    frame.completion = new NotedCompletion();
    frame.hasOvertaken = true;
    frame.isRest = true;
    frame.copied = 7;
    frame.failure = Status.INVALID_ADDR;
    frame.next = frame;
    frame.advance(frame.lengths[0]! + 8);
    expect([frame.isStarted, memory.inFlight]).toEqual([true, 1]);
    pool.put(frame);
    expect([memory.inFlight, pool.takenBytes]).toEqual([0, 0]);
    const again = pool.take(frame.block.byteLength);
    expect(again).toBe(frame);
    expect({ ...again, addresses: [], lengths: [], memories: [] }).toEqual({ ...fresh, offset: again.offset });
    expect([again.isStarted && again.piece > 0, again.takesPut]).toEqual([false, false]);
  });

  it('of a run takes at most 30 puts, and none once it has begun to leave', () => {
    const run = poolOf().takeRun();
    const words = Array.from({ length: PUT_RUN_MAX }, () => (run.takesPut ? run.addRunHeader() : -1));
    expect(words).toEqual(Array.from({ length: PUT_RUN_MAX }, (_, i) => 2 + (i * PUT_HEADER_BYTES) / 4));
    expect([run.takesPut, run.words[1]]).toEqual([false, PUT_RUN_MAX]);
    const begun = poolOf().takeRun();
    begun.addRunHeader();
    begun.advance(1);
    expect([begun.isStarted, begun.takesPut]).toEqual([true, false]);
    const headerSent = poolOf().takeRun();
    headerSent.advance(8);
    expect([headerSent.isStarted, headerSent.takesPut]).toEqual([true, false]);
  });

  it('has the pieces of a part of a list', () => {
    const pool = poolOf();
    const memories = [3, 5, 4].map((byteLength, i) => memoryAt(1000 * (i + 1), byteLength + 1));
    const iov = memories.map((memory) => ({ memory, offset: 1, byteLength: memory.byteLength - 1 }));
    const piecesFrom = (from: number, byteLength: number): [number, number][] => {
      const frame = pool.takeSmall();
      frame.addIov(iov, from, byteLength);
      const pieces = piecesOf(frame);
      pool.put(frame);
      return pieces;
    };
    expect(piecesFrom(0, 12)).toEqual([
      [1001, 3],
      [2001, 5],
      [3001, 4],
    ]);
    expect(piecesFrom(2, 7)).toEqual([
      [1003, 1],
      [2001, 5],
      [3001, 1],
    ]);
    expect([piecesFrom(3, 5), piecesFrom(4, 1), piecesFrom(12, 0)]).toEqual([[[2001, 5]], [[2002, 1]], []]);
    expect(memories.map(({ inFlight }) => inFlight)).toEqual([0, 0, 0]);
  });

  it('counts its sent bytes over the bounds of its pieces', () => {
    const frame = poolOf().takeSmall();
    frame.addHeader(8);
    frame.addMemory(memoryAt(1000, 6), 0, 6);
    frame.addMemory(memoryAt(2000, 4), 0, 4);
    const zeros = pools[0]!.zeros;
    const steps = [7, 1, 5, 2, 3].map((bytes) => [frame.advance(bytes), frame.piece, frame.offset]);
    expect(steps).toEqual([
      [-1, 0, 7],
      [-1, 1, 0],
      [-1, 1, 5],
      [-1, 2, 1],
      [0, 3, 0],
    ]);
    const other = poolOf().takeSmall();
    other.addHeader(8);
    other.addMemory(memoryAt(1000, 6), 0, 6);
    other.advance(10);
    expect([other.restOf(1), other.placeOf(1, zeros), other.runOf(1, zeros)]).toEqual([4, 1002, 4]);
    expect(other.advance(9)).toBe(5);
  });

  it.each([
    ['freed', (memory: FakeMemory) => (memory.live = false)],
    ['detached', (memory: FakeMemory) => (memory.byteLength = 0)],
    ['cut by one byte', (memory: FakeMemory) => (memory.byteLength -= 1)],
  ])('whose memory is %s keeps its length, fails, and sends zeros', (_what, lose) => {
    const pool = poolOf();
    const frame = pool.takeSmall();
    const bytes = pool.zeros.byteLength + 100;
    const memory = memoryAt(5000, bytes);
    writeAm(frame.words, 0, FrameType.AM_ZCOPY, 1, bytes);
    frame.addHeader(8);
    frame.addMemory(memory, 0, bytes);
    frame.addEnd(Status.OK);
    frame.checkMemory();
    expect([memory.inFlight, frame.failure, frame.placeOf(1, pool.zeros)]).toEqual([1, Status.OK, 5000]);
    lose(memory);
    frame.checkMemory();
    frame.checkMemory();
    expect([memory.inFlight, frame.failure, frame.words[END_WORD]]).toEqual([
      0,
      Status.INVALID_ADDR,
      Status.INVALID_ADDR,
    ]);
    expect([frame.placeOf(1, pool.zeros), frame.runOf(1, pool.zeros), frame.restOf(1)]).toEqual([
      pool.zeros.address,
      pool.zeros.byteLength,
      bytes,
    ]);
    pool.put(frame);
    expect(memory.inFlight).toBe(0);
  });

  it('of a put has no end that could say that its memory was lost', () => {
    const frame = poolOf().takeSmall();
    const memory = memoryAt(5000, 8);
    writePut(frame.words, 0, KEY, 0, 8);
    frame.words[END_WORD] = 77;
    frame.addHeader(PUT_HEADER_BYTES);
    frame.addMemory(memory, 0, 8);
    frame.release();
    expect([memory.inFlight, frame.failure, frame.words[END_WORD]]).toEqual([0, Status.INVALID_ADDR, 77]);
  });
});

describe('operations that wait for answers', () => {
  const [OWNER, OTHER] = [{ name: 'owner' }, { name: 'other' }];

  class Waiting {
    readonly outstanding = new Outstanding();
    readonly operations = new PendingOperations(this.outstanding);

    /** Sends frames of an operation. */
    start(frames: number, memories: readonly HostMemory[] = [], owner: object = OWNER): NotedCompletion {
      const completion = new NotedCompletion();
      this.operations.sent += frames;
      const iov = memories.map((memory) => ({ memory, offset: 0, byteLength: memory.byteLength }));
      this.operations.expect(frames, completion, memories.length === 0 ? NO_MEMORY : iov, owner);
      return completion;
    }
  }

  it('end with their last frame, in order, also when there are many', () => {
    const waiting = new Waiting();
    const { operations, outstanding } = waiting;
    const first = Array.from({ length: 6 }, () => waiting.start(2));
    expect(operations.answer(7, Status.OK)).toBe(true);
    expect(first.map(({ statuses }) => statuses.length)).toEqual([1, 1, 1, 0, 0, 0]);
    // Their ring begins in its middle when it grows.
    const more = Array.from({ length: 10 }, () => waiting.start(1));
    for (const expected of [...first.slice(3), ...more]) {
      expect(expected.statuses).toEqual([]);
      operations.answer(1, Status.OK);
      if (expected.statuses.length === 0) operations.answer(1, Status.OK);
      expect(expected.statuses).toEqual([Status.OK]);
    }
    expect([operations.inFlight, outstanding.count]).toEqual([0, 0]);
  });

  it('are answered neither 0 times, nor more often than was sent', () => {
    const { operations } = new Waiting();
    operations.sent += 2;
    const results = [0, -1, 3, Number.NaN].map((count) => operations.answer(count, Status.OK));
    expect([results, operations.inFlight]).toEqual([[false, false, false, false], 2]);
    expect([operations.answer(2, Status.OK), operations.answer(1, Status.OK)]).toEqual([true, false]);
  });

  it('have the failures of their own frames; the others are for one flush, which gets the first', () => {
    const waiting = new Waiting();
    const { operations } = waiting;
    operations.sent += 2;
    const own = waiting.start(2);
    const next = waiting.start(1);
    operations.answer(1, Status.INVALID_ADDR);
    operations.answer(1, Status.IO_ERROR);
    operations.answer(1, Status.CONNECTION_RESET);
    operations.answer(1, Status.OK);
    operations.answer(1, Status.OK);
    expect([own.statuses, next.statuses]).toEqual([[Status.CONNECTION_RESET], [Status.OK]]);
    expect([operations.takeFailure(), operations.takeFailure()]).toEqual([Status.INVALID_ADDR, Status.OK]);
  });

  it('do not have the failure of the frame just before theirs', () => {
    const waiting = new Waiting();
    const { operations } = waiting;
    operations.sent += 1;
    const own = waiting.start(1);
    operations.answer(1, Status.INVALID_ADDR);
    operations.answer(1, Status.OK);
    expect([own.statuses, operations.takeFailure()]).toEqual([[Status.OK], Status.INVALID_ADDR]);
  });

  it('end once, with their own failure before that of the connection', () => {
    const waiting = new Waiting();
    const { operations, outstanding } = waiting;
    const [failed, whole] = [waiting.start(2), waiting.start(1)];
    operations.answer(1, Status.INVALID_ADDR);
    operations.close(Status.ENDPOINT_TIMEOUT);
    operations.close(Status.CANCELED);
    expect([failed.statuses, whole.statuses]).toEqual([[Status.INVALID_ADDR], [Status.ENDPOINT_TIMEOUT]]);
    expect([operations.inFlight, outstanding.count]).toEqual([0, 0]);
  });

  it('of one endpoint are cancelled once, release their memory, and their frames are answered all the same', () => {
    const waiting = new Waiting();
    const { operations, outstanding } = waiting;
    const [memory, kept] = [memoryAt(1000, 8), memoryAt(2000, 8)];
    const [own, other, last] = [waiting.start(1, [memory, memory]), waiting.start(1, [kept], OTHER), waiting.start(1)];
    expect([memory.inFlight, kept.inFlight, outstanding.count]).toEqual([2, 1, 3]);
    operations.cancel(OWNER);
    operations.cancel(OWNER);
    expect([own, other, last].map(({ statuses }) => statuses)).toEqual([[Status.CANCELED], [], [Status.CANCELED]]);
    expect([memory.inFlight, kept.inFlight, outstanding.count]).toEqual([0, 1, 1]);
    expect(operations.answer(3, Status.OK)).toBe(true);
    expect([own.statuses, other.statuses]).toEqual([[Status.CANCELED], [Status.OK]]);
    expect([memory.inFlight, kept.inFlight, outstanding.count]).toEqual([0, 0, 0]);
  });

  it('whose memory was detached have failed, unless they had before', () => {
    const waiting = new Waiting();
    const memories = [memoryAt(1000, 8), memoryAt(2000, 8)];
    const [lost, failed] = [waiting.start(1, [memories[0]!]), waiting.start(1, [memories[1]!])];
    for (const memory of memories) memory.byteLength = 0;
    waiting.operations.answer(1, Status.OK);
    waiting.operations.answer(1, Status.IO_ERROR);
    expect([lost.statuses, failed.statuses]).toEqual([[Status.INVALID_ADDR], [Status.IO_ERROR]]);
    expect(memories.map(({ inFlight }) => inFlight)).toEqual([0, 0]);
  });

  it('that reuse a longer list have nothing of it', () => {
    const waiting = new Waiting();
    const { operations } = waiting;
    // As many as there is room for at first.
    for (let i = 0; i < 8; i++) waiting.start(1, [memoryAt(1000, 8), memoryAt(2000, 8), memoryAt(3000, 8)]);
    operations.answer(8, Status.OK);
    const memory = memoryAt(4000, 8);
    const [short, empty, list] = [new NotedCompletion(), waiting.start(1), waiting.start(1, [memory])];
    operations.sent += 1;
    const target = new Uint8Array(20);
    const iov = operations.expectShort(short, target, 4, 6, OWNER);
    expect(iov).toMatchObject([{ offset: 4, byteLength: 6, memory: { bytes: target, inFlight: 1 } }]);
    operations.answer(3, Status.OK);
    expect([short, empty, list].map(({ statuses }) => statuses)).toEqual([[Status.OK], [Status.OK], [Status.OK]]);
    expect([memory.inFlight, iov[0]!.memory.bytes.byteLength]).toEqual([0, 0]);
  });

  it('keep no memory when they have ended', () => {
    const operations = new PendingOperations(new Outstanding());
    operations.sent += 1;
    const memory = memoryAt(1000, 8);
    const kept = operations.expect(1, new NotedCompletion(), [{ memory, offset: 0, byteLength: 8 }], OWNER);
    expect(kept[0]!.memory).toBe(memory);
    operations.answer(1, Status.OK);
    expect(kept[0]!.memory).not.toBe(memory);
  });
});

describe('flushes', () => {
  const [OWNER, OTHER] = [{ name: 'owner' }, { name: 'other' }];

  function setUp() {
    const outstanding = new Outstanding();
    const [puts, gets] = [new PendingOperations(outstanding), new PendingOperations(outstanding)];
    return { outstanding, puts, gets, flushes: new Flushes(outstanding, puts, gets) };
  }

  it('wait for puts, gets and messages before them, not for those behind them', () => {
    for (const missing of ['puts', 'gets', 'frames', 'nothing']) {
      const { outstanding, puts, gets, flushes } = setUp();
      puts.sent = 3;
      gets.sent = 2;
      const flush = new NotedCompletion();
      flushes.add(5, flush, OWNER);
      expect(outstanding.count).toBe(1);
      puts.sent = 9;
      gets.sent = 9;
      puts.done = missing === 'puts' ? 2 : 3;
      gets.done = missing === 'gets' ? 1 : 2;
      flushes.settle(missing === 'frames' ? 4 : 5);
      const isDone = missing === 'nothing';
      expect([flush.statuses, flushes.length, outstanding.count]).toEqual(isDone ? [[Status.OK], 0, 0] : [[], 1, 1]);
    }
  });

  it('report a failed put to the first of them', () => {
    const { puts, flushes } = setUp();
    puts.sent = 1;
    const [first, second] = [new NotedCompletion(), new NotedCompletion()];
    flushes.add(0, first, OWNER);
    flushes.add(0, second, OWNER);
    puts.answer(1, Status.INVALID_ADDR);
    flushes.settle(0);
    expect([first.statuses, second.statuses]).toEqual([[Status.INVALID_ADDR], [Status.OK]]);
  });

  it('of one endpoint are cancelled, and all end with the connection, once', () => {
    const { puts, flushes, outstanding } = setUp();
    puts.sent = 1;
    const [own, other] = [new NotedCompletion(), new NotedCompletion()];
    flushes.add(0, own, OWNER);
    flushes.add(0, other, OTHER);
    flushes.cancel(OWNER);
    expect([own.statuses, other.statuses, flushes.length, outstanding.count]).toEqual([[Status.CANCELED], [], 1, 1]);
    flushes.close(Status.ENDPOINT_TIMEOUT);
    flushes.close(Status.CANCELED);
    expect([own.statuses, other.statuses, outstanding.count]).toEqual([
      [Status.CANCELED],
      [Status.ENDPOINT_TIMEOUT],
      0,
    ]);
  });
});
