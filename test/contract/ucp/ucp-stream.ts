/**
 * Streams over every kind of connection: bytes in order for any pieces of both ends, from and into all kinds of memory, partial and full
 * receives, receives without a copy, lists, cancellation, loops.
 */

import { describe, expect, it } from 'vitest';
import { type IovPiece, type Request, Status } from '../../../src/index.ts';
import { createRandom } from '../../../src/ucs/sys/random.ts';
import {
  type ConnectionKind,
  contents,
  driveIdle,
  driveUntil,
  expectContents,
  expectSame,
  fill,
  memoryKinds,
  memoryOf,
  pattern,
  serving,
  unmap,
  usePairs,
} from '../../fixtures/pair.ts';
import { requires } from '../../fixtures/requires.ts';

const SIZES = [1, 8, 103, 104, 105, 8247, 8248, 8249, 65_537, 1_000_003];
export const KEEP = { noImmediateCompletion: true };

export function asRequest(result: Status | Request): Request {
  if (typeof result === 'number') expect.fail(`the operation ended at once with ${result}`);
  return result;
}

/** Declares the tests of streams over a kind of connection. */
export function streamContract(kind: ConnectionKind): void {
  describe(`streams over '${kind.name}'`, () => {
    const fixture = usePairs(kind);
    const kinds = memoryKinds(kind);

    it.each(kinds)('from %s to every kind of memory, every size', async (from) => {
      const pair = await fixture.pair(kind);
      const { one, two, ab, ba } = pair;
      for (const to of kinds) {
        const sizes = from === 'bytes' || to === 'gaudi' ? SIZES : [8, 8249, 100_000];
        for (const byteLength of sizes) {
          const [source, target] = [memoryOf(one, from, byteLength + 9), memoryOf(two, to, byteLength + 9)];
          const sent = pattern(byteLength + 9, byteLength);
          const after = new Uint8Array(byteLength + 9).fill(3);
          await fill(one, source, sent);
          await fill(two, target, after);
          const send = ab.streamSendNbx(source, 4, byteLength, KEEP);
          const receive = asRequest(ba.streamRecvNbx(target, 5, byteLength, { ...KEEP, waitAll: true }));
          await driveUntil(pair, () => receive.isCompleted && (typeof send === 'number' || send.isCompleted));
          const what = `${from} to ${to}, ${byteLength} bytes`;
          expect([what, receive.status, receive.receivedBytes]).toEqual([what, Status.OK, byteLength]);
          receive.free();
          if (typeof send !== 'number') {
            expect([what, send.status, send.transport]).toEqual([what, Status.OK, expect.any(String)]);
            send.free();
          }
          after.set(sent.subarray(4, 4 + byteLength), 5);
          await expectContents(two, target, after, what);
          unmap(one, source);
          unmap(two, target);
        }
      }
    });

    it('receive no bytes at once, in their turn', async () => {
      const pair = await fixture.pair(kind);
      const { ab, ba } = pair;
      const none = new Uint8Array(0);
      for (const waitAll of [true, false]) expect(await ba.streamRecv(none, { waitAll })).toBe(0);
      const [byte, rest] = [new Uint8Array(1), new Uint8Array(2)];
      const receives = Promise.all([ba.streamRecv(byte), ba.streamRecv(none), ba.streamRecv(rest, { waitAll: true })]);
      await ab.streamSend(Uint8Array.of(1, 2, 3));
      expect([await receives, byte[0], ...rest]).toEqual([[1, 0, 2], 1, 2, 3]);
    });

    it('keep the order of bytes for any pieces of both ends', async () => {
      const pair = await fixture.pair(kind);
      const { one, two, ab, ba } = pair;
      const random = createRandom(kind.name.length);
      const TOTAL = 400_000;
      const bytes = pattern(TOTAL, 1);
      const got = new Uint8Array(TOTAL);
      const size = (): number => 1 + Math.floor((random.below(1000) / 1000) ** 4 * 60_000);
      const sends = async (): Promise<void> => {
        for (let at = 0; at < TOTAL; ) {
          const byteLength = Math.min(size(), TOTAL - at);
          const memory = memoryOf(one, kinds[at % kinds.length]!, byteLength);
          await fill(one, memory, bytes.subarray(at, at + byteLength));
          await ab.streamSend(memory);
          unmap(one, memory);
          at += byteLength;
        }
      };
      const receives = async (): Promise<void> => {
        for (let at = 0, round = 0; at < TOTAL; round++) {
          const room = Math.min(size(), TOTAL - at);
          const memory = memoryOf(two, kinds[(room + 1) % kinds.length]!, room);
          const waitAll = round % 3 === 0;
          const received = await ba.streamRecv(memory, { waitAll });
          expect(received).toBeGreaterThan(0);
          if (waitAll) expect(received).toBe(room);
          got.set((await contents(two, memory)).subarray(0, received), at);
          unmap(two, memory);
          at += received;
        }
      };
      await serving(pair, () => Promise.all([sends(), receives()]));
      expectSame(got, bytes);
    });

    it('return available bytes, at least one, and fill the memory only on request', async () => {
      const pair = await fixture.pair(kind);
      const { ab, ba } = pair;
      const target = new Uint8Array(100);
      const some = asRequest(ba.streamRecvNbx(target, 0, 100));
      const all = asRequest(ba.streamRecvNbx(target, 50, 20, { waitAll: true }));
      await driveIdle(pair, 100);
      expect([some.isCompleted, all.isCompleted]).toEqual([false, false]);
      await ab.streamSend(pattern(7, 1));
      await driveUntil(pair, () => some.isCompleted);
      expect([some.status, some.receivedBytes]).toEqual([Status.OK, 7]);
      await ab.streamSend(pattern(19, 2));
      await driveIdle(pair, 100);
      expect(all.isCompleted).toBe(false);
      await ab.streamSend(pattern(5, 3));
      await driveUntil(pair, () => all.isCompleted);
      expect([all.status, all.receivedBytes]).toEqual([Status.OK, 20]);
      some.free();
      all.free();
      expectSame(target.subarray(0, 7), pattern(7, 1));
      expectSame(target.subarray(50, 69), pattern(19, 2));
      expect(target[69]).toBe(pattern(5, 3)[0]);
      // The rest, without a copy.
      const rest: number[] = [];
      for (let data = ba.streamRecvData(); data !== undefined; data = ba.streamRecvData()) rest.push(...data);
      expect(rest).toEqual([...pattern(5, 3).subarray(1)]);
      expect(ba.streamRecvData()).toBeUndefined();
    });

    it('use memory of data again that the program gives back, and no other', async () => {
      const pair = await fixture.pair(kind);
      const { ab, ba } = pair;
      const sent = pattern(300_000, 5);
      const kept: [Uint8Array, number][] = [];
      let count = 0;
      for (let round = 0; round < 3; round++) {
        const send = ab.streamSendNbx(sent, 0, sent.byteLength, KEEP);
        let at = 0;
        await driveUntil(pair, () => {
          for (let data = ba.streamRecvData(); data !== undefined; data = ba.streamRecvData()) {
            expectSame(data, sent.subarray(at, at + data.byteLength));
            // Every third is kept; one that was transferred to a thread is given back all the same, and all of them twice.
            const index = count++ % 3;
            if (index === 0) kept.push([data, at]);
            at += data.byteLength;
            if (index === 1) structuredClone(data, { transfer: [data.buffer as ArrayBuffer] });
            if (index > 0) for (let i = 0; i < 2; i++) ba.streamDataRelease(data);
          }
          return at === sent.byteLength;
        });
        const request = asRequest(send);
        await driveUntil(pair, () => request.isCompleted);
        request.free();
      }
      for (const [data, at] of kept) expectSame(data, sent.subarray(at, at + data.byteLength));
      const own = pattern(100_000, 6);
      ba.streamDataRelease(own);
      await ab.streamSend(sent);
      await driveUntil(pair, () => ba.streamRecvData() !== undefined);
      expectSame(own, pattern(100_000, 6));
      expect(() => ba.streamDataRelease('data' as never)).toThrow(
        expect.objectContaining({ code: 'ERR_INVALID_PARAM', message: expect.stringContaining('data') }),
      );
      await driveIdle(pair, 300);
      while (ba.streamRecvData() !== undefined);
    });

    it('accept lists of pieces at both ends', async () => {
      const pair = await fixture.pair(kind);
      const { one, two, ab, ba } = pair;
      const message = pattern(30_005, 9);
      const parts: IovPiece[] = [];
      for (const [i, [from, to]] of [
        [0, 5],
        [5, 5],
        [5, 20_000],
        [20_000, 30_005],
      ].entries()) {
        const memory = memoryOf(one, kinds.at(-1 - (i % 2))!, 30_005);
        await fill(one, memory, message);
        parts.push({ memory, offset: from!, byteLength: to! - from! });
      }
      const targets = [memoryOf(two, 'bytes', 10), memoryOf(two, kinds.at(-1)!, 29_995)];
      await serving(pair, () =>
        Promise.all([
          ab.streamSend(parts),
          ba.streamRecv(
            targets.map((memory) => ({ memory })),
            { waitAll: true },
          ),
        ]),
      );
      await expectContents(two, targets[0]!, message.subarray(0, 10));
      await expectContents(two, targets[1]!, message.subarray(10));
      unmap(one, ...parts.map(({ memory }) => memory));
      unmap(two, ...targets);
    });

    it('lose nothing when a receive is cancelled', async () => {
      const pair = await fixture.pair(kind);
      const { ab, ba } = pair;
      const abort = new AbortController();
      const given = new Uint8Array(8);
      const awaited = ba.streamRecv(given, { signal: abort.signal });
      const request = asRequest(ba.streamRecvNbx(given, 0, 8));
      expect(request.cancel()).toBe(true);
      expect(request.status).toBe(Status.CANCELED);
      request.free();
      abort.abort();
      await expect(awaited).rejects.toMatchObject({ name: 'AbortError' });
      await serving(pair, () => ab.streamSend(pattern(8, 1)));
      const target = new Uint8Array(8);
      await ba.streamRecv(target, { waitAll: true });
      expectSame(target, pattern(8, 1));
      expect(given).toEqual(new Uint8Array(8));
    });

    it('are looped over until the peer closes', async () => {
      const pair = await fixture.pair(kind);
      requires(!kind.isLoopback, 'two workers');
      const { ab, ba, two } = pair;
      const total = 300_000;
      const got: Uint8Array[] = [];
      const loop = (async () => {
        for await (const bytes of ba.stream()) got.push(bytes);
      })();
      for (let at = 0; at < total; at += 50_000) await ab.streamSend(pattern(50_000, at));
      await serving(pair, () => ab.close());
      await loop;
      expectSame(Buffer.concat(got), Buffer.concat([0, 1, 2, 3, 4, 5].map((i) => pattern(50_000, i * 50_000))));
      expect(ba.status).toBe(Status.CONNECTION_RESET);
      await ba.close();
      expect(two.worker.requestsInUse).toBe(0);
    });
  });
}
