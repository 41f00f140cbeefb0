/** Put and get through the whole stack: every kind of local and remote memory, sizes around every limit, in both tiers. */

import { describe, expect, it } from 'vitest';
import {
  type Endpoint,
  type Explanation,
  type LocalMemory,
  type MemoryHandle,
  MemoryType,
  type Request,
  Status,
  type UcxError,
} from '../../../src/index.ts';
import { device, failureOf, rkeyOf, type Stack, useContexts } from '../../fixtures/contexts.ts';
import { IS_FULL } from '../../fixtures/extent.ts';
import { fillPattern } from '../../fixtures/pattern.ts';

const SIZES = [1, 7, 8, 64, 1023, 1024, 1025, 4096, 8193, 65536, 2 ** 20 + 3] as const;
const LOCALS = ['bytes', 'mapped', 'allocated', 'gaudi'] as const;
const REMOTES = ['host', 'gaudi'] as const;
const LOCAL_OFFSET = 5;
const REMOTE_OFFSET = 9;
const MARGIN = 24;

/** Bytes that differ by seed. */
function pattern(byteLength: number, seed: number): Uint8Array {
  const bytes = new Uint8Array(byteLength);
  fillPattern(bytes, seed);
  return bytes;
}

/** Writes bytes into any memory, by its own means. */
async function fill(stack: Stack, memory: LocalMemory, bytes: Uint8Array): Promise<void> {
  if (memory instanceof Uint8Array) memory.set(bytes);
  else if (memory.bytes !== undefined) memory.bytes.set(bytes);
  else await stack.endpoint.put(bytes, rkeyOf(stack, memory));
}

/** A copy of the bytes of any memory. */
async function contents(stack: Stack, memory: LocalMemory): Promise<Uint8Array> {
  if (memory instanceof Uint8Array) return memory.slice();
  if (memory.bytes !== undefined) return memory.bytes.slice();
  const copy = new Uint8Array(memory.byteLength);
  await stack.endpoint.get(copy, rkeyOf(stack, memory));
  return copy;
}

async function expectContents(stack: Stack, memory: LocalMemory, expected: Uint8Array): Promise<void> {
  expect(Buffer.compare(await contents(stack, memory), expected)).toBe(0);
}

/** Drives a worker until a request ends, and frees it. */
async function settle({ worker }: Stack, request: Status | Request): Promise<Status> {
  if (typeof request === 'number') return request;
  for (let turn = 0; !request.isCompleted; turn++) {
    if (worker.progress() === 0 && turn % 1024 === 1023) await new Promise(setImmediate);
  }
  const { status } = request;
  request.free();
  return status;
}

