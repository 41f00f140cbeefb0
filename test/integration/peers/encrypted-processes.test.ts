/**
 * Two processes over tcp with UCX_TCP_SECURITY=encrypt: every family of operations, in both directions, between host and device memory, with all
 * bytes compared. The end of such connections: encrypted-teardown.test.ts.
 */

import { crc32 } from 'node:zlib';
import { describe, expect, it } from 'vitest';
import { type Endpoint, Status } from '../../../src/index.ts';
import { IS_FULL } from '../../fixtures/extent.ts';
import { expectNoLeaks } from '../../fixtures/leak-check.ts';
import { expectSame, type MemoryKind, pattern } from '../../fixtures/pair.ts';
import {
  both,
  ConnectedProcesses,
  DIRECTIONS,
  ENCRYPTED,
  moveAll,
  ordered,
  roundTrip,
} from '../../fixtures/processes/process-ends.ts';

const BYTES = 2 ** 20;
const KINDS: readonly MemoryKind[] = ['bytes', 'registered', 'allocated', 'gaudi'];
/** In the gate: no device memory, and device memory at either end and at both. */
const PAIRS: readonly (readonly [MemoryKind, MemoryKind])[] = IS_FULL
  ? KINDS.flatMap((from) => KINDS.map((to) => [from, to] as const))
  : [
      ['allocated', 'registered'],
      ['bytes', 'gaudi'],
      ['gaudi', 'bytes'],
      ['gaudi', 'gaudi'],
    ];
/** One frame, a few frames, and a rendezvous through two fragments. */
const SIZES: readonly number[] = IS_FULL ? [1, 8, 300, 8240, 65_537, 524_288, 2_000_003] : [8, 9000, 530_001];

