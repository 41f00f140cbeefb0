/** Progress: waiting, arming, the event descriptor, signals and AbortSignals; the operations for which a flush and a fence wait. */

import { describe, expect, it } from 'vitest';
import { type Request, Status } from '../../../src/index.ts';
import { PollEvent, pollNow, read } from '../../../src/sys/index.ts';
import { failureOf } from '../../fixtures/contexts.ts';
import {
  connectionKind,
  driveIdle,
  driveUntil,
  expectContents,
  expectSame,
  keyFor,
  type MemoryKind,
  mappedOf,
  memoryOf,
  PAIR_KINDS,
  type Pair,
  pattern,
  serving,
  usePairs,
} from '../../fixtures/pair.ts';

const fixture = usePairs();
/** The pairs over libucp, if it is installed. */
const LIBUCX = PAIR_KINDS.filter(({ engine }) => engine === 'libucx').map(({ name }) => name);
const KEEP = { noImmediateCompletion: true };

function started(result: Status | Request): Request {
  if (typeof result === 'number') expect.fail(`the operation ended at once with ${result}`);
  return result;
}

/** A pair with an established connection and nothing in flight. */
async function connected(name: string): Promise<Pair> {
  const pair = await fixture.pair(connectionKind(name));
  await Promise.all([pair.ab.tagSend(new Uint8Array(1)), pair.two.worker.tagRecv(new Uint8Array(1))]);
  await Promise.all([pair.ba.tagSend(new Uint8Array(1)), pair.one.worker.tagRecv(new Uint8Array(1))]);
  await driveIdle(pair, 300);
  return pair;
}

/** Reads a worker's descriptor, as an event loop would. */
function drain(fd: number): void {
  read(fd, new Uint8Array(8));
}

const isReady = (fd: number): boolean => (pollNow(fd, PollEvent.IN) & PollEvent.IN) !== 0;

/** Runs the event loop until `isDone`. */
async function turnUntil(isDone: () => boolean): Promise<void> {
  while (!isDone()) await new Promise(setImmediate);
}

/** The status of an operation; frees the request of one that has ended. */
function ended(result: Status | Request): Status {
  if (typeof result === 'number') return result;
  const { status, isCompleted } = result;
  if (isCompleted) result.free();
  return status;
}

describe('a worker', () => {
  it.each(['posix', 'all transports', ...LIBUCX])('wakes from wait when a message comes, over %s', async (name) => {
    const pair = await connected(name);
    const { two, ab } = pair;
    for (let round = 0; round < 20; round++) {
      const receive = started(two.worker.tagRecvNbx(new Uint8Array(8), 0, 8, 1));
      const loop = (async () => {
        while (!receive.isCompleted) if (two.worker.progress() === 0) await two.worker.wait();
      })();
      // Sometimes before it sleeps, sometimes afterwards.
      for (let turn = 0; turn < round % 4; turn++) await new Promise(setImmediate);
      expect(ab.tagSendNbx(pattern(8, 1), 0, 8, 1)).toBe(Status.OK);
      await loop;
      receive.free();
    }
  });

  it.each(['all transports', ...LIBUCX])(
    'wakes from wait by its signal and by an AbortSignal, over %s',
    async (name) => {
      const { one } = await connected(name);
      const waiting = one.worker.wait();
      one.worker.signal();
      await waiting;
      const both = [one.worker.wait(), one.worker.wait()];
      one.worker.signal();
      await Promise.all(both);
      const abort = new AbortController();
      const aborted = one.worker.wait({ signal: abort.signal });
      abort.abort(new Error('enough'));
      expect(await failureOf(() => aborted)).toMatchObject({ name: 'AbortError', code: 'ABORT_ERR' });
      expect(await failureOf(() => one.worker.wait({ signal: abort.signal }))).toMatchObject({ name: 'AbortError' });
    },
  );

  it.each(['posix', 'all transports', ...LIBUCX])(
    'has a descriptor that is readable after arm and an event, over %s',
    async (name) => {
      const pair = await connected(name);
      const { two, ab } = pair;
      const { eventFd } = two.worker;
      expect(two.worker.eventFd).toBe(eventFd);
      expect(isReady(eventFd)).toBe(false);
      for (let round = 0; round < 5; round++) {
        while (two.worker.progress() > 0);
        expect(two.worker.arm()).toBe(Status.OK);
        const receive = started(two.worker.tagRecvNbx(new Uint8Array(8), 0, 8, 1));
        expect(ab.tagSendNbx(pattern(8, round), 0, 8, 1)).toBe(Status.OK);
        await turnUntil(() => isReady(eventFd));
        drain(eventFd);
        await driveUntil(pair, () => receive.isCompleted);
        receive.free();
      }
      while (two.worker.progress() > 0);
      two.worker.arm();
      two.worker.signal();
      expect(isReady(eventFd)).toBe(true);
      drain(eventFd);
      // Without arm there is no event.
      two.worker.signal();
      expect(isReady(eventFd)).toBe(false);
    },
  );

  it.each(['posix', ...LIBUCX])('reports an event that occurred before arm, over %s', async (name) => {
    const pair = await connected(name);
    const { two, ab } = pair;
    const { eventFd } = two.worker;
    expect(ab.tagSendNbx(pattern(8, 1), 0, 8, 1)).toBe(Status.OK);
    two.worker.arm();
    await turnUntil(() => isReady(eventFd));
    drain(eventFd);
    await driveUntil(pair, () => two.worker.tagProbe(1) !== undefined);
  });

  it.each(['staging, posix', ...LIBUCX])('serves its peers until the signal, and no longer, over %s', async (name) => {
    const pair = await connected(name);
    const { two, ab } = pair;
    const memory = mappedOf(two, 'registered', 5000);
    const rkey = keyFor(ab, two, memory);
    const stop = new AbortController();
    const served = two.worker.serve(stop.signal);
    await ab.put(pattern(5000, 1), rkey);
    expectSame(memory.bytes!, pattern(5000, 1));
    stop.abort();
    await served;
    const put = started(ab.putNbx(pattern(5000, 2), 0, 5000, rkey, 0, KEEP));
    const flush = started(ab.flushNbx(KEEP));
    for (let turn = 0; turn < 2000; turn++) pair.one.worker.progress();
    await new Promise(setImmediate);
    expect(flush.isCompleted).toBe(false);
    expectSame(memory.bytes!, pattern(5000, 1));
    await driveUntil(pair, () => put.isCompleted && flush.isCompleted);
    expect([put.status, flush.status]).toEqual([Status.OK, Status.OK]);
    expectSame(memory.bytes!, pattern(5000, 2));
    put.free();
    flush.free();
    rkey.release();
    await two.worker.serve(AbortSignal.abort());
  });
});