describe.each([
  ['gaudi2', 0],
  ['gaudi2', 1],
  ['gaudi3', 0],
  ['gaudi3', 1],
  ['gaudi', 0],
  ['gaudi', 1],
] as const)('put and get on emulated %s with %s engine threads', (asic, dmaThreads) => {
  const fixture = useContexts();

  const makeLocal = (stack: Stack, kind: (typeof LOCALS)[number], byteLength: number): LocalMemory => {
    if (kind === 'bytes') return new Uint8Array(byteLength);
    if (kind === 'mapped') return stack.context.memMap({ buffer: new Uint8Array(byteLength) });
    if (kind === 'allocated') return stack.context.memMap({ allocate: byteLength });
    return device(stack, byteLength);
  };
  const makeRemote = (stack: Stack, kind: (typeof REMOTES)[number], byteLength: number): MemoryHandle =>
    kind === 'gaudi' ? device(stack, byteLength) : stack.context.memMap({ allocate: byteLength });

  describe.each(LOCALS)('from local %s', (localKind) => {
    it.each(REMOTES)('to remote %s: all sizes, awaited', async (remoteKind) => {
      const stack = await fixture.open({ node: { asic, dmaThreads } });
      for (const byteLength of SIZES) {
        const local = makeLocal(stack, localKind, byteLength + MARGIN);
        const remote = makeRemote(stack, remoteKind, byteLength + MARGIN);
        const rkey = rkeyOf(stack, remote);
        const here = pattern(byteLength + MARGIN, byteLength);
        const there = pattern(byteLength + MARGIN, byteLength + 1);
        await fill(stack, local, here);
        await fill(stack, remote, there);
        const options = { offset: LOCAL_OFFSET, remoteOffset: REMOTE_OFFSET, byteLength };
        const plan = stack.endpoint.explain('put', local, rkey);
        const put = await stack.endpoint.put(local, rkey, options);
        const row = plan.chosen.find(({ bytesMin, bytesMax }) => bytesMin <= byteLength && byteLength <= bytesMax)!;
        expect(put).toEqual({
          byteLength,
          transport: row.transport.split('/')[0],
          device: row.transport.split('/')[1],
          protocol: row.protocol,
        });
        there.set(here.subarray(LOCAL_OFFSET, LOCAL_OFFSET + byteLength), REMOTE_OFFSET);
        await expectContents(stack, remote, there);
        await expectContents(stack, local, here);
        there.reverse();
        await fill(stack, remote, there);
        const got = await stack.endpoint.get(local, rkey, options);
        expect(got.byteLength).toBe(byteLength);
        const chosen = stack.endpoint.explain('get', local, rkey).chosen;
        const getRow = chosen.find(({ bytesMin, bytesMax }) => bytesMin <= byteLength && byteLength <= bytesMax)!;
        expect(`${got.transport}/${got.device} ${got.protocol}`).toBe(`${getRow.transport} ${getRow.protocol}`);
        here.set(there.subarray(REMOTE_OFFSET, REMOTE_OFFSET + byteLength), LOCAL_OFFSET);
        await expectContents(stack, local, here);
        rkey.release();
        for (const memory of [local, remote]) if (!(memory instanceof Uint8Array)) stack.context.memUnmap(memory);
      }
    });

    it.each(REMOTES)('to remote %s: all sizes, nbx', async (remoteKind) => {
      const stack = await fixture.open({ node: { asic, dmaThreads } });
      const { endpoint } = stack;
      for (const byteLength of SIZES) {
        const local = makeLocal(stack, localKind, byteLength + MARGIN);
        const remote = makeRemote(stack, remoteKind, byteLength + MARGIN);
        const rkey = rkeyOf(stack, remote);
        const here = pattern(byteLength + MARGIN, byteLength + 2);
        const there = new Uint8Array(byteLength + MARGIN);
        await fill(stack, local, here);
        await fill(stack, remote, there);
        const put = endpoint.putNbx(local, LOCAL_OFFSET, byteLength, rkey, REMOTE_OFFSET);
        expect(await settle(stack, put)).toBe(Status.OK);
        expect(await settle(stack, endpoint.flushNbx())).toBe(Status.OK);
        there.set(here.subarray(LOCAL_OFFSET, LOCAL_OFFSET + byteLength), REMOTE_OFFSET);
        await expectContents(stack, remote, there);
        await fill(stack, local, new Uint8Array(here.byteLength));
        const get = endpoint.getNbx(local, LOCAL_OFFSET, byteLength, rkey, REMOTE_OFFSET);
        expect(await settle(stack, get)).toBe(Status.OK);
        const want = new Uint8Array(here.byteLength);
        want.set(here.subarray(LOCAL_OFFSET, LOCAL_OFFSET + byteLength), LOCAL_OFFSET);
        await expectContents(stack, local, want);
        expect(stack.worker.requestsInUse).toBe(0);
      }
    });
  });

  it('moves nothing for zero bytes, and reports it', async () => {
    const stack = await fixture.open({ node: { asic, dmaThreads } });
    const remote = device(stack, 16);
    const rkey = rkeyOf(stack, remote);
    await fill(stack, remote, new Uint8Array(16).fill(3));
    expect(stack.endpoint.putNbx(new Uint8Array(0), 0, 0, rkey, 16)).toBe(Status.OK);
    expect(stack.endpoint.getNbx(new Uint8Array(4), 4, 0, rkey, 0)).toBe(Status.OK);
    const nothing = { byteLength: 0, transport: undefined, device: undefined, protocol: undefined };
    expect(await stack.endpoint.put(new Uint8Array(0), rkey)).toEqual(nothing);
    expect(await stack.endpoint.get(new Uint8Array(0), rkey)).toEqual(nothing);
    await expectContents(stack, remote, new Uint8Array(16).fill(3));
  });

  it('accepts an address for the remote side', async () => {
    const stack = await fixture.open({ node: { asic, dmaThreads } });
    const remote = device(stack, 64);
    const rkey = rkeyOf(stack, remote);
    await fill(stack, remote, new Uint8Array(64));
    await stack.endpoint.put(new Uint8Array(4).fill(9), rkey, { remoteAddress: remote.address + 60n });
    const expected = new Uint8Array(64).fill(9, 60);
    await expectContents(stack, remote, expected);
    for (const remoteAddress of [remote.address - 1n, remote.address + 61n, 0n]) {
      await expect(stack.endpoint.put(new Uint8Array(4), rkey, { remoteAddress })).rejects.toMatchObject({
        code: 'ERR_INVALID_PARAM',
      });
    }
    await expectContents(stack, remote, expected);
  });

  it('accepts small Buffers of the pool of any size, without pinning their neighbours for longer', async () => {
    const stack = await fixture.open({ node: { asic, dmaThreads } });
    const remote = device(stack, 4096);
    const rkey = rkeyOf(stack, remote);
    for (const byteLength of [1, 100, 1024, 1025, 2000]) {
      const source = Buffer.allocUnsafe(byteLength).fill(byteLength & 255);
      const target = Buffer.allocUnsafe(byteLength);
      await stack.endpoint.put(source, rkey);
      await stack.endpoint.get(target, rkey);
      expect(Buffer.compare(source, target)).toBe(0);
    }
  });
});

