/** Bad input of every kind: a typed error that names the argument and the rule, nothing written, no leaks. */

import { crc32 } from 'node:zlib';
import { beforeEach, describe, expect, it } from 'vitest';
import {
  isUcxError,
  type LocalMemory,
  type MemoryHandle,
  MemoryType,
  type RemoteKey,
  Status,
} from '../../../src/index.ts';
import { device, failureOf, rkeyOf, type Stack, useContexts } from '../../fixtures/contexts.ts';
import { useExclusions } from '../../fixtures/messages/exclusions.ts';
import { ENGINES } from '../../fixtures/pair.ts';

const BYTES = 256;
const NO_OFFSETS = [
  -1,
  Number.NaN,
  0.5,
  Number.POSITIVE_INFINITY,
  Number.NEGATIVE_INFINITY,
  2 ** 53,
  '1',
  1n,
  {},
  null,
];

/** Errors for invalid keys: when they are unpacked, or from the owner of the memory. */
const STALE_CODES = {
  native: ['ERR_RKEY_STALE', 'ERR_RKEY_FORGED'],
  libucx: ['ERR_RKEY_STALE', 'ERR_RKEY_FORGED', 'ERR_INVALID_ADDR', 'ERR_INVALID_PARAM'],
};

describe.each(ENGINES)('over %s', (engine) => {
  const fixture = useContexts(engine);
  useExclusions();

  let stack: Stack;
  let hbm: MemoryHandle;
  let host: MemoryHandle;
  let keys: readonly RemoteKey[];

  beforeEach(async () => {
    stack = await fixture.open();
    hbm = device(stack, BYTES);
    host = stack.context.memMap({ buffer: new Uint8Array(BYTES).fill(0xaa) });
    keys = [hbm, host].map((handle) => rkeyOf(stack, handle));
    await stack.endpoint.put(new Uint8Array(BYTES).fill(0xaa), keys[0]!);
  });

  /** Both remote memories are unchanged. */
  async function expectUntouched(): Promise<void> {
    const target = new Uint8Array(BYTES);
    await stack.endpoint.get(target, keys[0]!);
    expect(target).toEqual(new Uint8Array(BYTES).fill(0xaa));
    expect(host.bytes).toEqual(new Uint8Array(BYTES).fill(0xaa));
    expect(stack.worker.requestsInUse).toBe(0);
  }

  /** Resources of the first card that the program holds. */
  function held(): { readonly pinnedBytes: number; readonly hbmBytes: number } {
    const { hostMappings, deviceMemory } = stack.node.card(0).context!;
    return { pinnedBytes: hostMappings.pinnedBytes, hbmBytes: deviceMemory.usedBytes };
  }

  /** The bytes of a local buffer; undefined if there are none. */
  function contentsOf(local: LocalMemory): Uint8Array | undefined {
    return local instanceof Uint8Array && local.byteLength > 0 ? local.slice() : undefined;
  }

  /** Tries an operation in both tiers and both directions on both memories. */
  async function expectRefused(
    argument: RegExp,
    make: (rkey: RemoteKey) => {
      readonly local: LocalMemory;
      readonly localOffset?: number;
      readonly byteLength?: number;
      readonly remoteOffset?: number;
    },
  ): Promise<void> {
    const before = held();
    for (const rkey of keys) {
      const { local, localOffset = 0, byteLength = 8, remoteOffset = 0 } = make(rkey);
      const contents = contentsOf(local);
      for (const run of [
        () => stack.endpoint.putNbx(local, localOffset, byteLength, rkey, remoteOffset),
        () => stack.endpoint.getNbx(local, localOffset, byteLength, rkey, remoteOffset),
        () => stack.endpoint.put(local, rkey, { offset: localOffset, byteLength, remoteOffset }),
        () => stack.endpoint.get(local, rkey, { offset: localOffset, byteLength, remoteOffset }),
      ]) {
        const error = await failureOf(run);
        expect(isUcxError(error), error.message).toBe(true);
        expect(error.status).toBe(Status.INVALID_PARAM);
        expect(error.message).toMatch(argument);
      }
      expect(contentsOf(local)).toEqual(contents);
    }
    expect(held()).toEqual(before);
    await expectUntouched();
  }

  describe('put and get refuse', () => {
    it.each(NO_OFFSETS)('a local offset of %s', async (localOffset) => {
      await expectRefused(/offset|byteLength|bytes/, () => ({
        local: new Uint8Array(BYTES),
        localOffset: localOffset as number,
      }));
    });

    it.each(NO_OFFSETS)('a length of %s', async (byteLength) => {
      await expectRefused(/byteLength/, () => ({ local: new Uint8Array(BYTES), byteLength: byteLength as number }));
    });

    it.each(NO_OFFSETS)('a remote offset of %s', async (remoteOffset) => {
      await expectRefused(/remoteOffset/, () => ({
        local: new Uint8Array(BYTES),
        remoteOffset: remoteOffset as number,
      }));
    });

    it.each([
      [BYTES, 0, 1],
      [BYTES - 7, 0, 8],
      [0, 0, BYTES + 1],
      [0, 0, 2 ** 40],
      [BYTES + 1, 0, 0],
    ])('a local range beyond the end: %s + %s of %s bytes', async (localOffset, remoteOffset, byteLength) => {
      await expectRefused(/bytes|offset/, () => ({
        local: new Uint8Array(BYTES),
        localOffset,
        remoteOffset,
        byteLength,
      }));
    });

    it.each([
      [BYTES, 1],
      [BYTES - 7, 8],
      [2 ** 40, 8],
      [BYTES + 1, 0],
    ])('a remote range beyond the end: %s of %s bytes', async (remoteOffset, byteLength) => {
      await expectRefused(/remote memory/, () => ({ local: new Uint8Array(2 * BYTES), remoteOffset, byteLength }));
    });

    it.each<readonly [string, unknown]>([
      ['nothing', undefined],
      ['null', null],
      ['a string', 'bytes'],
      ['an ArrayBuffer', new ArrayBuffer(BYTES)],
      ['a DataView', new DataView(new ArrayBuffer(BYTES))],
      ['words', new Uint32Array(BYTES)],
      ['what only looks like a handle', { memoryType: 0, byteLength: BYTES, mapped: true, mdMemory: [] }],
    ])('%s for local memory', async (_what, local) => {
      await expectRefused(/local/, () => ({ local: local as LocalMemory }));
    });

    it('local memory that was unmapped', async () => {
      const handles = [device(stack, 64), stack.context.memMap({ allocate: 64 })];
      for (const handle of handles) {
        stack.context.memUnmap(handle);
        expect(handle.mapped).toBe(false);
        await expectRefused(/local memory is unmapped/, () => ({ local: handle }));
      }
    });

    it('mapped memory whose buffer was detached', async () => {
      const bytes = new Uint8Array(4096);
      const handle = stack.context.memMap({ buffer: bytes });
      structuredClone(bytes.buffer, { transfer: [bytes.buffer] });
      await expectRefused(/local.*detached/, () => ({ local: handle }));
      stack.context.memUnmap(handle);
    });

    it('a detached buffer', async () => {
      const bytes = new Uint8Array(4096);
      structuredClone(bytes.buffer, { transfer: [bytes.buffer] });
      await expectRefused(/local memory of 0 bytes/, () => ({ local: bytes }));
    });

    it('a buffer that can change its length, if it would have to be pinned', async () => {
      const Resizable = ArrayBuffer as unknown as new (
        bytes: number,
        options: { maxByteLength: number },
      ) => ArrayBuffer;
      const local = new Uint8Array(new Resizable(8192, { maxByteLength: 16384 }));
      const big = device(stack, 8192);
      const rkey = rkeyOf(stack, big);
      for (const run of [
        () => stack.endpoint.put(local, rkey),
        () => stack.endpoint.get(local, rkey),
        () => stack.endpoint.putNbx(local, 0, 8192, rkey, 0),
      ]) {
        expect(await failureOf(run)).toMatchObject({
          code: 'ERR_INVALID_PARAM',
          message: expect.stringContaining('resizable'),
        });
      }
      expect(stack.worker.requestsInUse).toBe(0);
      if (engine === 'libucx') {
        // It uses the address of every message.
        const piece = [{ memory: local, byteLength: 8 }];
        for (const run of [
          () => stack.endpoint.put(local, keys[1]!, { byteLength: 8 }),
          () => stack.endpoint.tagSendNbx(local, 0, 8, 1),
          () => stack.endpoint.tagSend(piece, { tag: 1 }),
          () => stack.endpoint.streamRecv(local),
          () => stack.worker.tagRecvNbx(local, 0, 8, 1),
          () => stack.worker.tagRecv(piece, { tag: 1 }),
        ]) {
          expect(await failureOf(run)).toMatchObject({
            code: 'ERR_INVALID_PARAM',
            message: expect.stringContaining('resizable'),
          });
        }
        expect(stack.worker.requestsInUse).toBe(0);
        return;
      }
      // Short operations copy the bytes and pin nothing.
      await stack.endpoint.put(local, keys[0]!, { byteLength: 8 });
    });

    it.each([undefined, null, 'key', {}])('%s for a remote key', async (rkey) => {
      for (const run of [
        () => stack.endpoint.putNbx(new Uint8Array(8), 0, 8, rkey as RemoteKey, 0),
        () => stack.endpoint.get(new Uint8Array(8), rkey as RemoteKey),
        () => stack.endpoint.explain('put', new Uint8Array(8), rkey as RemoteKey),
      ]) {
        const error = await failureOf(run);
        expect(isUcxError(error), error.message).toBe(true);
        expect(error).toMatchObject({ status: Status.INVALID_PARAM, message: expect.stringContaining('rkey') });
      }
    });

    it('a remote key that was released', async () => {
      const rkey = rkeyOf(stack, hbm);
      rkey.release();
      rkey.release();
      for (const run of [
        () => stack.endpoint.putNbx(new Uint8Array(8), 0, 8, rkey, 0),
        () => stack.endpoint.get(new Uint8Array(8), rkey),
        () => stack.endpoint.explain('put', new Uint8Array(8), rkey),
      ]) {
        expect(await failureOf(run)).toMatchObject({
          code: 'ERR_CLOSED',
          message: expect.stringContaining('remote key'),
        });
      }
      await expectUntouched();
    });
  });

  describe('remote keys', () => {
    it.each(['device', 'host'] as const)(
      'of unmapped %s memory reach nothing, whether they were unpacked before or after',
      async (kind) => {
        const handle = kind === 'device' ? hbm : host;
        const packed = stack.context.packRkey(handle);
        const before = stack.endpoint.unpackRkey(packed);
        stack.context.memUnmap(handle);
        const stale = await failureOf(async () => {
          await stack.endpoint.put(new Uint8Array(8), stack.endpoint.unpackRkey(packed));
        });
        expect(STALE_CODES[engine]).toContain(stale.code);
        const error = await failureOf(() => stack.endpoint.put(new Uint8Array(8), before));
        expect([Status.INVALID_ADDR, Status.INVALID_PARAM]).toContain(error.status);
        const target = new Uint8Array(8).fill(1);
        await failureOf(() => stack.endpoint.get(target, before));
        expect(target).toEqual(new Uint8Array(8).fill(1));
        expect(host.bytes).toEqual(new Uint8Array(BYTES).fill(0xaa));
      },
    );

    it('do not work on later memory at the same address', async () => {
      const first = device(stack, 4096);
      const rkey = rkeyOf(stack, first);
      const { address } = first;
      stack.context.memUnmap(first);
      const second = device(stack, 4096);
      expect(second.address).toBe(address);
      const good = rkeyOf(stack, second);
      await stack.endpoint.put(new Uint8Array(4096).fill(7), good);
      for (const byteLength of [8, 4096]) {
        const error = await failureOf(() => stack.endpoint.put(new Uint8Array(byteLength), rkey));
        expect([Status.INVALID_ADDR, Status.INVALID_PARAM]).toContain(error.status);
      }
      const target = new Uint8Array(4096);
      await stack.endpoint.get(target, good);
      expect(target).toEqual(new Uint8Array(4096).fill(7));
    });

    it.each(['device', 'host'] as const)('of %s memory of another context are refused', async (kind) => {
      const other = await fixture.open();
      const handle = kind === 'device' ? device(other, 64) : other.context.memMap({ allocate: 64 });
      const error = await failureOf(async () => {
        const rkey = stack.endpoint.unpackRkey(other.context.packRkey(handle));
        await stack.endpoint.put(new Uint8Array(8), rkey);
      });
      expect(STALE_CODES[engine]).toContain(error.code);
    });

    it('with a forged header reach nothing outside their memory', async () => {
      const packed = stack.context.packRkey(hbm);
      const neighbour = device(stack, 4096);
      const neighbourKey = rkeyOf(stack, neighbour);
      await stack.endpoint.put(new Uint8Array(4096).fill(7), neighbourKey);
      const forge = (change: (view: DataView) => void): Uint8Array => {
        const copy = packed.slice();
        const view = new DataView(copy.buffer);
        change(view);
        view.setUint32(copy.byteLength - 4, crc32(copy.subarray(0, -4)), true);
        return copy;
      };
      const forged = [
        forge((view) => view.setBigUint64(24, 1n << 40n, true)),
        forge((view) => view.setBigUint64(16, neighbour.address, true)),
        forge((view) => view.setUint8(5, MemoryType.HOST)),
        forge((view) => view.setUint32(8, 1, true)),
        forge((view) => view.setUint32(8, 0xffff_ffff, true)),
      ];
      for (const bytes of forged) {
        for (const byteLength of [8, 4096]) {
          let written = false;
          try {
            const rkey = stack.endpoint.unpackRkey(bytes);
            // Beyond the true end; inside it, a key that was forged into a valid one may work.
            await stack.endpoint.put(new Uint8Array(byteLength), rkey, { remoteOffset: BYTES });
            written = true;
          } catch (error) {
            expect(isUcxError(error), String(error)).toBe(true);
          }
          expect(written).toBe(false);
        }
      }
      const target = new Uint8Array(4096);
      await stack.endpoint.get(target, neighbourKey);
      expect(target).toEqual(new Uint8Array(4096).fill(7));
      await expectUntouched();
    });
  });

  it('null stands for no default', async () => {
    const [{ endpoint, worker }, bytes, none] = [stack, new Uint8Array(8), null as never];
    for (const run of [
      () => endpoint.tagSend(bytes, { tag: none }),
      () => endpoint.tagSendSync(bytes, { tag: none }),
      () => worker.tagRecv(bytes, { tag: none }),
      () => worker.tagRecv(bytes, { mask: none }),
      () => endpoint.tagSend([{ memory: bytes, byteLength: none }]),
      () => endpoint.tagSend([{ memory: bytes, offset: none }]),
      () => endpoint.put([{ memory: bytes, byteLength: none }], keys[0]!),
      () => endpoint.atomic('add', 1, keys[0]!, { bits: none }),
      () => endpoint.atomic('add', 1, keys[0]!, { remoteOffset: none }),
      () => stack.context.memMap({ allocate: 8 }).read(bytes, { byteLength: none }),
    ]) {
      expect(await failureOf(run), String(run)).toMatchObject({ code: 'ERR_INVALID_PARAM' });
    }
    expect(worker.requestsInUse).toBe(0);
  });

  describe('memMap refuses', () => {
    it.each([0, -1, 1.5, Number.NaN, Number.POSITIVE_INFINITY, 2 ** 53, '64', null, undefined, 64n])(
      'to allocate %s bytes',
      async (allocate) => {
        for (const memoryType of [MemoryType.HOST, MemoryType.GAUDI]) {
          const error = await failureOf(() => stack.context.memMap({ allocate: allocate as number, memoryType }));
          expect(isUcxError(error), error.message).toBe(true);
          expect(error).toMatchObject({ code: 'ERR_INVALID_PARAM', message: expect.stringContaining('allocate') });
        }
      },
    );

    it.each([-1, 10, 99, 0.5, Number.NaN, 'gaudi9', null])('memory type %s', async (memoryType) => {
      const error = await failureOf(() => stack.context.memMap({ allocate: 64, memoryType: memoryType as MemoryType }));
      expect(error).toMatchObject({ code: 'ERR_INVALID_PARAM', message: expect.stringContaining('memoryType') });
    });

    it('memory types that no memory domain has', async () => {
      for (const memoryType of [MemoryType.CUDA, MemoryType.ZE_DEVICE]) {
        const error = await failureOf(() => stack.context.memMap({ allocate: 64, memoryType }));
        expect(error).toMatchObject({ code: 'ERR_UNSUPPORTED', status: Status.UNSUPPORTED });
      }
    });

    it.each([2, -1, 0.5, Number.NaN, '0', 255])('card %s', async (sysDevice) => {
      const params = { allocate: 64, memoryType: MemoryType.GAUDI, sysDevice: sysDevice as number };
      const error = await failureOf(() => stack.context.memMap(params));
      expect(isUcxError(error)).toBe(true);
      expect([Status.NO_DEVICE, Status.INVALID_PARAM]).toContain(error.status);
      expect(error.message).toContain('sysDevice');
    });

    it('more memory than a card has, and leaves the rest usable', async () => {
      const error = await failureOf(() => device(stack, 200 * 2 ** 30));
      expect(error).toMatchObject({ code: 'ERR_GAUDI_OUT_OF_MEMORY', status: Status.NO_MEMORY });
      stack.context.memUnmap(device(stack, 2 ** 30));
    });

    it('more host memory than is possible', async () => {
      const refused = { code: 'ERR_INVALID_PARAM', details: { argument: 'allocate' } };
      const allocate = 2 ** 32 + 1;
      for (const params of [{ allocate }, { allocate, shared: true }])
        expect(await failureOf(() => stack.context.memMap(params))).toMatchObject(refused);
    });

    it.each<readonly [string, unknown]>([
      ['undefined', undefined],
      ['null', null],
      ['a string', 'bytes'],
      ['an ArrayBuffer', new ArrayBuffer(64)],
      ['words', new Uint32Array(64)],
      ['an empty array', new Uint8Array(0)],
      ['a small Buffer of the pool', Buffer.from('pooled')],
      ['a slice of the pool', Buffer.allocUnsafe(10)],
    ])('to register %s', async (_what, buffer) => {
      const error = await failureOf(() => stack.context.memMap({ buffer: buffer as Uint8Array }));
      expect(error).toMatchObject({ code: 'ERR_INVALID_PARAM', message: expect.stringContaining('buffer') });
    });

    it.each([undefined, null, 5, 'params', {}])('%s for parameters', async (params) => {
      const error = await failureOf(() => stack.context.memMap(params as never));
      expect(isUcxError(error), error.message).toBe(true);
      expect(error.status).toBe(Status.INVALID_PARAM);
    });
  });

  describe('memUnmap and packRkey refuse', () => {
    it('a handle twice', async () => {
      for (const handle of [hbm, host, stack.context.memMap({ allocate: 64 })]) {
        stack.context.memUnmap(handle);
        for (const run of [() => stack.context.memUnmap(handle), () => stack.context.packRkey(handle)]) {
          expect(await failureOf(run)).toMatchObject({
            code: 'ERR_INVALID_PARAM',
            message: 'the memory has been unmapped',
          });
        }
        expect((await failureOf(() => handle.view())).code).toBe('ERR_CLOSED');
      }
    });

    it('a handle of another context', async () => {
      const other = await fixture.open();
      const foreign = device(other, 64);
      for (const run of [() => stack.context.memUnmap(foreign), () => stack.context.packRkey(foreign)]) {
        expect(await failureOf(run)).toMatchObject({ code: 'ERR_INVALID_PARAM' });
      }
      expect(foreign.mapped).toBe(true);
      other.context.memUnmap(foreign);
    });

    it.each([undefined, null, 5, {}, new Uint8Array(8)])('%s for a handle', async (handle) => {
      for (const run of [
        () => stack.context.memUnmap(handle as MemoryHandle),
        () => stack.context.packRkey(handle as MemoryHandle),
      ]) {
        const error = await failureOf(run);
        expect(error).toMatchObject({ code: 'ERR_INVALID_PARAM', message: expect.stringContaining('handle') });
      }
    });

    it.each([8, 64, 4096])('device memory of another context as local memory: %s bytes', async (byteLength) => {
      const other = await fixture.open();
      const foreign = device(other, 4096);
      const rkey = rkeyOf(stack, device(stack, 4096));
      for (const operation of ['put', 'get'] as const) {
        const error = await failureOf(() => stack.endpoint[operation](foreign, rkey, { byteLength }));
        expect(isUcxError(error), error.message).toBe(true);
      }
      expect(stack.worker.requestsInUse).toBe(0);
    });

    it.each([8, 64, 8192])('host memory of another context as local memory: %s bytes', async (byteLength) => {
      const other = await fixture.open();
      const foreign = other.context.memMap({ buffer: new Uint8Array(8192).fill(3) });
      for (const remote of [device(stack, 8192), stack.context.memMap({ allocate: 8192 })]) {
        for (const operation of ['put', 'get'] as const) {
          const error = await failureOf(() =>
            stack.endpoint[operation](foreign, rkeyOf(stack, remote), { byteLength }),
          );
          expect(isUcxError(error), error.message).toBe(true);
        }
      }
      expect(foreign.bytes).toEqual(new Uint8Array(8192).fill(3));
      expect(stack.worker.requestsInUse).toBe(0);
    });
  });
});
