/** Memory through the whole stack, over both engines: the number of registrations, foreign memory by its address, advice, and memory queries. */

import { describe, expect, it } from 'vitest';
import {
  type Context,
  type Endpoint,
  MemoryType,
  type RcacheCounters,
  Status,
  type Worker,
} from '../../../src/index.ts';
import { addressOf, type MappedMemory, mapAnonymous } from '../../../src/sys/index.ts';
import { HL_MEM_OP } from '../../../src/uapi/index.ts';
import { device, failureOf, rkeyOf, type Stack, useContexts } from '../../fixtures/contexts.ts';
import { type CountingNode, countingNode } from '../../fixtures/driver/counting-node.ts';
import { ENGINES } from '../../fixtures/pair.ts';
import { fillPattern } from '../../fixtures/pattern.ts';
import { requires } from '../../fixtures/requires.ts';

const { MAP, UNMAP } = HL_MEM_OP;
const MIB = 2 ** 20;
const PAGE = 4096;
describe.each(ENGINES)('over %s', (engine) => {
  const fixture = useContexts(engine);

  interface Counted extends Omit<Stack, 'node'> {
    readonly counts: CountingNode;
  }

  /** A stack on a counting node, with these variables. */
  async function open(env: Readonly<Record<string, string>> = {}, dmaThreads = 0): Promise<Counted> {
    const counts = countingNode(fixture.node({ dmaThreads }));
    const context = await fixture.openOn(counts.node as never, { env: { UCX_TLS: 'posix,self,gaudi', ...env } });
    return { ...context, counts };
  }

  function pattern(byteLength: number, seed: number): Uint8Array {
    const bytes = new Uint8Array(new ArrayBuffer(byteLength));
    fillPattern(bytes, seed);
    return bytes;
  }

  /** Counters of the registrations of host memory. */
  function counters(context: Context): RcacheCounters {
    return context.registrationCaches.find(({ name }) => name === 'gaudi_copy')!.counters;
  }

  /** Bytes of cached registrations. */
  function registered(context: Context): number {
    return context.registrationCaches.find(({ name }) => name === 'gaudi_copy')!.totalSize;
  }

  async function settled(condition: () => boolean): Promise<void> {
    for (let turn = 0; turn < 2000 && !condition(); turn++) await new Promise((resolve) => setTimeout(resolve, 1));
    expect(condition()).toBe(true);
  }

  describe('puts of host memory that is not mapped', () => {
    it('register it once, whatever the number of puts', async () => {
      const stack = await open();
      const rkey = rkeyOf(stack, device(stack, MIB));
      const bytes = pattern(MIB, 1);
      await stack.endpoint.put(bytes, rkey);
      const maps = stack.counts.count(MAP);
      for (let i = 0; i < 50; i++) await stack.endpoint.put(bytes, rkey);
      expect(stack.counts.count(MAP)).toBe(maps);
      expect(counters(stack.context)).toMatchObject({ mem_regs: 1, mem_deregs: 0, misses: 1, hits_fast: 50, puts: 51 });
      const back = new Uint8Array(MIB);
      await stack.endpoint.get(back, rkey);
      expect(Buffer.compare(back, bytes)).toBe(0);
      expect(counters(stack.context).mem_regs).toBe(2);
    });

    it.each([
      ['UCX_RCACHE_ENABLE', 'n'],
      ['UCX_GAUDI_COPY_RCACHE', 'n'],
    ])('register it every time with %s=%s', async (name, value) => {
      const stack = await open({ [name]: value });
      const rkey = rkeyOf(stack, device(stack, MIB));
      const bytes = pattern(MIB, 2);
      for (let i = 0; i < 5; i++) await stack.endpoint.put(bytes, rkey);
      expect(counters(stack.context)).toMatchObject({ mem_regs: 5, mem_deregs: 5 });
      expect(registered(stack.context)).toBe(0);
      const back = new Uint8Array(MIB);
      await stack.endpoint.get(back, rkey);
      expect(Buffer.compare(back, bytes)).toBe(0);
    });

    it.each([
      ['UCX_RCACHE_ENABLE', 'y', 2 * MIB],
      ['UCX_RCACHE_ENABLE', 'n', 0],
      ['UCX_GAUDI_COPY_RCACHE', 'n', 0],
    ])('stay registered after a rendezvous, too, or do not: %s=%s', async (name, value, bytes) => {
      requires(engine === 'native', 'the rendezvous of the native engine');
      const stack = await open({ [name]: value });
      const { endpoint, worker } = stack;
      const [sent, received, there] = [pattern(MIB, 7), new Uint8Array(MIB), device(stack, MIB)];
      await Promise.all([endpoint.tagSend(sent, { tag: 1n }), worker.tagRecv(there, { tag: 1n })]);
      await Promise.all([endpoint.tagSend(there, { tag: 1n }), worker.tagRecv(received, { tag: 1n })]);
      expect(Buffer.compare(received, sent)).toBe(0);
      expect(registered(stack.context)).toBe(bytes);
    });

    it.each([
      ['y', undefined, 16 * MIB],
      ['n', undefined, MIB + PAGE],
      ['auto', '0', MIB + PAGE],
      ['auto', '1', 16 * MIB],
    ])(
      'register the whole buffer or its pages: REG_WHOLE_ALLOC=%s, MAX_REG_RATIO=%s',
      async (whole, ratio, bytesMax) => {
        const stack = await open({
          UCX_GAUDI_COPY_REG_WHOLE_ALLOC: whole,
          ...(ratio === undefined ? {} : { UCX_GAUDI_COPY_MAX_REG_RATIO: ratio }),
        });
        const rkey = rkeyOf(stack, device(stack, 2 * MIB));
        const all = pattern(16 * MIB, 3);
        const one = all.subarray(3 * MIB + 17, 4 * MIB + 17);
        await stack.endpoint.put(one, rkey);
        expect(registered(stack.context)).toBeLessThanOrEqual(bytesMax);
        expect(registered(stack.context)).toBeGreaterThan(bytesMax - 2 * PAGE);
        await stack.endpoint.put(one, rkey);
        expect(counters(stack.context).mem_regs).toBe(1);
        // The next bytes belong to the same buffer: one registration, or one that is merged with the first.
        await stack.endpoint.put(all.subarray(4 * MIB, 5 * MIB), rkey, { remoteOffset: MIB });
        expect(counters(stack.context)).toMatchObject(
          bytesMax === 16 * MIB ? { mem_regs: 1, regions_merged: 0 } : { mem_regs: 2, regions_merged: 1 },
        );
        const back = new Uint8Array(2 * MIB);
        await stack.endpoint.get(back, rkey);
        expect(Buffer.compare(back.subarray(0, MIB), one)).toBe(0);
        expect(Buffer.compare(back.subarray(MIB), all.subarray(4 * MIB, 5 * MIB))).toBe(0);
      },
    );
  });

  describe('memory of another library', () => {
    /** Memory that is mapped and unmapped without the context. */
    function foreign(pages: number): MappedMemory {
      return mapAnonymous(pages * PAGE);
    }

    it('is mapped by its address, and its bytes move', async () => {
      const stack = await open();
      const memory = foreign(64);
      fillPattern(memory.u8, 4);
      const handle = stack.context.memMap({ address: BigInt(memory.address) + 100n, byteLength: 100_000 });
      expect(handle).toMatchObject({ address: BigInt(memory.address + 100), byteLength: 100_000, mapped: true });
      const target = device(stack, 100_000);
      await stack.endpoint.put(handle, rkeyOf(stack, target));
      const back = new Uint8Array(100_000);
      await stack.endpoint.get(back, rkeyOf(stack, target));
      expect(Buffer.compare(back, memory.u8.subarray(100, 100_100))).toBe(0);
      // As the remote side, too.
      fillPattern(memory.u8, 44);
      await stack.endpoint.get(target, rkeyOf(stack, handle));
      await stack.endpoint.get(back, rkeyOf(stack, target));
      expect(Buffer.compare(back, memory.u8.subarray(100, 100_100))).toBe(0);
      stack.context.memUnmap(handle);
      memory.close();
    });

    it('is registered once if mappings of it overlap', async () => {
      const stack = await open();
      const memory = foreign(64);
      const rkey = rkeyOf(stack, device(stack, MIB));
      const map = (page: number, pages: number): ReturnType<Context['memMap']> =>
        stack.context.memMap({ address: memory.address + page * PAGE, byteLength: pages * PAGE });
      const first = map(0, 16);
      const inside = map(4, 4);
      const before = counters(stack.context).mem_regs;
      const across = map(8, 16);
      expect([before, counters(stack.context).mem_regs, counters(stack.context).regions_merged]).toEqual([1, 2, 1]);
      for (const [seed, handle] of [first, inside, across].entries()) {
        fillPattern(handle.bytes!, seed);
        const expected = handle.bytes!.slice();
        await stack.endpoint.put(handle, rkey);
        const back = new Uint8Array(expected.byteLength);
        await stack.endpoint.get(back, rkey);
        expect(Buffer.compare(back, expected)).toBe(0);
      }
      for (const handle of [first, inside, across]) stack.context.memUnmap(handle);
      memory.close();
    });

    it('that is reported unmapped is not used again', async () => {
      const stack = await open();
      const { context, endpoint } = stack;
      const memory = foreign(16);
      const rkey = rkeyOf(stack, device(stack, MIB));
      const [gone, other] = [0, 8].map((page) =>
        context.memMap({ address: memory.address + page * PAGE, byteLength: 8 * PAGE }),
      ) as [ReturnType<Context['memMap']>, ReturnType<Context['memMap']>];
      for (const handle of [gone, other]) await endpoint.put(handle, rkey);
      const remote = rkeyOf(stack, gone);
      context.memoryUnmapped(memory.address + 5 * PAGE, PAGE);
      expect([gone.mapped, other.mapped]).toEqual([false, true]);
      expect(counters(context).unmap_events).toBe(1);
      expect(await failureOf(() => endpoint.put(gone, rkey))).toMatchObject({ code: 'ERR_CLOSED' });
      expect(await failureOf(() => context.memUnmap(gone))).toMatchObject({ code: 'ERR_INVALID_PARAM' });
      expect(await failureOf(() => context.packRkey(gone))).toMatchObject({ code: 'ERR_INVALID_PARAM' });
      // libucp does not know that host memory is unmapped.
      if (engine === 'native') {
        expect((await failureOf(() => endpoint.put(new Uint8Array(8), remote))).status).toBeLessThan(0);
      }
      await settled(() => stack.counts.count(UNMAP) === 1);
      await endpoint.put(other, rkey);
      const again = context.memMap({ address: memory.address, byteLength: 8 * PAGE });
      fillPattern(again.bytes!, 9);
      await endpoint.put(again, rkey);
      const back = new Uint8Array(8 * PAGE);
      await endpoint.get(back, rkey);
      expect(Buffer.compare(back, again.bytes!)).toBe(0);
      memory.close();
    });

    it('may be reported unmapped inside a callback, and during transfers', async () => {
      const stack = await open({}, 1);
      const { context, worker, endpoint } = stack;
      const memory = foreign(2048);
      const rkey = rkeyOf(stack, device(stack, 8 * MIB));
      const handle = context.memMap({ address: memory.address, byteLength: 2048 * PAGE });
      await endpoint.put(new Uint8Array(MIB), rkey);
      let unmaps = -1;
      const small = endpoint.putNbx(new Uint8Array(MIB), 0, MIB, rkey, 0, {
        noImmediateCompletion: true,
        callback: () => {
          const before = stack.counts.count(UNMAP);
          context.memoryUnmapped(memory.address, memory.byteLength);
          unmaps = stack.counts.count(UNMAP) - before;
        },
      });
      const large = endpoint.putNbx(handle, 0, handle.byteLength, rkey, 0, { noImmediateCompletion: true });
      await finish(worker, small, large);
      expect([unmaps, handle.mapped]).toEqual([0, false]);
      await settled(() => stack.counts.count(UNMAP) > 0);
      memory.close();
    });

    it.each([
      [0, PAGE, 'address'],
      [-1, PAGE, 'address'],
      [1.5, PAGE, 'address'],
      [2 ** 47, PAGE, 'address'],
      ['0x1000', PAGE, 'address'],
      [PAGE, 0, 'byteLength'],
      [PAGE, -5, 'byteLength'],
      [PAGE, 2 ** 33, 'byteLength'],
    ])('is refused at %s with %s bytes', async (address, byteLength, argument) => {
      const { context } = await open();
      const error = await failureOf(() => context.memMap({ address: address as number, byteLength }));
      expect(error).toMatchObject({ code: 'ERR_INVALID_PARAM', message: expect.stringContaining(argument) });
    });

    it('is refused if it is not mapped, or not host memory', async () => {
      const { context } = await open();
      expect(await failureOf(() => context.memMap({ address: PAGE, byteLength: PAGE }))).toMatchObject({
        code: 'ERR_INVALID_ADDR',
        message: expect.stringContaining('not mapped'),
      });
      const memory = foreign(4);
      const range = { address: memory.address, byteLength: 4 * PAGE };
      context.memoryTypeEvent({ event: 'allocated', memoryType: MemoryType.RDMA, ...range });
      expect(await failureOf(() => context.memMap(range))).toMatchObject({
        code: 'ERR_INVALID_PARAM',
        message: expect.stringContaining('rdma'),
      });
      context.memoryTypeEvent({ event: 'freed', memoryType: MemoryType.RDMA, ...range });
      context.memUnmap(context.memMap(range));
      memory.close();
    });
  });

  describe('advice', () => {
    it('maps host memory into all cards in advance', async () => {
      const stack = await open();
      const { context } = stack;
      const rkeys = [0, 1].map((card) => rkeyOf(stack, device(stack, MIB, card)));
      // What the cards themselves need for their first transfer.
      for (const rkey of rkeys) await stack.endpoint.put(pattern(MIB, 6), rkey);
      const handle = context.memMap({ buffer: pattern(MIB, 5) });
      const before = stack.counts.count(MAP);
      context.memAdvise(handle, 'normal');
      expect(stack.counts.count(MAP)).toBe(before);
      context.memAdvise(handle, 'will-need', { offset: 4096, byteLength: 8192 });
      expect(stack.counts.count(MAP) - before).toBe(2);
      context.memAdvise(handle, 'will-need');
      for (const rkey of rkeys) await stack.endpoint.put(handle, rkey);
      expect(stack.counts.count(MAP) - before).toBe(2);
    });

    it('is accepted for memory of every kind', async () => {
      const stack = await open();
      const memory = mapAnonymous(4 * PAGE);
      const handles = [
        device(stack, 100),
        stack.context.memMap({ allocate: 10_000 }),
        stack.context.memMap({ buffer: new Uint8Array(100) }),
        stack.context.memMap({ address: memory.address, byteLength: 4 * PAGE }),
      ];
      for (const handle of handles) {
        for (const advice of ['normal', 'will-need'] as const) {
          expect(() => stack.context.memAdvise(handle, advice)).not.toThrow();
        }
        stack.context.memUnmap(handle);
      }
      memory.close();
    });

    it('that is invalid is refused by name', async () => {
      const stack = await open();
      const { context } = stack;
      for (const handle of [device(stack, 100), context.memMap({ buffer: new Uint8Array(100) })]) {
        for (const [call, name] of [
          [() => context.memAdvise(handle, 'often' as never), 'advice'],
          [() => context.memAdvise(handle, 'will-need', { offset: 1, byteLength: 100 }), '100 bytes at offset 1'],
          [() => context.memAdvise(handle, 'will-need', { offset: -1 }), 'argument offset'],
          [() => context.memAdvise(handle, 'will-need', { byteLength: 0 }), 'byteLength'],
          [() => context.memAdvise({} as never, 'normal'), 'handle'],
        ] as const) {
          expect(await failureOf(call)).toMatchObject({
            code: 'ERR_INVALID_PARAM',
            message: expect.stringContaining(name),
          });
        }
        context.memUnmap(handle);
        expect(await failureOf(() => context.memAdvise(handle, 'normal'))).toMatchObject({ code: 'ERR_INVALID_PARAM' });
      }
    });
  });

  describe.each(['y', 'n', 'try'])('what lies at an address, with UCX_MEMTYPE_CACHE=%s', (cache) => {
    const use = (): Promise<Counted> => open({ UCX_MEMTYPE_CACHE: cache });

    it('is gaudi memory from the first byte of an allocation to the last, and nowhere else', async () => {
      const stack = await use();
      const { context } = stack;
      const handle = device(stack, 3 * PAGE, 1);
      const { address } = handle;
      const expected = { memoryType: MemoryType.GAUDI, sysDevice: 1, baseAddress: address, allocLength: 3 * PAGE };
      for (const offset of [0n, 1n, 5000n, BigInt(3 * PAGE - 1)]) {
        expect(context.memQuery({ address: address + offset, byteLength: 1 })).toEqual(expected);
      }
      expect(context.memQuery({ address, byteLength: 3 * PAGE, sysDevice: 1 })).toEqual(expected);
      for (const outside of [address - 1n, address + BigInt(3 * PAGE)]) {
        expect(context.memQuery({ address: outside, byteLength: 1 }).memoryType).toBe(MemoryType.HOST);
      }
      expect(context.memQuery({ address, byteLength: 1, sysDevice: 0 }).memoryType).toBe(MemoryType.HOST);
      for (const [from, byteLength] of [
        [address, 3 * PAGE + 1],
        [address - 1n, 2],
      ] as const) {
        expect(await failureOf(() => context.memQuery({ address: from, byteLength }))).toMatchObject({
          status: Status.INVALID_ADDR,
        });
      }
      context.memUnmap(handle);
      expect(context.memQuery({ address, byteLength: 1 }).memoryType).toBe(MemoryType.HOST);
    });

    it('is memory of two cards if they share addresses', async () => {
      const stack = await use();
      const { context } = stack;
      const [one, two] = [device(stack, PAGE, 0), device(stack, PAGE, 1)];
      const { address } = one;
      expect(two.address).toBe(address);
      for (const sysDevice of [0, 1]) {
        expect(context.memQuery({ address, byteLength: PAGE, sysDevice })).toMatchObject({ sysDevice });
      }
      expect(await failureOf(() => context.memQuery({ address, byteLength: 1 }))).toMatchObject({
        status: Status.INVALID_ADDR,
      });
      context.memUnmap(one);
      expect(context.memQuery({ address, byteLength: 1 })).toMatchObject({ sysDevice: 1 });
    });

    it('is host memory in buffers of every kind', async () => {
      const { context } = await use();
      const shared = new Uint8Array(new SharedArrayBuffer(100));
      const buffers = [new Uint8Array(100), Buffer.from('of the pool'), Buffer.alloc(100_000), shared];
      for (const bytes of buffers) {
        const address = addressOf(bytes);
        expect(context.memQuery({ address, byteLength: bytes.byteLength })).toEqual({
          memoryType: MemoryType.HOST,
          sysDevice: undefined,
          baseAddress: BigInt(address),
          allocLength: bytes.byteLength,
        });
      }
    });

    it.each([
      [{ address: -1n, byteLength: 1 }, 'address'],
      [{ address: 2n ** 64n, byteLength: 1 }, 'address'],
      [{ address: 0.5, byteLength: 1 }, 'address'],
      [{ address: '1', byteLength: 1 }, 'address'],
      [{ address: 1n, byteLength: 0 }, 'byteLength'],
      [{ address: 2n ** 64n - 1n, byteLength: 2 }, 'byteLength'],
      [{ address: 1n, byteLength: 1, sysDevice: -1 }, 'sysDevice'],
    ])('is not asked for %s', async (memory, argument) => {
      const { context } = await use();
      expect(await failureOf(() => context.memQuery(memory as never))).toMatchObject({
        code: 'ERR_INVALID_PARAM',
        message: expect.stringContaining(argument),
      });
    });
  });

  describe('reports of foreign memory', () => {
    it('distinguish it from host memory, until it is freed', async () => {
      const { context } = await open();
      const memory = { memoryType: MemoryType.CUDA, address: 0x5000_0000n, byteLength: 8192 };
      context.memoryTypeEvent({ event: 'allocated', ...memory });
      context.memoryTypeEvent({ event: 'allocated', ...memory, address: 0x5000_2000n, sysDevice: 7 });
      expect(context.memQuery({ address: 0x5000_1fff, byteLength: 1 })).toEqual({
        memoryType: MemoryType.CUDA,
        sysDevice: undefined,
        baseAddress: 0x5000_0000n,
        allocLength: 8192,
      });
      expect(context.memQuery({ address: 0x5000_2000, byteLength: 1 })).toMatchObject({ sysDevice: 7 });
      expect(await failureOf(() => context.memQuery({ address: 0x5000_1fff, byteLength: 2 }))).toMatchObject({
        status: Status.INVALID_ADDR,
      });
      context.memoryTypeEvent({ event: 'freed', ...memory });
      expect(context.memQuery({ address: 0x5000_1fff, byteLength: 1 })).toMatchObject({ memoryType: MemoryType.HOST });
      for (const [change, name] of [
        [{ memoryType: MemoryType.HOST }, 'memoryType'],
        [{ memoryType: MemoryType.UNKNOWN }, 'memoryType'],
        [{ event: 'moved' }, 'event'],
        [{ byteLength: 0 }, 'byteLength'],
      ] as const) {
        const report = { event: 'allocated', ...memory, ...change } as never;
        expect(await failureOf(() => context.memoryTypeEvent(report))).toMatchObject({
          code: 'ERR_INVALID_PARAM',
          message: expect.stringContaining(name),
        });
      }
    });
  });

  /** Drives requests to their end. */
  async function finish(worker: Worker, ...requests: readonly ReturnType<Endpoint['putNbx']>[]): Promise<void> {
    for (const request of requests) {
      if (typeof request === 'number') throw new Error(`no request: ${request}`);
      for (let turn = 0; !request.isCompleted; turn++) {
        if (worker.progress() === 0 && turn % 256 === 255) await new Promise(setImmediate);
      }
      expect(request.status).toBe(Status.OK);
      request.free();
    }
  }
});
