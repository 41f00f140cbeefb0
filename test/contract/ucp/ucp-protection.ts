/**
 * Memory that is mapped for some accesses only, over every kind of connection: operations that it does not permit are refused before anything moves, by the
 * owner too where the owner or its device sees them; messages move whatever peers may access.
 */

import { crc32 } from 'node:zlib';
import { describe, expect, it } from 'vitest';
import { type MemMapParams, type MemoryHandle, type MemoryProtection, MemoryType, Status } from '../../../src/index.ts';
import { packEnvelope, unpackEnvelope } from '../../../src/libucx/mem/remote-key.ts';
import { atomicEndpoints } from '../../fixtures/libucp/libucp.ts';
import {
  type ConnectionKind,
  expectSame,
  type MemoryKind,
  memoryKinds,
  type Pair,
  pattern,
  type Side,
  serving,
  unmap,
  usePairs,
} from '../../fixtures/pair.ts';

type MappedKind = Exclude<MemoryKind, 'bytes'>;

export const ALL: readonly MemoryProtection[] = ['local-read', 'local-write', 'remote-read', 'remote-write'];
export const BYTES = 200_000;
const INVALID: unknown = expect.objectContaining({ code: 'ERR_INVALID_PARAM' });

/** The error of an operation that memory is not mapped for: it names the argument, the rule, and what the memory is mapped for. */
function refusal(argument: string, needed: string, protection: readonly MemoryProtection[]): unknown {
  const message = expect.stringMatching(
    `${argument}.* must be mapped with protection ${needed}.*${protection.join(', ')}`,
  );
  return expect.objectContaining({ code: 'ERR_INVALID_PARAM', message });
}

/** Mapped memory with contents and a protection. */
async function mapped(
  { context }: Side,
  kind: MappedKind,
  bytes: Uint8Array,
  protection: readonly MemoryProtection[],
): Promise<MemoryHandle> {
  const { byteLength } = bytes;
  const source: MemMapParams =
    kind === 'registered'
      ? { buffer: new Uint8Array(byteLength) }
      : { allocate: byteLength, memoryType: kind === 'gaudi' ? MemoryType.GAUDI : MemoryType.HOST };
  const memory = context.memMap({ ...source, protection });
  expect(memory.protection).toEqual(protection);
  await contentsOf(memory, bytes);
  return memory;
}

/** Sets contents: host memory by stores, memory of a card by a copy of its owner that looks at no protection. */
async function contentsOf(memory: MemoryHandle, bytes: Uint8Array): Promise<void> {
  if (memory.bytes !== undefined) memory.bytes.set(bytes);
  else if (memory.protection.includes('local-write')) await memory.write(bytes);
}

/** A key that says to permit everything, as a hostile peer would make it. */
function forged({ engine }: ConnectionKind, packed: Uint8Array): Uint8Array {
  if (engine === 'libucx') {
    const { ucx, own } = unpackEnvelope(packed, 'remote key');
    const fields = own.slice();
    fields[1] = 0;
    return packEnvelope({ ucx, own: fields }, 'remote key');
  }
  const copy = packed.slice();
  copy[7] = 0;
  const end = copy.byteLength - 4;
  new DataView(copy.buffer).setUint32(end, crc32(copy.subarray(0, end)), true);
  return copy;
}

/** Whether a forged key is refused by the owner: its device, its frames or its worker. */
function isGuarded({ name, engine, tls }: ConnectionKind, memory: MappedKind): boolean {
  if (engine === 'libucx') return memory === 'gaudi' && name === 'libucx, staging';
  if (name === 'posix') return memory === 'registered';
  return /^(rc|tcp)\b/.test(tls);
}

