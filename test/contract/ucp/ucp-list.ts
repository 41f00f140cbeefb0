/** Lists of puts and gets, and notifications, over every kind of connection: any mix of memories, regular blocks, prepared lists, and errors that name an entry. */

import { describe, expect, it } from 'vitest';
import { type Notification, Status, type TransferEntry, UcxError } from '../../../src/index.ts';
import {
  type ConnectionKind,
  contents,
  driveIdle,
  driveUntil,
  expectContents,
  expectSame,
  fill,
  keyFor,
  type MemoryKind,
  mappedOf,
  memoryKinds,
  memoryOf,
  type Pair,
  pattern,
  serving,
  unmap,
  usePairs,
} from '../../fixtures/pair.ts';

const BLOCK = 1000;
const COUNT = 40;
const STRIDE = 1536;
const BYTES = COUNT * STRIDE;

/** Every second block of a memory, to the mirrored place of the other. */
const PLACES = Array.from({ length: COUNT / 2 }, (_, i) => ({
  offset: 2 * i * STRIDE + 3,
  remoteOffset: (COUNT - 1 - 2 * i) * STRIDE + 5,
  byteLength: BLOCK + i,
}));

/** The error that an operation is refused with. */
function refusal(run: () => unknown): UcxError {
  try {
    run();
  } catch (error) {
    if (error instanceof UcxError) return error;
    throw error;
  }
  return expect.fail('the operation was not refused');
}

/** The notifications that have been taken. */
function taking(pair: Pair): string[] {
  const taken: string[] = [];
  pair.two.worker.setNotificationHandler(({ bytes }) => taken.push(new TextDecoder().decode(bytes)));
  return taken;
}

const text = (value: string): Uint8Array => new TextEncoder().encode(value);

