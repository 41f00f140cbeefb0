/** A long message that its receiver has not taken is withdrawn when its sender aborts it: the receiver never sees it, or learns that its data is gone. */

import { describe, expect, it } from 'vitest';
import { type AmMessage, type Endpoint, type Request, Status } from '../../../src/index.ts';
import {
  connectionKind,
  contents,
  driveIdle,
  driveUntil,
  expectSame,
  fill,
  type MemoryKind,
  mappedOf,
  memoryKinds,
  memoryOf,
  pattern,
  serving,
  unmap,
  usePairs,
} from '../../fixtures/pair.ts';

const BYTES = 2 ** 20;
const TAG = 7;

/** The request of an operation that has to go on. */
function requestOf(started: Status | Request): Request {
  return typeof started === 'number' ? expect.fail(`the operation ended with ${started}`) : started;
}

describe.each(['loopback', 'posix', 'staging, tcp', 'all transports', 'RDMA'])('over %s', (name) => {
  const kind = connectionKind(name);
  const fixture = usePairs(kind);

  it.each<MemoryKind>(memoryKinds(kind))('a tagged message of %s memory that has no receive', async (memoryKind) => {
    const pair = await fixture.pair(kind);
    const { one, two, ab } = pair;
    const memory = memoryOf(one, memoryKind, BYTES);
    const abort = new AbortController();
    await serving(pair, async () => {
      const sent = ab.tagSend(memory, { tag: TAG, signal: abort.signal });
      const expected = expect(sent).rejects.toMatchObject({ name: 'AbortError' });
      while (two.worker.tagProbe(TAG) === undefined) await new Promise(setImmediate);
      abort.abort();
      await expected;
    });
    expect(one.worker.requestsInUse).toBe(0);
    expect(two.worker.tagProbe(TAG)).toBeUndefined();
    // Its memory belongs to the program again, and the next message with its tag comes.
    const bytes = pattern(BYTES, 5);
    await fill(one, memory, bytes);
    const target = memoryOf(two, memoryKind, BYTES);
    const received = await serving(pair, async () => {
      const [result] = await Promise.all([two.worker.tagRecv(target, { tag: TAG }), ab.tagSend(memory, { tag: TAG })]);
      return result;
    });
    expect(received.byteLength).toBe(BYTES);
    expectSame(await contents(two, target), bytes);
    unmap(one, memory);
    unmap(two, target);
  });

  it('a synchronous message that was sent with its data', async () => {
    const pair = await fixture.pair(kind);
    const { two, ab } = pair;
    const send = (): Request => requestOf(ab.tagSendSyncNbx(pattern(64, 1), 0, 64, TAG));
    const request = send();
    await driveUntil(pair, () => two.worker.tagProbe(TAG) !== undefined);
    expect(request.cancel()).toBe(false);
    await driveUntil(pair, () => request.isCompleted);
    expect(request.status).toBe(Status.CANCELED);
    expect(two.worker.tagProbe(TAG)).toBeUndefined();
    request.free();
  });

  it('one that was matched ends with its receive, and has its bytes', async () => {
    const pair = await fixture.pair(kind);
    const { one, two, ab } = pair;
    const [source, target] = [mappedOf(one, 'registered', BYTES), new Uint8Array(BYTES)];
    source.bytes!.set(pattern(BYTES, 2));
    const sent = requestOf(ab.tagSendNbx(source, 0, BYTES, TAG));
    await driveUntil(pair, () => two.worker.tagProbe(TAG) !== undefined);
    const started = two.worker.tagRecvNbx(target, 0, BYTES, TAG, undefined, { noImmediateCompletion: true });
    const received = requestOf(started);
    sent.cancel();
    sent.cancel();
    await driveUntil(pair, () => sent.isCompleted && received.isCompleted);
    expect([sent.status, received.status]).toEqual([Status.OK, Status.OK]);
    expectSame(target, source.bytes!);
    await driveIdle(pair, 300);
    sent.free();
    received.free();
    unmap(one, source);
  });

  it('an active message that was kept: its data cannot be received any more', async () => {
    const pair = await fixture.pair(kind);
    const { two, ab } = pair;
    const kept: AmMessage[] = [];
    two.worker.setAmHandler(3, (message) => {
      kept.push(message.retain());
    });
    const send = (endpoint: Endpoint): Request =>
      requestOf(endpoint.amSendNbx(3, pattern(8, 1), pattern(BYTES, 3), 0, BYTES));
    const [withdrawn, other] = [send(ab), send(ab)];
    await driveUntil(pair, () => kept.length === 2);
    withdrawn.cancel();
    await driveUntil(pair, () => withdrawn.isCompleted);
    expect([withdrawn.status, other.isCompleted]).toEqual([Status.CANCELED, false]);
    await expect(serving(pair, () => kept[0]!.bytes())).rejects.toMatchObject({ code: 'ERR_CANCELED' });
    expectSame(await serving(pair, () => kept[1]!.bytes()), pattern(BYTES, 3));
    await driveUntil(pair, () => other.isCompleted);
    expect(other.status).toBe(Status.OK);
    withdrawn.free();
    other.free();
    two.worker.setAmHandler(3, undefined);
  });
});