/** Declares the tests of memory protection over a kind of connection. */
export function protectionContract(kind: ConnectionKind): void {
  describe(`protection of memory over '${kind.name}'`, () => {
    const fixture = usePairs(kind);
    const endpoints = kind.engine === 'libucx' ? atomicEndpoints() : {};
    const kinds = memoryKinds(kind).filter((memory): memory is MappedKind => memory !== 'bytes');
    const open = (): Promise<Pair> => fixture.pair(kind, {}, endpoints);

    it.each(kinds)(
      'of %s memory: puts, gets and atomic operations that peers may not do are refused',
      async (memory) => {
        const pair = await open();
        const { one, two, ab } = pair;
        const before = pattern(BYTES, 1);
        const other = pattern(BYTES, 2);
        for (const remote of ['remote-read', 'remote-write'] as const) {
          const protection: MemoryProtection[] = ['local-read', 'local-write', remote];
          const there = await mapped(two, memory, before, protection);
          const rkey = ab.unpackRkey(two.context.packRkey(there));
          expect(rkey.protection).toEqual([remote]);
          expect(rkey.bytes).toBeUndefined();
          const here = other.slice();
          const isPut = remote === 'remote-write';
          const refused = refusal('rkey', isPut ? 'remote-read' : 'remote-write', [remote]);
          for (const byteLength of [8, BYTES]) {
            const start = (): unknown =>
              isPut ? ab.getNbx(here, 0, byteLength, rkey, 0) : ab.putNbx(here, 0, byteLength, rkey, 0);
            expect(start).toThrow(refused);
          }
          await expect(isPut ? ab.get(here, rkey) : ab.put(here, rkey)).rejects.toEqual(refused);
          expect(() => ab.explain(isPut ? 'get' : 'put', here, rkey)).toThrow(refused);
          expect(ab.explain('tag', here, rkey).at(BYTES)).toBeDefined();
          const entries = [{ local: here, rkey, byteLength: 8 }];
          await expect(isPut ? ab.getList(entries) : ab.putList(entries)).rejects.toEqual(INVALID);
          await expect(ab.atomic('add', 1n, rkey, { bits: 64 })).rejects.toEqual(
            refusal('rkey', 'remote-read and remote-write', [remote]),
          );
          expectSame(await there.read(), before);
          await serving(pair, async () => {
            expect(ab.explain(isPut ? 'put' : 'get', here, rkey).chosen.length).toBeGreaterThan(0);
            for (const byteLength of [8, BYTES]) {
              if (isPut) await ab.put(here, rkey, { byteLength });
              else await ab.get(here, rkey, { byteLength });
            }
          });
          expectSame(here, isPut ? other : before);
          expectSame(await there.read(), isPut ? other : before);
          rkey.release();
          unmap(two, there);
        }
        expect(one.worker.requestsInUse + two.worker.requestsInUse).toBe(0);
      },
    );

    it('holds for memory by its address, and for memory that can be exported', async () => {
      const { two, ab } = await open();
      const own = two.context.memMap({ allocate: 4096 });
      const sources: MemMapParams[] = [
        { address: own.address, byteLength: 4096 },
        { allocate: 4096, shared: true },
      ];
      for (const source of sources) {
        const memory = two.context.memMap({ ...source, protection: ['local-read', 'remote-read'] });
        const rkey = ab.unpackRkey(two.context.packRkey(memory));
        expect([memory.protection, rkey.protection]).toEqual([['local-read', 'remote-read'], ['remote-read']]);
        expect(() => ab.putNbx(new Uint8Array(8), 0, 8, rkey, 0)).toThrow(INVALID);
        expect(() => two.worker.tagRecvNbx(memory, 0, 8, 1)).toThrow(INVALID);
        rkey.release();
        unmap(two, memory);
      }
      unmap(two, own);
    });

    it.each(kinds)('of %s memory: without access of peers there is no remote key', async (memory) => {
      const { two } = await open();
      const there = await mapped(two, memory, pattern(64, 1), ['local-read', 'local-write']);
      expect(() => two.context.packRkey(there)).toThrow(
        expect.objectContaining({
          code: 'ERR_INVALID_PARAM',
          message: expect.stringMatching('handle.* remote-read or remote-write.*local-read, local-write'),
        }),
      );
      unmap(two, there);
    });

    it.each(kinds)('of %s memory: the local side of an operation', async (memory) => {
      const pair = await open();
      const { one, two, ab, ba } = pair;
      const bytes = pattern(BYTES, 3);
      const written = two.context.memMap({ buffer: new Uint8Array(BYTES) });
      const rkey = ab.unpackRkey(two.context.packRkey(written));
      const writeOnly = await mapped(one, memory, bytes, ['local-write']);
      const readOnly = await mapped(one, memory, bytes, ['local-read']);
      const unread = refusal('local', 'local-read', ['local-write']);
      const unwritten = refusal('local', 'local-write', ['local-read']);
      for (const byteLength of [8, BYTES]) {
        for (const local of [writeOnly, [{ memory: writeOnly, byteLength }]]) {
          expect(() => ab.tagSendNbx(local, 0, byteLength, 7)).toThrow(unread);
          expect(() => ab.amSendNbx(7, undefined, local, 0, byteLength)).toThrow(unread);
          expect(() => ab.streamSendNbx(local, 0, byteLength)).toThrow(unread);
        }
        expect(() => ab.putNbx(writeOnly, 0, byteLength, rkey, 0)).toThrow(unread);
        for (const local of [readOnly, [{ memory: readOnly, byteLength }]]) {
          expect(() => one.worker.tagRecvNbx(local, 0, byteLength, 7)).toThrow(unwritten);
          expect(() => ab.streamRecvNbx(local, 0, byteLength)).toThrow(unwritten);
        }
        expect(() => ab.getNbx(readOnly, 0, byteLength, rkey, 0)).toThrow(unwritten);
      }
      await expect(ab.put(writeOnly, rkey)).rejects.toEqual(unread);
      await expect(ab.get(readOnly, rkey)).rejects.toEqual(unwritten);
      for (const byteLength of [8, BYTES]) {
        const received = new Promise<unknown>((resolve) => {
          one.worker.setAmHandler(9, (message) => {
            const kept = message.retain();
            try {
              kept.receiveNbx(readOnly, 0, byteLength);
              resolve('no error');
            } catch (error) {
              resolve(error);
            }
            kept.release();
          });
        });
        await serving(pair, async () => {
          await ba.amSend(9, bytes.subarray(0, byteLength));
          expect(await received).toEqual(unwritten);
        });
      }
      one.worker.setAmHandler(9, undefined);
      expect(written.bytes!.every((byte) => byte === 0)).toBe(true);
      await serving(pair, async () => {
        await ab.get(writeOnly, rkey);
        await ab.put(bytes, rkey);
        await ab.get(writeOnly, rkey);
      });
      if (writeOnly.bytes !== undefined) expectSame(writeOnly.bytes, bytes);
      rkey.release();
      unmap(one, writeOnly, readOnly);
      unmap(two, written);
      expect(one.worker.requestsInUse + two.worker.requestsInUse).toBe(0);
    });

    const sources: readonly (readonly MemoryProtection[])[] = [ALL, ['local-read', 'local-write', 'remote-write']];
    const targets: readonly (readonly MemoryProtection[])[] = [ALL, ['local-read', 'local-write', 'remote-read']];
    it.each(kinds)('of %s memory: messages arrive, whatever peers may do with either memory', async (memory) => {
      const pair = await open();
      const { one, two, ab } = pair;
      const own: readonly MemoryProtection[] = ['local-read', 'local-write'];
      for (const from of [...sources, own]) {
        for (const to of [...targets, own]) {
          for (const byteLength of [8, 20_000, BYTES]) {
            const bytes = pattern(byteLength, byteLength + from.length);
            const source = await mapped(one, memory, bytes, from);
            const target = await mapped(two, memory, new Uint8Array(byteLength), to);
            const what = `${byteLength} bytes from ${from.join('+')} to ${to.join('+')}`;
            await serving(pair, async () => {
              await Promise.all([two.worker.tagRecv(target, { tag: 5n }), ab.tagSend(source, { tag: 5n })]);
              expectSame(await target.read(), bytes, what);
              if (source.bytes === undefined || target.bytes === undefined) return;
              // The same bytes without their handles.
              target.bytes.fill(0);
              await Promise.all([two.worker.tagRecv(target.bytes, { tag: 6n }), ab.tagSend(source.bytes, { tag: 6n })]);
              expectSame(target.bytes, bytes, `${what}, as bytes`);
            });
            unmap(one, source);
            unmap(two, target);
          }
        }
      }
      expect(one.worker.requestsInUse + two.worker.requestsInUse).toBe(0);
    });

    // libucp has its own.
    it.skipIf(kind.engine === 'libucx').each(['get_zcopy', 'put_zcopy', 'put_ppln', 'am'])(
      'messages arrive by UCX_RNDV_SCHEME=%s',
      async (scheme) => {
        const pair = await fixture.pair(kind, { UCX_RNDV_SCHEME: scheme }, endpoints);
        const { one, two, ab } = pair;
        const bytes = pattern(BYTES, 6);
        for (const memory of kinds) {
          for (const [from, to] of [
            [['local-read', 'local-write'], ALL],
            [ALL, ['local-read', 'local-write']],
            [
              ['local-read', 'local-write', 'remote-read'],
              ['local-read', 'local-write', 'remote-write'],
            ],
          ] as const) {
            const source = await mapped(one, memory, bytes, from);
            const target = await mapped(two, memory, new Uint8Array(BYTES), to);
            const arrived = new Promise<void>((resolve, reject) => {
              two.worker.setAmHandler(11, (message) => message.into(target).then(() => resolve(), reject));
            });
            await serving(pair, async () => {
              await Promise.all([ab.amSend(11, source), arrived]);
              expectSame(await target.read(), bytes, `${memory} from ${from.join('+')} to ${to.join('+')}`);
            });
            two.worker.setAmHandler(11, undefined);
            unmap(one, source);
            unmap(two, target);
          }
        }
      },
    );

    it.skipIf(kind.isLoopback)('is that of the ArrayBuffer too, of which bytes have keys', async () => {
      const pair = await open();
      const { one, two, ab } = pair;
      const both = new Uint8Array(2 * BYTES);
      const handle = one.context.memMap({ buffer: both.subarray(0, BYTES), protection: ['local-read', 'local-write'] });
      both.set(pattern(BYTES, 7), BYTES);
      const target = new Uint8Array(BYTES);
      await serving(pair, async () => {
        const [, sent] = await Promise.all([
          two.worker.tagRecv(target, { tag: 3n }),
          ab.tagSend(both.subarray(BYTES), { tag: 3n }),
        ]);
        if (kind.engine !== 'libucx') expect(sent.protocol).not.toContain('get');
      });
      expectSame(target, both.subarray(BYTES));
      unmap(one, handle);
    });

    it.skipIf(!kinds.some((memory) => isGuarded(kind, memory)))(
      'is kept by the owner against forged keys',
      async () => {
        const before = pattern(BYTES, 8);
        for (const memory of kinds.filter((each) => isGuarded(kind, each))) {
          for (const remote of ['remote-read', 'remote-write'] as const) {
            for (const [operation, byteLength] of [
              ['put', 8],
              ['put', BYTES],
              ['get', 8],
              ['get', BYTES],
              ['atomic', 8],
            ] as const) {
              if (operation === (remote === 'remote-read' ? 'get' : 'put')) continue;
              const pair = await open();
              const { two, ab } = pair;
              const there = await mapped(two, memory, before, ['local-read', 'local-write', remote]);
              const rkey = ab.unpackRkey(forged(kind, two.context.packRkey(there)));
              expect(rkey.protection).toEqual(['remote-read', 'remote-write']);
              const here = new Uint8Array(byteLength);
              const what = `${operation} of ${byteLength} bytes, ${memory} memory for ${remote}`;
              await serving(pair, async () => {
                const run = (): Promise<unknown> => {
                  if (operation === 'put') return ab.put(here, rkey, { byteLength }).then(() => ab.flush());
                  if (operation === 'get') return ab.get(here, rkey, { byteLength });
                  return ab.atomic('swap', 0n, rkey, { bits: 64 });
                };
                await expect(run(), what).rejects.toMatchObject({ status: Status.INVALID_ADDR });
              });
              expect(
                here.every((byte) => byte === 0),
                what,
              ).toBe(true);
              expectSame(await there.read(), before, what);
              rkey.release();
              if (kind.refusalsEnd !== true) unmap(two, there);
              await fixture.close();
            }
          }
        }
      },
    );
  });
}