describe('an AbortSignal', () => {
  it.each(['posix', 'all transports', ...LIBUCX])(
    'ends every awaited operation that waits for a peer, over %s',
    async (name) => {
      const pair = await connected(name);
      const { one, two, ab } = pair;
      const memory = mappedOf(two, 'registered', 100_000);
      const rkey = keyFor(ab, two, memory);
      const bytes = pattern(100_000, 1);
      const aborted = AbortSignal.abort();
      const calls: Record<string, (signal: AbortSignal) => Promise<unknown>> = {
        tagRecv: (signal) => one.worker.tagRecv(new Uint8Array(8), { tag: 9, signal }),
        streamRecv: (signal) => ab.streamRecv(new Uint8Array(8), { signal }),
        stream: (signal) => ab.stream({ signal }).next(),
        messages: (signal) => one.worker.messages(9, { signal }).next(),
        wait: (signal) => one.worker.wait({ signal }),
      };
      for (const [what, call] of Object.entries(calls)) {
        const abort = new AbortController();
        const waiting = call(abort.signal);
        await driveIdle(pair, 50);
        abort.abort();
        expect(await failureOf(() => waiting), what).toMatchObject({ name: 'AbortError' });
      }
      const immediate: typeof calls = {
        ...calls,
        put: (signal) => ab.put(bytes, rkey, { signal }),
        get: (signal) => ab.get(new Uint8Array(8), rkey, { signal }),
        atomic: (signal) => ab.atomic('add', 1, rkey, { signal }),
        tagSend: (signal) => ab.tagSend(bytes, { signal }),
        tagSendSync: (signal) => ab.tagSendSync(bytes, { signal }),
        amSend: (signal) => ab.amSend(1, bytes, { signal }),
        streamSend: (signal) => ab.streamSend(bytes, { signal }),
        flush: (signal) => ab.flush({ signal }),
        workerFlush: (signal) => one.worker.flush({ signal }),
      };
      for (const [what, call] of Object.entries(immediate)) {
        expect(await failureOf(() => call(aborted)), what).toMatchObject({ name: 'AbortError' });
      }
      rkey.release();
      expect([one.worker.requestsInUse, two.worker.requestsInUse]).toEqual([0, 0]);
      expectSame(memory.bytes!, new Uint8Array(100_000));
      expect(two.worker.tagProbe(0, 0)).toBeUndefined();
    },
  );

  it.each(['cma and posix', ...LIBUCX])(
    'does not end a send that the peer may be reading, over %s: it settles when the memory can be reused',
    async (name) => {
      const pair = await connected(name);
      const { two, ab } = pair;
      const abort = new AbortController();
      const bytes = pattern(300_000, 4);
      let isRejected = false;
      const sending = ab.tagSend(bytes, { tag: 3, signal: abort.signal }).then(
        () => undefined,
        (error: unknown) => {
          isRejected = true;
          return error;
        },
      );
      await driveUntil(pair, () => two.worker.tagProbe(3) !== undefined);
      abort.abort();
      await driveIdle(pair, 300);
      // The native engine withdraws the message; its promise settles in a turn of the event loop.
      await new Promise(setImmediate);
      const target = new Uint8Array(300_000);
      if (isRejected) expect(await sending).toMatchObject({ name: 'AbortError' });
      else {
        await two.worker.tagRecv(target, { tag: 3 });
        expectSame(target, pattern(300_000, 4));
        expect(await sending).toBeUndefined();
      }
      expect(two.worker.tagProbe(3)).toBeUndefined();
    },
  );
});

