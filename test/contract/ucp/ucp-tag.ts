/**
 * Tag matching over every kind of connection: all kinds of memory on both sides, sizes around every threshold, order, wildcards, probes, truncation,
 * cancellation, lists.
 */

import { describe, expect, it } from 'vitest';
import { type Request, type RequestCallback, Status, TAG_MASK_FULL } from '../../../src/index.ts';
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
  type Pair,
  pattern,
  unmap,
  usePairs,
} from '../../fixtures/pair.ts';

/** Sizes around a frame of posix (112 bytes, of which 16 are the header), a segment (8256) and a fragment (512 KiB). */
const SIZES = [0, 1, 7, 8, 95, 96, 97, 113, 1025, 8191, 8239, 8240, 8241, 8257, 65_536, 524_287, 524_289, 3_000_001];
const HOST_SIZES = [8, 97, 8240, 8241, 65_536];
const GAUDI_SIZES = [0, 1, 8, 97, 8240, 8241, 524_287, 524_289, 1_100_003];
const OFFSET = 3;
const MARGIN = 32;
/** The operation is a request even if it ends at once. */
const KEEP = { noImmediateCompletion: true };

/** A callback that records the results of requests, which are not freed. */
class Ended {
  readonly list: [unknown, Status][] = [];
  readonly callback: RequestCallback = (request, status) => {
    this.list.push([request.userData, status]);
  };
}

const asRequest = (result: Status | Request): Request => {
  if (typeof result === 'number') expect.fail(`the operation ended at once with ${result}`);
  return result;
};