describe('memory at large offsets of a 96 GiB card', () => {
  const fixture = useContexts();

  it('is reached beyond 4 GiB and up to the last byte', async () => {
    const stack = await fixture.open({ node: { cards: 1 } });
    const byteLength = 64 * 2 ** 30;
    const remote = device(stack, byteLength);
    const rkey = rkeyOf(stack, remote);
    expect(rkey.byteLength).toBe(byteLength);
    const offsets = [0, 2 ** 32 - 3, 2 ** 32, 2 ** 32 + 5, 3 * 2 ** 33 + 1, byteLength - 5000];
    for (const [index, remoteOffset] of offsets.entries()) {
      await stack.endpoint.put(pattern(index % 2 === 0 ? 100 : 5000, index), rkey, { remoteOffset });
    }
    for (const [index, remoteOffset] of offsets.entries()) {
      // Later ranges overlap earlier ones: the last write applies.
      const size = index % 2 === 0 ? 100 : 5000;
      if (offsets.some((other, later) => later > index && Math.abs(other - remoteOffset) < 5000)) continue;
      const target = new Uint8Array(size);
      await stack.endpoint.get(target, rkey, { remoteOffset });
      expect(Buffer.compare(target, pattern(size, index))).toBe(0);
    }
    const first = new Uint8Array(100);
    await stack.endpoint.get(first, rkey, { remoteOffset: 0 });
    expect(Buffer.compare(first, pattern(100, 0))).toBe(0);
    for (const remoteOffset of [byteLength, byteLength - 4, 2 ** 52]) {
      await expect(stack.endpoint.put(new Uint8Array(8), rkey, { remoteOffset })).rejects.toMatchObject({
        code: 'ERR_INVALID_PARAM',
      });
    }
  });

  const title = 'copies more than 4 GiB within the card (needs a full run: 8 GiB of memory)';
  it.skipIf(!IS_FULL)(title, { timeout: 120_000 }, async () => {
    const stack = await fixture.open({ node: { cards: 1, dmaThreads: 1 } });
    const byteLength = 2 ** 32 + 4096;
    const [source, target] = [device(stack, byteLength), device(stack, byteLength)];
    const keys = [source, target].map((handle) => rkeyOf(stack, handle));
    const ends = [0, 2 ** 32 - 8, byteLength - 16];
    for (const [index, remoteOffset] of ends.entries()) {
      await stack.endpoint.put(pattern(16, index), keys[0]!, { remoteOffset });
    }
    expect(await stack.endpoint.put(source, keys[1]!)).toMatchObject({ byteLength, protocol: 'put/zcopy' });
    for (const [index, remoteOffset] of ends.entries()) {
      const bytes = new Uint8Array(16);
      await stack.endpoint.get(bytes, keys[1]!, { remoteOffset });
      expect(bytes).toEqual(pattern(16, index));
    }
    expect(stack.context.emulated).toBe(true);
    expect(source.memoryType).toBe(MemoryType.GAUDI);
  });
});