describe.each(PAIR_KINDS)('flush and fence over $name', (kind) => {
  const kinds: readonly Exclude<MemoryKind, 'bytes'>[] = kind.hasGaudi
    ? ['registered', 'allocated', 'gaudi']
    : ['registered', 'allocated'];

  it.each(kinds)('order earlier operations on remote %s memory', async (remoteKind) => {
    const pair = await fixture.pair(kind);
    const { one, two, ab } = pair;
    const remote = mappedOf(two, remoteKind, 300_000);
    const rkey = keyFor(ab, two, remote);
    await serving(pair, async () => {
      for (let round = 0; round < 5; round++) {
        // Long, then short operations on its end; each separated from the next by a fence.
        const local = memoryOf(one, 'bytes', 300_000) as Uint8Array;
        local.set(pattern(300_000, round));
        const requests = [ab.putNbx(local, 0, 300_000, rkey, 0)];
        ab.fence();
        requests.push(ab.putNbx(pattern(9, 50 + round), 0, 9, rkey, 299_991));
        one.worker.fence();
        const back = new Uint8Array(300_000);
        const get = ab.getNbx(back, 0, 300_000, rkey, 0);
        await (round % 2 === 0 ? ab.flush() : one.worker.flush());
        const expected = pattern(300_000, round);
        expected.set(pattern(9, 50 + round), 299_991);
        await expectContents(two, remote, expected, `round ${round}`);
        for (const request of requests) expect(ended(request)).toBe(Status.OK);
        if (typeof get !== 'number') await turnUntil(() => get.isCompleted);
        expect(ended(get)).toBe(Status.OK);
        expectSame(back, expected, `get behind a fence, round ${round}`);
      }
    });
    rkey.release();
  });

  it('end at once if there is nothing to wait for', async () => {
    const pair = await fixture.pair(kind);
    await Promise.all([pair.ab.tagSend(new Uint8Array(1)), pair.two.worker.tagRecv(new Uint8Array(1))]);
    await driveIdle(pair, 300);
    // A device reports the end of a message only on request.
    await pair.one.worker.flush();
    const flushes = [pair.ab.flushNbx(), pair.one.worker.flushNbx()];
    // libucp may query the peer nevertheless.
    if (kind.engine === undefined) expect(flushes).toEqual([Status.OK, Status.OK]);
    await driveUntil(pair, () => flushes.every((flush) => typeof flush === 'number' || flush.isCompleted));
    expect(flushes.map(ended)).toEqual([Status.OK, Status.OK]);
    const request = started(pair.ab.flushNbx(KEEP));
    await driveUntil(pair, () => request.isCompleted);
    expect([request.status, request.protocol, request.transport]).toEqual([Status.OK, 'flush', undefined]);
    request.free();
    await pair.ab.flush();
    await pair.one.worker.flush();
  });
});

describe('a flush', () => {
  it.each([
    ['cma and posix', 'registered'],
    ['all transports', 'gaudi'],
    ...LIBUCX.map((name) => [name, 'registered'] as const),
  ] as const)('waits for gets, over %s from %s memory', async (name, remoteKind) => {
    await expectFlushedGet(name, remoteKind);
  });

  it.each([
    ['posix', 'registered'],
    ['staging, cma and posix', 'gaudi'],
  ] as const)('waits for gets by messages, over %s from %s memory', async (name, remoteKind) => {
    await expectFlushedGet(name, remoteKind);
  });
});

/** Starts a get and flushes: the get has ended with the flush. */
async function expectFlushedGet(name: string, remoteKind: Exclude<MemoryKind, 'bytes'>): Promise<void> {
  const pair = await fixture.pair(connectionKind(name));
  const rkey = keyFor(pair.ab, pair.two, mappedOf(pair.two, remoteKind, 300_000));
  const get = pair.ab.getNbx(new Uint8Array(300_000), 0, 300_000, rkey, 0);
  await serving(pair, () => pair.ab.flush());
  rkey.release();
  expect(ended(get)).toBe(Status.OK);
}