/** Declares the tests of lists over a kind of connection. */
export function listContract(kind: ConnectionKind): void {
  describe(`lists over '${kind.name}'`, () => {
    const fixture = usePairs(kind);
    const kinds = memoryKinds(kind);
    const remoteKinds = kinds.filter((memory): memory is Exclude<MemoryKind, 'bytes'> => memory !== 'bytes');

    it.each(['put', 'get'] as const)('%s the blocks of all memories at once', async (operation) => {
      const pair = await fixture.pair(kind);
      const { one, two, ab } = pair;
      const list: TransferEntry[] = [];
      const ends = kinds.flatMap((localKind) =>
        remoteKinds.map((remoteKind) => ({
          local: memoryOf(one, localKind, BYTES),
          remote: mappedOf(two, remoteKind, BYTES),
        })),
      );
      const expected = [];
      for (const [i, { local, remote }] of ends.entries()) {
        const [here, there] = [pattern(BYTES, i), pattern(BYTES, i + 77)];
        await fill(one, local, here);
        await fill(two, remote, there);
        expected.push({ here, there });
        const rkey = keyFor(ab, two, remote);
        for (const place of PLACES) {
          list.push({ local, rkey, ...place });
          const { offset, remoteOffset, byteLength } = place;
          if (operation === 'put') there.set(here.subarray(offset, offset + byteLength), remoteOffset);
          else here.set(there.subarray(remoteOffset, remoteOffset + byteLength), offset);
        }
      }
      // Entries of all memories in turns.
      const mixed = list.map((_, i) => list[(i * PLACES.length + Math.floor(i / ends.length)) % list.length]!);
      const result = await serving(pair, () => ab[`${operation}List`](mixed, { strict: true }));
      expect(result.byteLength).toBe(list.reduce((sum, { byteLength }) => sum + byteLength, 0));
      for (const [i, { local, remote }] of ends.entries()) {
        await expectContents(two, remote, expected[i]!.there, `remote memory ${i} of ${operation}`);
        await expectContents(one, local, expected[i]!.here, `local memory ${i} of ${operation}`);
      }
      for (const rkey of new Set(list.map((entry) => entry.rkey))) rkey.release();
      for (const { local, remote } of ends) {
        unmap(one, local);
        unmap(two, remote);
      }
      expect(pair.one.worker.requestsInUse + pair.two.worker.requestsInUse).toBe(0);
    });

    it('a prepared list moves again and again, whole or in part', async () => {
      const pair = await fixture.pair(kind);
      const { one, two, ab } = pair;
      for (const remoteKind of remoteKinds) {
        const local = mappedOf(one, remoteKind, BYTES);
        const remote = mappedOf(two, remoteKind, BYTES);
        const rkey = keyFor(ab, two, remote);
        const regular = { local, rkey, byteLength: 256, count: COUNT, localStride: 512, remoteStride: 1024 };
        const list = ab.prepareList('put', [regular]);
        expect(list).toMatchObject({ operation: 'put', blockCount: COUNT, byteLength: COUNT * 256 });
        const there = new Uint8Array(BYTES);
        await fill(two, remote, there);
        for (const blocks of [undefined, [COUNT - 1, 0, 7], Int32Array.of(3)]) {
          const here = pattern(BYTES, blocks?.length ?? 99);
          await fill(one, local, here);
          await serving(pair, () => ab.putList(list, { ...(blocks && { blocks }) }));
          for (const block of blocks ?? Array.from({ length: COUNT }, (_, i) => i)) {
            there.set(here.subarray(block * 512, block * 512 + 256), block * 1024);
          }
          await expectContents(two, remote, there, `remote ${remoteKind} memory`);
        }
        const kept = mappedOf(one, remoteKind, 256);
        const others = [kept, local].map((memory) => ({
          local: memory,
          rkey,
          byteLength: 256,
          remoteOffset: memory === kept ? 0 : 512,
        }));
        const mixed = ab.prepareList('put', others);
        unmap(one, local);
        expect(refusal(() => ab.putListNbx(mixed))).toMatchObject({ code: 'ERR_CLOSED', details: { entry: 1 } });
        rkey.release();
        expect(refusal(() => ab.putListNbx(list)).details).toMatchObject({ entry: 0 });
        unmap(one, kept);
        unmap(two, remote);
      }
    });

    it('a put of several pieces is one range of remote memory, and a get the other way round', async () => {
      const pair = await fixture.pair(kind);
      const { one, two, ab } = pair;
      const remote = mappedOf(two, 'allocated', 4096);
      const rkey = keyFor(ab, two, remote);
      const memories = kinds.map((memory) => memoryOf(one, memory, 600));
      const pieces = memories.map((memory, i) => ({ memory, offset: i, byteLength: 100 + i }));
      const bytes = pieces.reduce((sum, { byteLength }) => sum + byteLength, 0);
      const whole = pattern(bytes, 5);
      let at = 0;
      for (const { memory, offset, byteLength } of pieces) {
        const content = new Uint8Array(600);
        content.set(whole.subarray(at, at + byteLength), offset);
        at += byteLength;
        await fill(one, memory, content);
      }
      const result = await serving(pair, () => ab.put(pieces, rkey, { remoteOffset: 16 }));
      expect(result.byteLength).toBe(bytes);
      expectSame((await contents(two, remote)).subarray(16, 16 + bytes), whole);
      const target = memories.map((memory) =>
        memoryOf(one, memory instanceof Uint8Array ? 'bytes' : 'registered', 600),
      );
      const back = target.map((memory, i) => ({ memory, offset: 0, byteLength: pieces[i]!.byteLength }));
      await serving(pair, () => ab.get(back, rkey, { remoteOffset: 16 }));
      at = 0;
      for (const { memory, byteLength } of back) {
        expectSame((await contents(one, memory)).subarray(0, byteLength), whole.subarray(at, at + byteLength));
        at += byteLength;
      }
      rkey.release();
      unmap(one, ...memories, ...target);
      unmap(two, remote);
    });

    it('a list without blocks, or without bytes, ends at once', async () => {
      const pair = await fixture.pair(kind);
      const { one, two, ab } = pair;
      const remote = mappedOf(two, 'allocated', 64);
      const rkey = keyFor(ab, two, remote);
      expect(ab.putListNbx([])).toBe(Status.OK);
      expect(ab.getListNbx([{ local: new Uint8Array(8), rkey, byteLength: 0 }])).toBe(Status.OK);
      expect(ab.putListNbx([{ local: new Uint8Array(8), rkey, byteLength: 8, count: 0 }])).toBe(Status.OK);
      expect(await ab.putList([])).toMatchObject({ byteLength: 0, transport: undefined });
      expect(one.worker.requestsInUse).toBe(0);
      rkey.release();
      unmap(two, remote);
    });

    it('refuses a wrong entry before anything moves, and names it', async () => {
      const pair = await fixture.pair(kind);
      const { one, two, ab } = pair;
      const remote = mappedOf(two, 'allocated', 256);
      const rkey = keyFor(ab, two, remote);
      const stale = keyFor(ab, two, remote);
      stale.release();
      const unmapped = mappedOf(one, 'registered', 64);
      one.context.memUnmap(unmapped);
      const local = pattern(64, 1);
      const good: TransferEntry = { local, rkey, byteLength: 64 };
      const wrong: readonly [string, TransferEntry][] = [
        ['ERR_CLOSED', { local, rkey: stale, byteLength: 8 }],
        ['ERR_CLOSED', { local: unmapped, rkey, byteLength: 8 }],
        ['ERR_INVALID_PARAM', { local, rkey, byteLength: 65 }],
        ['ERR_INVALID_PARAM', { local, rkey, remoteOffset: 200, byteLength: 57 }],
        ['ERR_INVALID_PARAM', { local, rkey, byteLength: 8, count: 9 }],
        ['ERR_INVALID_PARAM', { local, rkey, byteLength: 8, count: 2, remoteStride: 249 }],
        ['ERR_INVALID_PARAM', { local, rkey, byteLength: -1 }],
        ['ERR_INVALID_PARAM', { local, rkey, byteLength: 8, count: 1.5 }],
        ['ERR_INVALID_PARAM', { local, rkey, byteLength: 8, offset: -1 }],
        ['ERR_INVALID_PARAM', { local, rkey, byteLength: 0, count: 2 ** 20 }],
        ['ERR_INVALID_PARAM', { local, rkey: {} as never, byteLength: 8 }],
        ['ERR_INVALID_PARAM', { local: 7 as never, rkey, byteLength: 8 }],
        ['ERR_INVALID_PARAM', { local, rkey, byteLength: 8, size: 3 } as never],
      ];
      for (const [code, entry] of wrong) {
        const error = refusal(() => ab.putListNbx([good, entry]));
        expect([entry, error.code, error.details['entry']]).toEqual([entry, code, 1]);
        expect(error.message).toMatch(/^entry 1 of the list: /);
      }
      const overlaps = [good, { local, rkey, remoteOffset: 63, byteLength: 2 }];
      expect(refusal(() => ab.putListNbx(overlaps, { strict: true })).details).toMatchObject({ entry: 1 });
      expect(refusal(() => ab.getListNbx([good, good], { strict: true })).details).toMatchObject({ entry: 1 });
      const again = keyFor(ab, two, remote);
      const twice = [good, { local, rkey: again, byteLength: 1 }];
      expect(refusal(() => ab.putListNbx(twice, { strict: true })).details).toMatchObject({ entry: 1 });
      again.release();
      // Another mapping of the second half.
      const host = new Uint8Array(64);
      const [whole, half] = [host, host.subarray(32)].map((buffer) => {
        const memory = two.context.memMap({ buffer });
        return { memory, key: keyFor(ab, two, memory) };
      });
      const beside = [whole!, half!].map(({ key }): TransferEntry => ({ local, rkey: key, byteLength: 32 }));
      const crossing = [beside[1]!, { ...beside[0]!, remoteOffset: 40, byteLength: 8 }];
      expect(refusal(() => ab.putListNbx(crossing, { strict: true })).details).toMatchObject({ entry: 1 });
      await serving(pair, () => ab.putList(beside, { strict: true }));
      expectSame(host, Buffer.concat([local.subarray(0, 32), local.subarray(0, 32)]));
      for (const { memory, key } of [whole!, half!]) {
        key.release();
        unmap(two, memory);
      }
      const views = [1, 0].map((at): TransferEntry => ({ local: local.subarray(at), rkey, byteLength: 8 }));
      expect(refusal(() => ab.getListNbx(views, { strict: true })).message).toMatch(/must not overlap entry/);
      expect(refusal(() => ab.putListNbx(7 as never)).code).toBe('ERR_INVALID_PARAM');
      expect(refusal(() => ab.putListNbx([good], { notify: new Uint8Array(4097) })).message).toMatch(
        /4097 bytes: at most 4096/,
      );
      expect(refusal(() => ab.getListNbx([good], { notify: new Uint8Array(1) })).message).toMatch(/notify/);
      expect(refusal(() => ab.putListNbx([good], { blocks: [0] })).message).toMatch(/blocks/);
      expect(refusal(() => ab.prepareList('both' as never, [good])).message).toMatch(/operation/);
      const kept = mappedOf(one, 'allocated', 64);
      const prepared = ab.prepareList('put', [{ ...good, local: kept }]);
      expect(refusal(() => ab.getListNbx(prepared)).message).toMatch(/prepared for get/);
      expect(refusal(() => ab.putListNbx(prepared, { blocks: [1] })).message).toMatch(/block indices below 1, got 1$/);
      await driveIdle(pair, 300);
      expectSame(await contents(two, remote), new Uint8Array(256));
      expect(one.worker.requestsInUse).toBe(0);
      rkey.release();
      unmap(one, kept);
      unmap(two, remote);
    });
  });
}

