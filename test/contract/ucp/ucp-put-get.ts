/**
 * Put and get over every kind of connection: all kinds of memory on both sides, sizes around every threshold, odd offsets; the protocols that
 * requests and
 * explain() report.
 */

import { describe, expect, it } from 'vitest';
import { type ChosenProtocol, type MemoryHandle, type RemoteKey, Status } from '../../../src/index.ts';
import {
  type ConnectionKind,
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

/** Sizes around a short put, the frames of posix (8256 bytes), and the fragments of staging (512 KiB). */
const SIZES = [1, 7, 8, 64, 1023, 1024, 1025, 8208, 8232, 8257, 65_536, 524_287, 524_289, 1_500_001];
const HOST_SIZES = [1, 8, 1025, 8257, 600_000];
const LOCAL_OFFSET = 5;
const REMOTE_OFFSET = 9;
const MARGIN = 24;
const KEEP = { noImmediateCompletion: true };

function rowFor(rows: readonly ChosenProtocol[], byteLength: number): ChosenProtocol {
  const row = rows.find(({ bytesMin, bytesMax }) => bytesMin <= byteLength && byteLength <= bytesMax);
  if (row === undefined) expect.fail(`nothing is chosen for ${byteLength} bytes`);
  return row;
}

function byMessages({ protocol }: ChosenProtocol): boolean {
  return protocol.endsWith('/am');
}

/** Declares the tests of put and get over a kind of connection. */
export function putGetContract(kind: ConnectionKind): void {
  describe(`put and get over '${kind.name}'`, () => {
    const fixture = usePairs(kind);
    const kinds = memoryKinds(kind);
    const remoteKinds = kinds.filter((memory) => memory !== 'bytes');

    const transfer = async (
      pair: Pair,
      operation: 'put' | 'get',
      [localKind, remoteKind]: readonly [MemoryKind, Exclude<MemoryKind, 'bytes'>],
      byteLength: number,
    ): Promise<void> => {
      const { one, two, ab } = pair;
      const local = memoryOf(one, localKind, byteLength + MARGIN);
      const remote = mappedOf(two, remoteKind, byteLength + MARGIN);
      const rkey = keyFor(ab, two, remote);
      const [here, there] = [pattern(byteLength + MARGIN, byteLength), pattern(byteLength + MARGIN, byteLength + 1)];
      await fill(one, local, here);
      await fill(two, remote, there);
      const what = `${operation} of ${byteLength} bytes, ${localKind} and remote ${remoteKind}`;
      const request = ab[`${operation}Nbx`](local, LOCAL_OFFSET, byteLength, rkey, REMOTE_OFFSET, KEEP);
      if (typeof request === 'number') expect.fail(`${what} ended with ${request}`);
      await driveUntil(pair, () => request.isCompleted);
      expect([what, request.status]).toEqual([what, Status.OK]);
      if (kind.engine === undefined) {
        const row = rowFor(ab.explain(operation, local, rkey).chosen, byteLength);
        // By messages: see below.
        if (!byMessages(row)) {
          expect([what, `${request.transport}/${request.device}`]).toEqual([what, row.transport]);
          expect([what, request.protocol]).toEqual([what, row.protocol]);
        } else {
          expect([what, request.transport]).toEqual([
            what,
            expect.stringMatching(/^(posix|cma|tcp|rc|gaudi_ipc|self)$/),
          ]);
        }
      }
      request.free();
      if (operation === 'put') {
        const flush = ab.flushNbx(KEEP);
        if (typeof flush === 'number') expect.fail(`flush ended with ${flush}`);
        await driveUntil(pair, () => flush.isCompleted);
        expect(flush.status).toBe(Status.OK);
        flush.free();
        there.set(here.subarray(LOCAL_OFFSET, LOCAL_OFFSET + byteLength), REMOTE_OFFSET);
      } else here.set(there.subarray(REMOTE_OFFSET, REMOTE_OFFSET + byteLength), LOCAL_OFFSET);
      await expectContents(two, remote, there, `remote memory of ${what}`);
      await expectContents(one, local, here, `local memory of ${what}`);
      rkey.release();
      unmap(one, local);
      unmap(two, remote);
    };

    describe.each(kinds)('local %s', (localKind) => {
      it.each(remoteKinds)('and remote %s: every size', async (remoteKind) => {
        const pair = await fixture.pair(kind);
        const isHost = localKind !== 'gaudi' && remoteKind !== 'gaudi';
        for (const byteLength of isHost && localKind !== 'bytes' ? HOST_SIZES : SIZES) {
          await transfer(pair, 'put', [localKind, remoteKind], byteLength);
          await transfer(pair, 'get', [localKind, remoteKind], byteLength);
        }
        expect(pair.one.worker.requestsInUse + pair.two.worker.requestsInUse).toBe(0);
      });
    });

    it('moves nothing for zero bytes', async () => {
      const pair = await fixture.pair(kind);
      const { two, ab } = pair;
      for (const remoteKind of remoteKinds) {
        const remote = mappedOf(two, remoteKind, 16);
        const rkey = keyFor(ab, two, remote);
        expect(ab.putNbx(new Uint8Array(4), 4, 0, rkey, 16)).toBe(Status.OK);
        expect(await ab.get(new Uint8Array(0), rkey)).toMatchObject({ byteLength: 0, transport: undefined });
        rkey.release();
      }
    });

    it('many at once, of every memory, then one flush', async () => {
      const pair = await fixture.pair(kind);
      const { one, two, ab } = pair;
      const COUNT = 300;
      const PLACE = 5000;
      const remotes: MemoryHandle[] = remoteKinds.map((memory) => mappedOf(two, memory, COUNT * PLACE));
      const rkeys: RemoteKey[] = remotes.map((remote) => keyFor(ab, two, remote));
      const expected = remotes.map(() => new Uint8Array(COUNT * PLACE));
      const failed: Status[] = [];
      for (const [i, remote] of remotes.entries()) await fill(two, remote, expected[i]!);
      for (let i = 0; i < COUNT; i++) {
        const at = i % remotes.length;
        const bytes = pattern(1 + ((i * 613) % PLACE), i);
        const result = ab.putNbx(bytes, 0, bytes.byteLength, rkeys[at]!, i * PLACE, {
          callback: (request, status) => {
            if (status !== Status.OK) failed.push(status);
            request.free();
          },
        });
        if (typeof result === 'number' && result !== Status.OK) failed.push(result);
        expected[at]!.set(bytes, i * PLACE);
      }
      await serving(pair, () => ab.flush());
      expect(failed).toEqual([]);
      expect(one.worker.requestsInUse).toBe(0);
      for (const [i, remote] of remotes.entries()) await expectContents(two, remote, expected[i]!);
      for (const rkey of rkeys) rkey.release();
    });

    it('refuses ranges beyond the memory, keys of other endpoints, and unmapped memory', async () => {
      const pair = await fixture.pair(kind);
      const { one, two, ab } = pair;
      const invalid = expect.objectContaining({ code: 'ERR_INVALID_PARAM' });
      for (const remoteKind of remoteKinds) {
        const remote = mappedOf(two, remoteKind, 64);
        const rkey = keyFor(ab, two, remote);
        const before = pattern(64, 6);
        await fill(two, remote, before);
        const local = new Uint8Array(64);
        for (const [localOffset, byteLength, remoteOffset] of [
          [0, 65, 0],
          [1, 64, 0],
          [0, 64, 1],
          [0, 1, 64],
          [0, 1, -1],
          [-1, 1, 0],
          [0, -1, 0],
          [0, 1, 2 ** 53],
          [0, 1.5, 0],
        ] as const) {
          expect(() => ab.putNbx(local, localOffset, byteLength, rkey, remoteOffset)).toThrow(invalid);
          expect(() => ab.getNbx(local, localOffset, byteLength, rkey, remoteOffset)).toThrow(invalid);
        }
        const other = one.worker.endpoint(two.worker.address());
        expect(() => other.putNbx(local, 0, 1, rkey, 0)).toThrow(invalid);
        await expectContents(two, remote, before);
        const held = mappedOf(one, remoteKind, 64);
        unmap(one, held);
        expect(() => ab.putNbx(held, 0, 1, rkey, 0)).toThrow(expect.objectContaining({ code: 'ERR_CLOSED' }));
        rkey.release();
        expect(() => ab.putNbx(local, 0, 1, rkey, 0)).toThrow(
          expect.objectContaining({ code: expect.stringMatching(/ERR_(CLOSED|INVALID_PARAM)/) }),
        );
        unmap(two, remote);
      }
    });

    it('by keys of memory that was unmapped fails and moves nothing', async () => {
      let pair = await fixture.pair(kind);
      for (const remoteKind of remoteKinds) {
        for (const byteLength of [8, 4000, 100_000]) {
          if (kind.refusalsEnd === true) pair = await fixture.pair(kind);
          const { two, ab } = pair;
          const remote = mappedOf(two, remoteKind, byteLength);
          const rkey = keyFor(ab, two, remote);
          const local = new Uint8Array(byteLength).fill(1);
          // A device that does not reach the memory refuses nothing: messages do, which end no connection.
          const isEnded =
            kind.refusalsEnd === true && !byMessages(rowFor(ab.explain('put', local, rkey).chosen, byteLength));
          unmap(two, remote);
          // Other memory at the same address.
          const next = mappedOf(two, remoteKind, byteLength);
          const before = pattern(byteLength, 3);
          await fill(two, next, before);
          const what = `${remoteKind} of ${byteLength} bytes`;
          await serving(pair, async () => {
            const failure = expect.objectContaining({ code: expect.stringMatching(/ERR_(INVALID_ADDR|RKEY_STALE)/) });
            await expect(ab.put(local, rkey), what).rejects.toEqual(failure);
            const reset = expect.objectContaining({ code: 'ERR_CONNECTION_RESET' });
            await expect(ab.get(local, rkey), what).rejects.toEqual(isEnded ? reset : failure);
          });
          await expectContents(two, next, before, what);
          expectSame(local, new Uint8Array(byteLength).fill(1), what);
          rkey.release();
          unmap(two, next);
        }
      }
    });
  });
}