/** Declares the tests of tag matching over a kind of connection. */
export function tagMatchingContract(kind: ConnectionKind): void {
  describe(`tag matching over '${kind.name}'`, () => {
    const fixture = usePairs(kind);
    const kinds = memoryKinds(kind);

    /** Sends and receives one message between memories that are larger than it. */
    const exchange = async (
      pair: Pair,
      [from, to]: readonly [(typeof kinds)[number], (typeof kinds)[number]],
      byteLength: number,
      when: 'expected' | 'unexpected',
    ): Promise<void> => {
      const { one, two, ab } = pair;
      const [source, target] = [memoryOf(one, from, byteLength + MARGIN), memoryOf(two, to, byteLength + MARGIN)];
      const sent = pattern(byteLength + MARGIN, byteLength);
      const before = pattern(byteLength + MARGIN, byteLength + 1);
      await fill(one, source, sent);
      await fill(two, target, before);
      const tag = 0xfedc_ba98_7654_3210n;
      const startReceive = (): Request =>
        asRequest(two.worker.tagRecvNbx(target, OFFSET, byteLength + 2, tag, TAG_MASK_FULL, KEEP));
      const early = when === 'expected' ? startReceive() : undefined;
      const send = asRequest(ab.tagSendNbx(source, OFFSET + 1, byteLength, tag, KEEP));
      if (when === 'unexpected') await driveUntil(pair, () => two.worker.tagProbe(tag) !== undefined);
      const receive = early ?? startReceive();
      await driveUntil(pair, () => send.isCompleted && receive.isCompleted);
      const what = `${from} to ${to}, ${byteLength} bytes, ${when}`;
      expect([what, send.status, receive.status]).toEqual([what, Status.OK, Status.OK]);
      expect([receive.senderTag, receive.receivedBytes]).toEqual([tag, byteLength]);
      expect(send.protocol).toMatch(/^tag\//);
      if (byteLength > 0) expect(send.transport).toEqual(expect.any(String));
      // Only the native engine reports the device.
      if (byteLength > 0 && kind.engine === undefined) expect(send.device).toEqual(expect.any(String));
      send.free();
      receive.free();
      before.set(sent.subarray(OFFSET + 1, OFFSET + 1 + byteLength), OFFSET);
      await expectContents(two, target, before, what);
      await expectContents(one, source, sent, `source of ${what}`);
      unmap(one, source);
      unmap(two, target);
    };

    describe.each(kinds)('from %s', (from) => {
      it.each(kinds)('to %s: every size, expected and unexpected', async (to) => {
        const pair = await fixture.pair(kind);
        const isHost = from !== 'gaudi' && to !== 'gaudi';
        const isPlain = from === 'bytes' && to === 'bytes';
        for (const byteLength of isPlain ? SIZES : isHost ? HOST_SIZES : GAUDI_SIZES) {
          await exchange(pair, [from, to], byteLength, 'expected');
          await exchange(pair, [from, to], byteLength, 'unexpected');
        }
        expect(pair.one.worker.requestsInUse + pair.two.worker.requestsInUse).toBe(0);
      });
    });

    it('keeps the order of messages of one tag, whatever their length', async () => {
      const pair = await fixture.pair(kind);
      const { two, ab } = pair;
      const lengths = [10, 100_000, 0, 9000, 50, 8240, 700_000, 96, 97, 1];
      const ended = new Ended();
      const sources = lengths.map((byteLength, i) => pattern(byteLength, i));
      for (const source of sources) {
        const result = ab.tagSendNbx(source, 0, source.byteLength, 7, { callback: (request) => request.free() });
        expect(typeof result === 'number' ? result : Status.OK).toBe(Status.OK);
      }
      await driveIdle(pair, 300);
      const targets = lengths.map(() => new Uint8Array(800_000));
      const receives = targets.map((target, userData) =>
        asRequest(
          two.worker.tagRecvNbx(target, 0, target.byteLength, 7, TAG_MASK_FULL, {
            noImmediateCompletion: true,
            callback: ended.callback,
            userData,
          }),
        ),
      );
      await driveUntil(pair, () => receives.every(({ isCompleted }) => isCompleted));
      for (const [i, receive] of receives.entries()) {
        expect([i, receive.receivedBytes]).toEqual([i, lengths[i]]);
        expectSame(targets[i]!.subarray(0, lengths[i]), sources[i]!, `message ${i}`);
        receive.free();
      }
      await driveUntil(pair, () => pair.one.worker.requestsInUse === 0);
    });

    it('matches by the bits of the mask: the earliest receive with the earliest message', async () => {
      const pair = await fixture.pair(kind);
      const { two, ab } = pair;
      const room = (): Uint8Array => new Uint8Array(8);
      const high = two.worker.tagRecv(room(), { tag: 0x8000_0001_0000_0000n, mask: 0xffff_ffff_0000_0000n });
      const any = two.worker.tagRecv(room(), { mask: 0n });
      const exact = two.worker.tagRecv(room(), { tag: 5 });
      await ab.tagSend(Uint8Array.of(1), { tag: 5n });
      await ab.tagSend(Uint8Array.of(1, 2), { tag: 5n });
      await ab.tagSend(Uint8Array.of(1, 2, 3), { tag: 0x8000_0001_1234_5678n });
      expect(await any).toEqual({ senderTag: 5n, byteLength: 1 });
      expect(await exact).toEqual({ senderTag: 5n, byteLength: 2 });
      expect(await high).toEqual({ senderTag: 0x8000_0001_1234_5678n, byteLength: 3 });
      const fullTag = 0xffff_ffff_ffff_ffffn;
      await ab.tagSend(Uint8Array.of(1, 2, 3, 4), { tag: 17 });
      await ab.tagSend(Uint8Array.of(1, 2), { tag: fullTag });
      await ab.tagSend(Uint8Array.of(1), { tag: fullTag });
      await driveUntil(pair, () => two.worker.tagProbe(17) !== undefined);
      const odd = await two.worker.tagRecv(room(), { tag: 2n ** 63n, mask: 2n ** 63n });
      expect(odd).toEqual({ senderTag: fullTag, byteLength: 2 });
      expect(await two.worker.tagRecv(room(), { mask: 0 })).toEqual({ senderTag: 17n, byteLength: 4 });
      expect(await two.worker.tagRecv(room(), { tag: 1, mask: 1 })).toEqual({ senderTag: fullTag, byteLength: 1 });
    });

    it.each([20, 5000, 200_000])('probes a message of %i bytes, removes it and receives it', async (byteLength) => {
      const pair = await fixture.pair(kind);
      const { two, ab } = pair;
      const source = pattern(byteLength, 4);
      expect(two.worker.tagProbe(0, 0)).toBeUndefined();
      const sent = [1, 2].map((tag) => ab.tagSend(source, { tag }));
      await driveUntil(pair, () => two.worker.tagProbe(2) !== undefined);
      const seen = two.worker.tagProbe(1);
      expect(seen).toMatchObject({ senderTag: 1n, byteLength });
      expect(two.worker.tagProbe(9)).toBeUndefined();
      // A message that was not removed is found again.
      expect(two.worker.tagProbe(0, 0)).toMatchObject({ senderTag: 1n });
      const taken = two.worker.tagProbe(1, TAG_MASK_FULL, true)!;
      expect(two.worker.tagProbe(1)).toBeUndefined();
      const target = new Uint8Array(byteLength + MARGIN);
      expect(() => two.worker.tagMessageRecvNbx(target, 0, byteLength, seen!)).toThrow(
        expect.objectContaining({ code: 'ERR_INVALID_PARAM' }),
      );
      const receive = asRequest(two.worker.tagMessageRecvNbx(target, 7, byteLength, taken, KEEP));
      await driveUntil(pair, () => receive.isCompleted);
      expect([receive.status, receive.receivedBytes, receive.senderTag]).toEqual([Status.OK, byteLength, 1n]);
      receive.free();
      expectSame(target.subarray(7, 7 + byteLength), source);
      expect(() => two.worker.tagMessageRecvNbx(target, 0, byteLength, taken)).toThrow(
        expect.objectContaining({ code: 'ERR_INVALID_PARAM' }),
      );
      await two.worker.tagRecv(target, { tag: 2 });
      await Promise.all(sent);
      expectSame(target.subarray(0, byteLength), source);
    });

    it.each([20, 5000, 600_000])(
      'truncates a message of %i bytes and writes nothing out of bounds',
      async (byteLength) => {
        const pair = await fixture.pair(kind);
        const { one, two, ab } = pair;
        const [first, last] = [kinds[0]!, kinds.at(-1)!];
        const before = pattern(byteLength + MARGIN, 8);
        const message = pattern(byteLength, 9);
        for (const [from, to] of new Set([[first, first] as const, [first, last] as const, [last, last] as const])) {
          const source = memoryOf(one, from, byteLength);
          const target = memoryOf(two, to, byteLength + MARGIN);
          await fill(one, source, message);
          for (const room of [0, 1, byteLength - 1]) {
            await fill(two, target, before);
            const receive = asRequest(two.worker.tagRecvNbx(target, 5, room, 1, TAG_MASK_FULL, KEEP));
            const send = asRequest(ab.tagSendNbx(source, 0, byteLength, 1, KEEP));
            await driveUntil(pair, () => send.isCompleted && receive.isCompleted);
            const what = `${from} to ${to}, room for ${room}`;
            expect([what, send.status, receive.status]).toEqual([what, Status.OK, Status.MESSAGE_TRUNCATED]);
            send.free();
            receive.free();
            const held = await contents(two, target);
            expectSame(held.subarray(0, 5), before.subarray(0, 5), `before ${what}`);
            expectSame(held.subarray(5 + room), before.subarray(5 + room), `behind ${what}`);
          }
          unmap(one, source);
          unmap(two, target);
        }
        const awaited = two.worker.tagRecv(new Uint8Array(3), { tag: 2 });
        const refused = expect(awaited).rejects.toMatchObject({
          code: 'ERR_MESSAGE_TRUNCATED',
          status: Status.MESSAGE_TRUNCATED,
        });
        await ab.tagSend(message, { tag: 2 });
        await refused;
      },
    );

    it.each([0, 8, 5000, 100_000])(
      'ends a synchronous send of %i bytes when a receive has matched it',
      async (byteLength) => {
        const pair = await fixture.pair(kind);
        const { two, ab } = pair;
        const source = pattern(byteLength, 3);
        const send = asRequest(ab.tagSendSyncNbx(source, 0, byteLength, 4));
        await driveUntil(pair, () => two.worker.tagProbe(4) !== undefined);
        await driveIdle(pair, 500);
        expect(send.isCompleted).toBe(false);
        const target = new Uint8Array(byteLength);
        const received = two.worker.tagRecv(target, { tag: 4 });
        await driveUntil(pair, () => send.isCompleted);
        expect(send.status).toBe(Status.OK);
        send.free();
        expect(await received).toEqual({ senderTag: 4n, byteLength });
        expectSame(target, source);
        // The receive first.
        const [sent] = await Promise.all([ab.tagSendSync(source, { tag: 4 }), two.worker.tagRecv(target, { tag: 4 })]);
        expect(sent.byteLength).toBe(byteLength);
      },
    );

    it('cancels unmatched receives, and no others', async () => {
      const pair = await fixture.pair(kind);
      const { two, ab } = pair;
      const ended = new Ended();
      const targets = [0, 1, 2].map(() => new Uint8Array(4));
      const requests = targets.map((target, userData) =>
        asRequest(
          two.worker.tagRecvNbx(target, 0, 4, 6, userData === 1 ? 0n : TAG_MASK_FULL, {
            callback: ended.callback,
            userData,
          }),
        ),
      );
      expect(requests[0]!.cancel()).toBe(true);
      expect(requests[1]!.cancel()).toBe(true);
      expect(requests[1]!.cancel()).toBe(false);
      expect(ended.list).toEqual([
        [0, Status.CANCELED],
        [1, Status.CANCELED],
      ]);
      await ab.tagSend(Uint8Array.of(9, 9, 9, 9), { tag: 6 });
      await driveUntil(pair, () => requests[2]!.isCompleted);
      expect(requests[2]!.cancel()).toBe(false);
      expect(requests.map(({ status }) => status)).toEqual([Status.CANCELED, Status.CANCELED, Status.OK]);
      for (const request of requests) request.free();
      expect(targets.map((target) => target[0])).toEqual([0, 0, 9]);
      // An awaited receive is cancelled by its signal; a later message matches the next receive.
      const abort = new AbortController();
      const awaited = two.worker.tagRecv(targets[0]!, { tag: 6, signal: abort.signal });
      abort.abort();
      await expect(awaited).rejects.toMatchObject({ name: 'AbortError' });
      await ab.tagSend(Uint8Array.of(7, 7, 7, 7), { tag: 6 });
      await two.worker.tagRecv(targets[1]!, { tag: 6 });
      expect([targets[0]![0], targets[1]![0]]).toEqual([0, 7]);
    });

    it('sends and receives lists of pieces, empty ones among them, across fragments', async () => {
      const pair = await fixture.pair(kind);
      const { one, two, ab } = pair;
      for (const lengths of [
        [1, 2, 3],
        [100, 0, 7000, 3],
        [300_000, 1, 0, 524_288, 9, 200_001],
      ]) {
        const total = lengths.reduce((sum, length) => sum + length, 0);
        const message = pattern(total, total);
        const sources = await Promise.all(
          lengths.map(async (byteLength, i) => {
            const memory = memoryOf(one, kinds[i % kinds.length]!, byteLength + 9);
            const start = lengths.slice(0, i).reduce((sum, length) => sum + length, 0);
            const bytes = new Uint8Array(byteLength + 9);
            bytes.set(message.subarray(start, start + byteLength), i);
            await fill(one, memory, bytes);
            return { memory, offset: i, byteLength };
          }),
        );
        // The same bytes into pieces with other boundaries, with unused capacity.
        const rooms = [...lengths].reverse().map((length) => length + 1);
        const targets = rooms.map((byteLength, i) => ({
          memory: memoryOf(two, kinds[(i + 1) % kinds.length]!, byteLength + 9),
          offset: 4,
          byteLength,
        }));
        for (const { memory } of targets) await fill(two, memory, new Uint8Array(memory.byteLength).fill(0xee));
        const [, received] = await Promise.all([
          ab.tagSend(sources, { tag: 3 }),
          two.worker.tagRecv(targets, { tag: 3 }),
        ]);
        expect(received).toEqual({ senderTag: 3n, byteLength: total });
        let at = 0;
        for (const [i, { memory, offset, byteLength }] of targets.entries()) {
          const expected = new Uint8Array(memory.byteLength).fill(0xee);
          const part = message.subarray(at, at + byteLength);
          expected.set(part, offset);
          at += part.byteLength;
          await expectContents(two, memory, expected, `piece ${i} of ${total} bytes`);
        }
        unmap(one, ...sources.map(({ memory }) => memory));
        unmap(two, ...targets.map(({ memory }) => memory));
      }
      await Promise.all([ab.tagSend([], { tag: 1 }), two.worker.tagRecv([], { tag: 1 })]);
    });

    it('has thousands of messages in flight', async () => {
      const pair = await fixture.pair(kind);
      const { one, two, ab } = pair;
      const COUNT = 2000;
      const sources = Array.from({ length: COUNT }, (_, i) => pattern((i * 37) % 300, i));
      const targets = sources.map(() => new Uint8Array(300));
      const lengths = new Array<number>(COUNT).fill(-1);
      const failed: Status[] = [];
      // Half of the receives are posted before, in another order than the sends; the others after.
      const receive = (i: number): void => {
        const callback: RequestCallback = (request, status) => {
          if (status !== Status.OK) failed.push(status);
          lengths[i] = request.receivedBytes;
          request.free();
        };
        const result = two.worker.tagRecvNbx(targets[i]!, 0, 300, i, TAG_MASK_FULL, {
          callback,
          noImmediateCompletion: true,
        });
        if (typeof result === 'number') failed.push(result);
      };
      for (let i = COUNT - 1; i >= 0; i -= 2) receive(i);
      for (let i = 0; i < COUNT; i++) {
        const result = ab.tagSendNbx(sources[i]!, 0, sources[i]!.byteLength, i, {
          callback: (request) => request.free(),
        });
        if (typeof result === 'number' && result !== Status.OK) failed.push(result);
      }
      for (let i = 0; i < COUNT; i += 2) receive(i);
      await driveUntil(pair, () => one.worker.requestsInUse + two.worker.requestsInUse === 0);
      expect(failed).toEqual([]);
      for (let i = 0; i < COUNT; i++) {
        expect(lengths[i]).toBe(sources[i]!.byteLength);
        expectSame(targets[i]!.subarray(0, lengths[i]), sources[i]!, `message ${i}`);
      }
    });

    it('refuses invalid tags, memory and ranges', async () => {
      const pair = await fixture.pair(kind);
      const { two, ab } = pair;
      const bytes = new Uint8Array(8);
      const invalid = expect.objectContaining({ code: 'ERR_INVALID_PARAM' });
      for (const tag of [-1, 1.5, -1n, 2n ** 64n, 2 ** 53, Number.NaN, '1' as unknown as number]) {
        expect(() => ab.tagSendNbx(bytes, 0, 8, tag)).toThrow(invalid);
        expect(() => ab.tagSendSyncNbx(bytes, 0, 8, tag)).toThrow(invalid);
        expect(() => two.worker.tagRecvNbx(bytes, 0, 8, tag)).toThrow(invalid);
        expect(() => two.worker.tagRecvNbx(bytes, 0, 8, 0, tag)).toThrow(invalid);
        expect(() => two.worker.tagProbe(tag)).toThrow(invalid);
      }
      for (const [offset, byteLength] of [
        [0, 9],
        [1, 8],
        [-1, 1],
        [0, -1],
        [0.5, 1],
        [9, 0],
      ] as const) {
        expect(() => ab.tagSendNbx(bytes, offset, byteLength, 0)).toThrow(invalid);
        expect(() => two.worker.tagRecvNbx(bytes, offset, byteLength, 0)).toThrow(invalid);
      }
      const text = 'text' as unknown as Uint8Array;
      expect(() => ab.tagSendNbx(text, 0, 1, 0)).toThrow(invalid);
      expect(() => two.worker.tagRecvNbx(text, 0, 1, 0)).toThrow(invalid);
      expect(() => ab.tagSendNbx([{ memory: text }], 0, 0, 0)).toThrow(invalid);
      expect(() => ab.tagSendNbx([{ memory: bytes, offset: 4, byteLength: 5 }], 0, 0, 0)).toThrow(invalid);
      expect(() => ab.tagSendNbx(new Array(1025).fill({ memory: bytes }), 0, 0, 0)).toThrow(invalid);
      expect(pair.one.worker.requestsInUse + two.worker.requestsInUse).toBe(0);
    });
  });
}

/** Declares the tests of messages with two fragments over a kind of connection. */
export function twoFragmentsContract(kind: ConnectionKind): void {
  describe(`two fragments over '${kind.name}'`, () => {
    const fixture = usePairs(kind);

    it('suffice for concurrent messages in both directions', async () => {
      const BYTES = 400_000;
      const pair = await fixture.pair(kind, { UCX_RNDV_FRAG_SIZE: '64k', UCX_RNDV_FRAG_ALLOC_COUNT: '2' });
      const { one, two, ab, ba } = pair;
      const numbers = [0, 1, 2, 3, 4, 5];
      const memoriesOf = (side: typeof one, host: number) =>
        numbers.map((number) => memoryOf(side, number % 3 === host ? 'bytes' : 'gaudi', BYTES));
      const sources = [memoriesOf(one, 0), memoriesOf(two, 1)] as const;
      const targets = [memoriesOf(two, 2), memoriesOf(one, 3)] as const;
      for (const number of numbers) {
        await fill(one, sources[0][number]!, pattern(BYTES, number));
        await fill(two, sources[1][number]!, pattern(BYTES, 50 + number));
      }
      await Promise.all([
        ...sources[0].map((memory, i) => ab.tagSend(i % 2 === 0 ? memory : [{ memory }], { tag: i })),
        ...sources[1].map((memory, i) => ba.tagSend(memory, { tag: 100 + i })),
        ...targets[0].map((memory, i) => two.worker.tagRecv(memory, { tag: i })),
        ...targets[1].map((memory, i) => one.worker.tagRecv(i % 2 === 0 ? memory : [{ memory }], { tag: 100 + i })),
      ]);
      for (const number of numbers) {
        await expectContents(two, targets[0][number]!, pattern(BYTES, number));
        await expectContents(one, targets[1][number]!, pattern(BYTES, 50 + number));
      }
    });
  });
}
