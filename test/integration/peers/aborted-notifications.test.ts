/** Notifications that their sender aborts while the peer takes none: their promises reject, and the peer never gets those that were not sent. */

import { describe, expect, it } from 'vitest';
import { type RemoteKey, type Request, Status } from '../../../src/index.ts';
import {
  connectionKind,
  driveUntil,
  expectSame,
  keyFor,
  mappedOf,
  type Pair,
  pattern,
  serving,
  usePairs,
} from '../../fixtures/pair.ts';

const ENV = { UCX_UNEXP_MAX_BYTES: '256k' };
const NOTICE_BYTES = 1000;
const ID = 9;

/** A notification that names its number. */
function notice(number: number): Uint8Array {
  const bytes = pattern(NOTICE_BYTES, number);
  new DataView(bytes.buffer).setUint32(0, number);
  return bytes;
}

/** The number of a notification, whose bytes are compared. */
function numberOf(bytes: Uint8Array): number {
  const number = new DataView(bytes.buffer, bytes.byteOffset).getUint32(0);
  expectSame(bytes, notice(number));
  return number;
}

/** Sends notifications until one waits for the peer; returns how many were sent. */
async function sendAll(send: (number: number, signal: AbortSignal) => Promise<unknown>): Promise<number> {
  for (let number = 0; ; number++) {
    const abort = new AbortController();
    const sent = send(number, abort.signal).then(() => true);
    // Many turns of the event loop, in which both ends make progress.
    const late = (async (): Promise<boolean> => {
      for (let i = 0; i < 200; i++) await new Promise(setImmediate);
      return false;
    })();
    if (await Promise.race([sent, late])) continue;
    const expected = expect(sent).rejects.toMatchObject({ name: 'AbortError' });
    abort.abort();
    await expected;
    return number;
  }
}

/** The numbers of the notifications that the peer takes, up to the last one. */
async function taken({ two }: Pair, last: number, signal = AbortSignal.timeout(20_000)): Promise<number[]> {
  const numbers: number[] = [];
  for await (const { bytes } of two.worker.notifications({ signal })) {
    numbers.push(numberOf(bytes));
    if (numbers.at(-1) === last) break;
  }
  return numbers;
}

const upTo = (count: number): number[] => Array.from({ length: count }, (_, i) => i);

describe.each(['posix', 'tcp', 'loopback over self alone'])('over %s', (name) => {
  const kind = connectionKind(name);
  const fixture = usePairs(kind);

  async function open(): Promise<{ readonly pair: Pair; readonly rkey: RemoteKey; readonly close: () => void }> {
    const pair = await fixture.pair(kind, ENV);
    const { two, ab } = pair;
    const target = mappedOf(two, 'allocated', 4096);
    const rkey = keyFor(ab, two, target);
    const close = (): void => {
      rkey.release();
      two.context.memUnmap(target);
    };
    return { pair, rkey, close };
  }

  it.each(['put', 'putList', 'notify'])('a %s ends, and the peer gets only the others, in order', async (method) => {
    const { pair, rkey, close } = await open();
    const { one, ab } = pair;
    const local = pattern(64, 3);
    const send = (number: number, signal?: AbortSignal): Promise<unknown> => {
      const options = { notify: notice(number), ...(signal !== undefined && { signal }) };
      if (method === 'put') return ab.put(local, rkey, options);
      if (method === 'putList') return ab.putList([{ local, rkey, byteLength: 64 }], options);
      return ab.notify(notice(number), signal === undefined ? {} : { signal });
    };
    await serving(pair, async () => {
      const count = await sendAll(send);
      expect(count).toBeGreaterThan(10);
      expect(one.worker.requestsInUse).toBe(0);
      // The one behind it is not aborted.
      const last = send(count + 1);
      expect(await taken(pair, count + 1)).toEqual([...upTo(count), count + 1]);
      await last;
    });
    close();
  });

  it('those that wait for their turn, and flushes and puts behind them', async () => {
    const { pair, rkey, close } = await open();
    const { one, ab } = pair;
    await serving(pair, async () => {
      const count = await sendAll((number, signal) => ab.put(pattern(64, 3), rkey, { notify: notice(number), signal }));
      const abort = new AbortController();
      const { signal } = abort;
      const waiting = [0, 1, 2].map((i) => ab.put(pattern(64, i), rkey, { notify: notice(count + i), signal }));
      const kept = ab.notify(notice(count + 3));
      const behind = [ab.notify(notice(count + 4), { signal }), ab.flush({ signal }), one.worker.flush({ signal })];
      // Its own put waits for nothing where it ends in its call.
      const put = ab.put(pattern(4096, 9), rkey, { signal }).catch((error: unknown) => error);
      const ends = [...waiting, ...behind].map((sent) => expect(sent).rejects.toMatchObject({ name: 'AbortError' }));
      for (let i = 0; i < 200; i++) await new Promise(setImmediate);
      abort.abort();
      await Promise.all(ends);
      await put;
      // The list of the kept one, and its message.
      expect(one.worker.requestsInUse).toBe(2);
      const last = ab.notify(notice(count + 5));
      expect(await taken(pair, count + 5)).toEqual([...upTo(count), count + 3, count + 5]);
      await Promise.all([kept, last]);
      await ab.flush();
    });
    close();
  });

  it('one with its own id does not reach the loop over its messages', async () => {
    const { pair, rkey, close } = await open();
    const { two, ab } = pair;
    await serving(pair, async () => {
      const messages = two.worker.messages(ID);
      const options = (number: number): { notify: Uint8Array; notifyId: number } => ({
        notify: notice(number),
        notifyId: ID,
      });
      const count = await sendAll((number, signal) => ab.put(pattern(64, 3), rkey, { ...options(number), signal }));
      const last = ab.put(pattern(64, 3), rkey, options(count + 1));
      const numbers: number[] = [];
      for await (const message of messages) {
        numbers.push(numberOf(message.header));
        message.release();
        if (numbers.at(-1) === count + 1) break;
      }
      expect(numbers).toEqual([...upTo(count), count + 1]);
      await last;
    });
    close();
  });
});

describe.each(['libucx, tcp'])('over %s, where a peer keeps all notifications', (name) => {
  const kind = connectionKind(name);
  const fixture = usePairs(kind);

  it('those cancelled before they are sent do not arrive, and flushes behind them end', async () => {
    const pair = await fixture.pair(kind);
    const { one, two, ab } = pair;
    const target = mappedOf(two, 'allocated', 4096);
    const rkey = keyFor(ab, two, target);
    const params = { noImmediateCompletion: true };
    const source = pattern(64, 3);
    const requests = [0, 1, 2].map(
      (i) => ab.putNbx(source, 0, 64, rkey, 0, { ...params, notify: notice(i) }) as Request,
    );
    const flush = ab.flushNbx(params) as Request;
    const all = [...requests, flush];
    for (const request of [requests[1]!, flush]) request.cancel();
    await driveUntil(pair, () => all.every(({ isCompleted }) => isCompleted));
    expect(all.map(({ status }) => status)).toEqual([Status.OK, Status.CANCELED, Status.OK, Status.CANCELED]);
    for (const request of all) request.free();
    await serving(pair, async () => expect(await taken(pair, 2)).toEqual([0, 2]));
    expectSame(target.bytes!.subarray(0, 64), source);
    await serving(pair, () => ab.flush());
    expect(one.worker.requestsInUse).toBe(0);
    rkey.release();
    two.context.memUnmap(target);
  });
});