describe('two processes with encryption', { timeout: 60_000 }, () => {
  expectNoLeaks();
  const processes = new ConnectedProcesses(ENCRYPTED);

  it('exchange messages, put, get and count, with all bytes compared', async () => {
    await processes.open(async (context, worker, peer) => {
      const errors: Status[] = [];
      const endpoint: Endpoint = worker.endpoint(peer.address, { onError: (_endpoint, status) => errors.push(status) });
      const connected = peer.ask({ do: 'connect', address: Buffer.from(worker.address()).toString('hex') });
      await endpoint.tagSend(Uint8Array.of(1), { tag: 1 });
      await worker.tagRecv(new Uint8Array(1), { tag: 1 });
      await connected;
      // Tagged messages of every protocol in one direction, and one back.
      const lengths = [BYTES, BYTES - 1, BYTES - 7];
      const receiving = peer.ask({ do: 'receive', tag: 2, count: lengths.length });
      let expected = new Uint8Array(BYTES);
      const checksums = lengths.map((byteLength, i) => {
        expected = expected.slice();
        expected.set(pattern(byteLength, i));
        return crc32(expected);
      });
      for (const [i, byteLength] of lengths.entries()) await endpoint.tagSend(pattern(byteLength, i), { tag: 2 });
      expect((await receiving).checksums).toEqual(checksums);
      await peer.ask({ do: 'serve' });
      for (const [i, name] of ['registered', 'allocated'].entries()) {
        const rkey = endpoint.unpackRkey(peer.keys[name]!);
        for (const byteLength of [1, 8, 300, 9000, 100_000, BYTES]) {
          const bytes = pattern(byteLength, i + byteLength);
          await endpoint.put(bytes, rkey, { remoteOffset: BYTES - byteLength });
          const back = new Uint8Array(byteLength);
          await endpoint.get(back, rkey, { remoteOffset: BYTES - byteLength });
          expectSame(back, bytes, `${byteLength} bytes`);
        }
        await endpoint.put(new Uint8Array(8), rkey);
        for (let count = 0; count < 20; count++) expect(await endpoint.atomic('add', 3, rkey)).toBe(BigInt(3 * count));
        await endpoint.flush();
        rkey.release();
      }
      const mapped = context.memMap({ allocate: BYTES });
      const packed = Buffer.from(context.packRkey(mapped)).toString('hex');
      const stop = new AbortController();
      const served = worker.serve(stop.signal);
      expect((await peer.ask({ do: 'add', key: packed, count: 50 })).count).toBe(50);
      expect(new BigUint64Array(mapped.bytes!.buffer, mapped.bytes!.byteOffset, 1)[0]).toBe(50n);
      stop.abort();
      await served;
      context.memUnmap(mapped);
      expect(errors).toEqual([]);
      await Promise.all([endpoint.close(), peer.close()]);
    });
  });

  it.each(DIRECTIONS)('move bytes by every operation %s, between host and device memory', async (direction) => {
    await processes.withEnds(async (ends) => {
      const [from, to] = ordered(ends, direction);
      for (const kinds of PAIRS) {
        for (const byteLength of SIZES) await moveAll(from, to, kinds, byteLength);
      }
      for (const end of [from, to]) expect((await end.tell({ do: 'failures' })).errors).toEqual([]);
    });
  });

  it('answer active messages through their reply endpoint', async () => {
    await processes.inBothDirections(async (from, to) => {
      for (const protocol of ['eager', 'rendezvous'] as const) {
        for (const headerLength of [0, 1, 4096]) {
          const local = { name: 'memory', offset: 0, byteLength: 3000 };
          const header = pattern(headerLength, 5);
          await from.tell({ do: 'map', kind: 'bytes', seed: 1, ...local });
          await to.tell({ do: 'map', kind: 'bytes', seed: 2, ...local });
          const [, there] = await both(
            [from, { do: 'amSend', local, header, protocol }],
            [to, { do: 'amRecv', local }],
          );
          expectSame(there.header!, header, 'header');
          expect(there.isRendezvous).toBe(protocol === 'rendezvous');
          // Back into memory with other contents.
          await from.tell({ do: 'unmap', name: local.name });
          await from.tell({ do: 'map', kind: 'bytes', seed: 3, ...local });
          const [, back] = await both(
            [to, { do: 'amReply', local, header, protocol }],
            [from, { do: 'amRecv', local }],
          );
          expectSame(back.header!, header, 'header of the answer');
          for (const end of [from, to]) {
            expectSame((await end.tell({ do: 'read', name: local.name })).bytes!, pattern(3000, 1));
            await end.tell({ do: 'unmap', name: local.name });
          }
        }
      }
    });
  });

  it('probe, remove and cancel messages; synchronous sends wait', async () => {
    await processes.inBothDirections(async (from, to) => {
      for (const byteLength of [8, 5000, 300_000]) {
        const local = { name: 'memory', offset: 0, byteLength };
        const expectHeld = async (seed: number, what: string): Promise<void> =>
          expectSame((await to.tell({ do: 'read', name: local.name })).bytes!, pattern(byteLength, seed), what);
        await from.tell({ do: 'map', kind: 'bytes', seed: 1, ...local });
        await to.tell({ do: 'map', kind: 'bytes', seed: 2, ...local });
        // A cancelled receive matches no message, and writes nothing.
        const given = to.tell({ do: 'tagRecv', local, tag: 3 });
        expect((await to.tell({ do: 'cancel', tag: 3 })).status).toBe(Status.OK);
        expect((await given).status).toBe(Status.CANCELED);
        const ended: string[] = [];
        const sends = (['tagSendSync', 'tagSend'] as const).map(async (operation) => {
          const { status } = await from.tell({ do: operation, local, tag: 3 });
          ended.push(operation);
          return status;
        });
        for (const remove of [false, true]) {
          const found = await to.tell({ do: 'tagProbe', tag: 3, remove });
          expect(found).toEqual({ status: Status.OK, tag: 3n, byteLength });
        }
        await roundTrip(from, to);
        expect(ended).not.toContain('tagSendSync');
        await expectHeld(2, 'before the receive');
        const taken = await to.tell({ do: 'tagMessageRecv', local });
        expect(taken).toMatchObject({ status: Status.OK, tag: 3n, byteLength });
        expect(await sends[0]).toBe(Status.OK);
        await expectHeld(1, 'taken');
        await to.tell({ do: 'unmap', name: local.name });
        await to.tell({ do: 'map', kind: 'bytes', seed: 2, ...local });
        expect((await to.tell({ do: 'tagRecv', local, tag: 3 })).status).toBe(Status.OK);
        expect(await sends[1]).toBe(Status.OK);
        await expectHeld(1, 'received');
        for (const end of [from, to]) await end.tell({ do: 'unmap', name: local.name });
      }
    });
  });

  it('keep the order of fences and flushes', async () => {
    await processes.inBothDirections(async (from, to) => {
      const [SLOTS, SLOT_BYTES] = [24, 40_000];
      const flagAt = SLOTS * SLOT_BYTES;
      const whole = { name: 'memory', offset: 0, byteLength: flagAt + 8 };
      const key = (await to.tell({ do: 'map', kind: 'allocated', seed: 0, ...whole })).key!;
      const slots = Array.from({ length: 2 * SLOTS }, (_, i) => ({
        name: `slot ${i}`,
        offset: 0,
        byteLength: SLOT_BYTES,
      }));
      const flags = Array.from({ length: SLOTS }, (_, i) => ({ name: `flag ${i}`, offset: 0, byteLength: 8 }));
      for (const [i, local] of slots.entries()) await from.tell({ do: 'map', kind: 'bytes', seed: 1 + i, ...local });
      for (const [i, local] of flags.entries()) await from.tell({ do: 'map', kind: 'bytes', seed: 100 + i, ...local });
      const expectSlots = (bytes: Uint8Array, count: number, seed: number): void => {
        for (let i = 0; i < count; i++) {
          const slot = bytes.subarray(i * SLOT_BYTES, (i + 1) * SLOT_BYTES);
          expectSame(slot, pattern(SLOT_BYTES, seed + i), `slot ${i} of ${count}`);
        }
      };
      // Every flag implies that the slots up to its own are written.
      const puts = flags.flatMap((flag, i) => [
        from.tell({ do: 'put', local: slots[i]!, key, remoteOffset: i * SLOT_BYTES }),
        from.tell({ do: 'fence' }),
        from.tell({ do: 'put', local: flag, key, remoteOffset: flagAt }),
      ]);
      for (let seen = 0; seen < SLOTS; ) {
        // The own end reads synchronously, so it has to yield between two reads.
        await new Promise(setImmediate);
        const bytes = (await to.tell({ do: 'read', name: whole.name })).bytes!;
        const flag = flags.findIndex((_, i) => Buffer.compare(pattern(8, 100 + i), bytes.subarray(flagAt)) === 0);
        expect(flag + 1).toBeGreaterThanOrEqual(seen);
        seen = flag + 1;
        expectSlots(bytes, seen, 1);
      }
      // After the flush, the slots are written without any flag.
      for (let i = 0; i < SLOTS; i++) {
        puts.push(from.tell({ do: 'put', local: slots[SLOTS + i]!, key, remoteOffset: i * SLOT_BYTES }));
      }
      expect((await from.tell({ do: 'flush' })).status).toBe(Status.OK);
      expectSlots((await to.tell({ do: 'read', name: whole.name })).bytes!, SLOTS, 1 + SLOTS);
      for (const { status } of await Promise.all(puts)) expect(status).toBe(Status.OK);
    });
  });
});