/** Declares the tests of notifications over a kind of connection. */
export function notificationContract(kind: ConnectionKind): void {
  describe(`notifications over '${kind.name}'`, () => {
    const fixture = usePairs(kind);
    const kinds = memoryKinds(kind);
    const remoteKinds = kinds.filter((memory): memory is Exclude<MemoryKind, 'bytes'> => memory !== 'bytes');

    it('come once, in order, and when every byte of their lists is visible', async () => {
      const pair = await fixture.pair(kind);
      const { one, two, ab } = pair;
      const remotes = remoteKinds.map((memory) => mappedOf(two, memory, BYTES));
      const rkeys = remotes.map((remote) => keyFor(ab, two, remote));
      const wanted: Uint8Array[] = [];
      const ROUNDS = 6;
      const SHORT = 64;
      const started: Promise<unknown>[] = [];
      const stop = new AbortController();
      await serving(pair, async () => {
        const arrived = two.worker.notifications({ signal: stop.signal });
        for (let round = 0; round < ROUNDS; round++) {
          // Long and short ones in turns: the short ones end first. They write other bytes: puts without a fence between them are not ordered.
          const place =
            round % 2 === 0
              ? { offset: SHORT, remoteOffset: SHORT, byteLength: BYTES - SHORT }
              : { offset: 0, remoteOffset: 0, byteLength: SHORT };
          const bytes = pattern(BYTES, round);
          wanted.push(bytes);
          started.push(
            ab.putList(
              rkeys.map((rkey) => ({ local: bytes, rkey, ...place })),
              { notify: text(`round ${round}`) },
            ),
          );
          if (round % 2 === 0) continue;
          for (const expected of [round - 1, round]) {
            const { value } = (await arrived.next()) as { value: Notification };
            expect(new TextDecoder().decode(value.bytes)).toBe(`round ${expected}`);
            expect(value.endpoint.status).toBe(Status.OK);
          }
          for (const remote of remotes) {
            const there = await contents(two, remote);
            expectSame(there.subarray(0, SHORT), wanted[round]!.subarray(0, SHORT), `round ${round}`);
            expectSame(there.subarray(SHORT), wanted[round - 1]!.subarray(SHORT), `round ${round - 1}`);
          }
        }
        await Promise.all(started);
      });
      expect(one.worker.requestsInUse + two.worker.requestsInUse).toBe(0);
      for (const rkey of rkeys) rkey.release();
      unmap(two, ...remotes);
    });

    it('come with a put, and alone', async () => {
      const pair = await fixture.pair(kind);
      const { one, two, ab } = pair;
      const taken = taking(pair);
      const remote = mappedOf(two, 'allocated', 4096);
      const rkey = keyFor(ab, two, remote);
      const bytes = pattern(4096, 3);
      await serving(pair, async () => {
        await Promise.all([
          ab.put(bytes, rkey, { notify: text('put') }),
          ab.notify(text('alone')),
          ab.notify(text('')),
        ]);
      });
      const longest = 'x'.repeat(4096);
      const nbx = ab.putNbx(bytes, 0, 8, rkey, 0, { notify: text(longest), noImmediateCompletion: true });
      if (typeof nbx === 'number') expect.fail(`the put ended with ${nbx}`);
      await driveUntil(pair, () => nbx.isCompleted && taken.length === 4);
      expect(nbx.status).toBe(Status.OK);
      nbx.free();
      expect(taken).toEqual(['put', 'alone', '', longest]);
      expectSame(await contents(two, remote), bytes);
      expect(one.worker.requestsInUse).toBe(0);
      rkey.release();
      unmap(two, remote);
    });

    it('with an id go to the handler of its active messages, and not to the notifications of the worker', async () => {
      const pair = await fixture.pair(kind);
      const { one, two, ab } = pair;
      const ID = 77;
      const taken = taking(pair);
      const remote = mappedOf(two, remoteKinds.at(-1)!, 20_000);
      const rkey = keyFor(ab, two, remote);
      const told: string[] = [];
      two.worker.setAmHandler(ID, ({ header, byteLength }) => {
        told.push(`${new TextDecoder().decode(header)} and ${byteLength} bytes`);
      });
      const bytes = pattern(20_000, 2);
      await serving(pair, async () => {
        await ab.put(bytes, rkey, { notify: text('put'), notifyId: ID });
        await ab.putList([{ local: bytes, rkey, byteLength: 8 }], { notify: text('list'), notifyId: ID });
        await ab.putList([{ local: bytes, rkey, byteLength: 8 }], { notify: text('of the worker') });
      });
      await driveUntil(pair, () => told.length === 2 && taken.length === 1);
      expect([told, taken]).toEqual([['put and 0 bytes', 'list and 0 bytes'], ['of the worker']]);
      expectSame(await contents(two, remote), bytes);
      for (const params of [
        { notifyId: ID },
        { notify: text('x'), notifyId: 65_536 },
        { notify: text('x'), notifyId: -1 },
      ]) {
        expect(refusal(() => ab.putNbx(bytes, 0, 8, rkey, 0, params)).code).toBe('ERR_INVALID_PARAM');
        await expect(ab.put(bytes, rkey, params)).rejects.toMatchObject({ code: 'ERR_INVALID_PARAM' });
      }
      expect(one.worker.requestsInUse).toBe(0);
      two.worker.setAmHandler(ID, undefined);
      rkey.release();
      unmap(two, remote);
    });

    it('are kept until a loop or a handler takes them', async () => {
      const pair = await fixture.pair(kind);
      const { two, ab } = pair;
      await serving(pair, async () => {
        await ab.notify(text('first'));
        await ab.notify(text('second'));
        const loop = two.worker.notifications();
        const { value } = await loop.next();
        expect(new TextDecoder().decode((value as Notification).bytes)).toBe('first');
        await loop.return();
      });
      const taken = taking(pair);
      await driveUntil(pair, () => taken.length === 1);
      expect(taken).toEqual(['second']);
      two.worker.setNotificationHandler(undefined);
      const stop = new AbortController();
      const waiting = two.worker.notifications({ signal: stop.signal }).next();
      stop.abort();
      await expect(waiting).rejects.toMatchObject({ name: 'AbortError' });
    });
  });
}