describe('a card whose driver accepts no transfers', () => {
  const fixture = useContexts();
  const WHY = 'the driver of gaudi3 reports no DMA channel for users';

  it.each([8, 65536])(
    'refuses %i bytes to and from its memory at once, with the reasons that explain() has',
    async (size) => {
      const node = fixture.node({ asic: 'gaudi3', channelMask: 0 });
      const owner = await fixture.openOn(node, { config: { ACC_DEVICES: 'gaudi0' } });
      const peer = await fixture.openOn(node, { config: { ACC_DEVICES: 'gaudi1' } });
      const memory = device(owner, size);
      const host = owner.context.memMap({ allocate: size });
      const [packed, packedHost] = [memory, host].map((handle) => owner.context.packRkey(handle)) as [
        Uint8Array,
        Uint8Array,
      ];
      const told = (endpoint: Endpoint, run: () => unknown, explained: Explanation): void => {
        let error: unknown;
        try {
          run();
        } catch (thrown) {
          error = thrown;
        }
        expect(error).toMatchObject({ code: 'ERR_UNREACHABLE', message: expect.stringContaining(WHY) });
        expect(explained.chosen).toEqual([]);
        expect(explained.at(size).winner).toBeUndefined();
        for (const { transport, reason } of explained.rejected) {
          expect((error as UcxError).details['reasons']).toContain(`${transport}: ${reason}`);
        }
        expect(endpoint.status).toBe(Status.OK);
      };
      for (const { worker } of [owner, peer]) {
        const endpoint = worker.endpoint(owner.worker.address());
        const rkey = endpoint.unpackRkey(packed);
        const bytes = new Uint8Array(size);
        told(endpoint, () => endpoint.putNbx(bytes, 0, size, rkey, 0), endpoint.explain('put', bytes, rkey));
        told(endpoint, () => endpoint.getNbx(bytes, 0, size, rkey, 0), endpoint.explain('get', bytes, rkey));
        expect(() => endpoint.atomicNbx('add', 1, rkey, 0)).toThrow(WHY);
        for (const operation of ['tag', 'am', 'stream', 'atomic'] as const) {
          const { chosen, rejected } = endpoint.explain(operation, bytes, rkey);
          expect(chosen).toEqual([]);
          expect(rejected.map(({ reason }) => reason)).toContain(WHY);
        }
        rkey.release();
      }
      const toHost = owner.endpoint.unpackRkey(packedHost);
      const put = (): unknown => owner.endpoint.putNbx(memory, 0, size, toHost, 0);
      told(owner.endpoint, put, owner.endpoint.explain('put', memory, toHost));
      const sent = failureOf(() => owner.endpoint.tagSend(memory, { tag: 1 }));
      const received = failureOf(() => owner.worker.tagRecv(new Uint8Array(size), { tag: 1 }));
      expect(await sent).toMatchObject({ code: 'ERR_UNREACHABLE', cause: { message: expect.stringContaining(WHY) } });
      expect(await received).toMatchObject({ code: 'ERR_UNREACHABLE' });
    },
  );
});
