/** Foreign memory by its dma-buf: HBM of another context that a card imports, used by every kind of operation, exported further, and revoked. */

import { closeSync } from 'node:fs';
import { afterEach, describe, expect, it, vi } from 'vitest';
import type { EmulatedNode } from '../../../src/emulator/index.ts';
import { Context, type MemoryHandle, MemoryType, Status } from '../../../src/index.ts';
import {
  close as closeFd,
  dup,
  memfdCreate,
  OpenFlag,
  openFileDescriptors,
  pipe2,
  Udmabuf,
} from '../../../src/sys/index.ts';
import { ASIC_PROFILES } from '../../../src/uapi/index.ts';
import { failureOf, rkeyOf, type Stack, useContexts } from '../../fixtures/contexts.ts';
import { contents, ENGINES, expectContents, expectSame, fill, keyFor, pattern, serving } from '../../fixtures/pair.ts';
import { withoutDescriptors } from '../../fixtures/processes/no-descriptors.ts';
import { FakeUdmabuf } from '../../fixtures/transports/fake-udmabuf.ts';
import { asProcesses } from '../../fixtures/transports/ipc-fixture.ts';

const GAUDI = MemoryType.GAUDI;
const BYTES = 300_001;
/** Offset of the mapped memory in its allocation. */
const SKIP = 4097;

type End = Omit<Stack, 'node'>;

/** A context on one card, and its memory that others map. */
interface Owner {
  readonly end: End;
  readonly memory: MemoryHandle;
  /** Exports it from `skip` on. */
  export(skip?: number): { readonly fd: number; readonly offset: number };
}

/** The environment of a context with one card. */
function cardEnv(node: EmulatedNode, card: number, tls: string): Readonly<Record<string, string>> {
  const table = [{ index: 0, bus_id: node.cards()[card]!.busId }];
  return { UCX_TLS: tls, GAUDI_MAPPING_TABLE: JSON.stringify(table) };
}

const CARDS = ENGINES.flatMap((engine) =>
  (['gaudi2', 'gaudi', 'gaudi3'] as const).map((asic) => [asic, engine] as const),
);

describe.each(CARDS)('HBM of another context on %s over %s', (asic, engine) => {
  const fixture = useContexts(engine);

  function onCard(node: EmulatedNode, card: number, tls = 'all'): Promise<End> {
    return fixture.openOn(node, { env: cardEnv(node, card, tls) });
  }

  async function owner(node: EmulatedNode, card = 1): Promise<Owner> {
    const end = await onCard(node, card);
    const memory = end.context.memMap({ allocate: SKIP + BYTES, memoryType: GAUDI });
    const place = (skip: number) => ({ address: memory.address + BigInt(skip), byteLength: SKIP + BYTES - skip });
    return { end, memory, export: (skip = SKIP) => end.context.exportDmabuf({ ...place(skip), sysDevice: 0 }) };
  }

  /** Maps the memory of an owner, from {@link SKIP} on. */
  function mapped({ context }: End, from: Owner): MemoryHandle {
    const { fd, offset } = from.export();
    try {
      return context.memMap({ dmabuf: { fd, offset, byteLength: BYTES }, memoryType: GAUDI });
    } finally {
      closeSync(fd);
    }
  }

  /** The contents that the owner reads. */
  async function seen({ end, memory }: Owner): Promise<Uint8Array> {
    return (await contents(end, memory)).subarray(SKIP);
  }

  it('is accessed by puts and gets of the own card, from host memory and HBM, and sent and received', async () => {
    const node = fixture.node({ asic, importDmabuf: true });
    const [from, here] = [await owner(node), await onCard(node, 0)];
    const memory = mapped(here, from);
    expect(memory).toMatchObject({
      memoryType: GAUDI,
      sysDevice: 0,
      byteLength: BYTES,
      bytes: undefined,
      mapped: true,
    });
    const rkey = rkeyOf(here, memory);
    const put = await here.endpoint.put(pattern(BYTES, 1), rkey);
    expect(put.transport).toMatch(/^gaudi/);
    expectSame(await seen(from), pattern(BYTES, 1));
    const hbm = here.context.memMap({ allocate: BYTES, memoryType: GAUDI });
    await fill(here, hbm, pattern(BYTES, 2));
    await here.endpoint.put(hbm, rkey, { byteLength: 1000, remoteOffset: 13 });
    const expected = pattern(BYTES, 1);
    expected.set(pattern(BYTES, 2).subarray(0, 1000), 13);
    expectSame(await seen(from), expected);
    await here.endpoint.put(new Uint8Array([1, 2, 3]), rkey, { remoteOffset: BYTES - 3 });
    expected.set([1, 2, 3], BYTES - 3);
    const target = new Uint8Array(BYTES);
    await here.endpoint.get(target, rkey);
    expectSame(target, expected);
    // As the local side, of a put into own HBM and of messages.
    await here.endpoint.put(memory, rkeyOf(here, hbm));
    await expectContents(here, hbm, expected);
    await fill(here, hbm, pattern(BYTES, 3));
    await Promise.all([here.endpoint.tagSend(hbm, { tag: 1 }), here.worker.tagRecv(memory, { tag: 1 })]);
    expectSame(await seen(from), pattern(BYTES, 3));
    const received = new Uint8Array(BYTES);
    await Promise.all([here.endpoint.tagSend(memory, { tag: 2 }), here.worker.tagRecv(received, { tag: 2 })]);
    expectSame(received, pattern(BYTES, 3));
    const outside = await failureOf(() => here.endpoint.put(new Uint8Array(2), rkey, { remoteOffset: BYTES - 1 }));
    expect(outside.status).toBeLessThan(0);
    here.context.memUnmap(memory);
    expect(memory.mapped).toBe(false);
    expect((await failureOf(() => here.endpoint.put(new Uint8Array(8), rkey))).status).toBe(Status.INVALID_ADDR);
    // It still belongs to its owner.
    expectSame(await seen(from), pattern(BYTES, 3));
  });

  it.each([
    ['in this process', () => {}, 'all', /^gaudi_ipc/],
    ['by socket', asProcesses, 'all', /^gaudi_ipc/],
    ['staged', () => {}, 'tcp,self,gaudi_cpy', /^(tcp|libucp)/],
  ])('is reached by a third context through its keys, %s', async (_how, share, tls, transport) => {
    const node = fixture.node({ asic, importDmabuf: true, cards: 3 });
    const [from, here] = [await owner(node), await onCard(node, 0, tls)];
    const there = await onCard(node, 2, tls);
    const memory = mapped(here, from);
    const ends = { one: there, two: here };
    const ab = there.worker.endpoint(here.worker.address());
    share();
    const rkey = keyFor(ab, here, memory);
    await serving(ends, async () => {
      const put = await ab.put(pattern(BYTES, 4), rkey);
      await ab.flush();
      expect(put.transport).toMatch(transport);
      expectSame(await seen(from), pattern(BYTES, 4));
      const hbm = there.context.memMap({ allocate: BYTES, memoryType: GAUDI });
      await ab.get(hbm, rkey);
      await expectContents(there, hbm, pattern(BYTES, 4));
      await fill(there, hbm, pattern(BYTES, 5));
      await Promise.all([ab.tagSend(hbm, { tag: 1 }), here.worker.tagRecv(memory, { tag: 1 })]);
      expectSame(await seen(from), pattern(BYTES, 5));
      here.context.memUnmap(memory);
      expect((await failureOf(() => ab.put(new Uint8Array(BYTES), rkey))).status).toBeLessThan(0);
      expectSame(await seen(from), pattern(BYTES, 5));
    });
    rkey.release();
  });

  it('is detected by its address, and exported again', async () => {
    const node = fixture.node({ asic, importDmabuf: true });
    const [from, here] = [await owner(node), await onCard(node, 0)];
    const memory = mapped(here, from);
    const inside = { address: memory.address + 100n, byteLength: 50, sysDevice: 0 };
    expect(here.context.memQuery(inside)).toEqual({
      memoryType: GAUDI,
      sysDevice: 0,
      baseAddress: memory.address,
      allocLength: BYTES,
    });
    const [original, again] = [from.export(SKIP + 100), here.context.exportDmabuf(inside)];
    expect([again.offset, again.fd === original.fd]).toEqual([original.offset, false]);
    const twice = here.context.memMap({ dmabuf: { ...again, byteLength: 50 }, memoryType: GAUDI, sysDevice: 0 });
    for (const { fd } of [original, again]) closeSync(fd);
    await fill(here, twice, pattern(50, 6));
    expectSame((await seen(from)).subarray(100, 150), pattern(50, 6));
    here.context.memUnmap(memory);
    // Mappings of the same bytes are independent.
    await expectContents(here, twice, pattern(50, 6));
    here.context.memUnmap(twice);
    expect(here.context.memQuery(inside).memoryType).toBe(MemoryType.HOST);
  });

  /** Whether the driver keeps a closed context until its dma-bufs are closed; the others reset the card at once. */
  const keepsClosed = ASIC_PROFILES[asic].capabilities.vendorDriver;

  if (keepsClosed) {
    it('stays after its owner has closed, until it is unmapped', async () => {
      const node = fixture.node({ asic, importDmabuf: true });
      const [from, here] = [await owner(node), await onCard(node, 0)];
      const memory = mapped(here, from);
      await from.end.context.close();
      await fill(here, memory, pattern(BYTES, 7));
      await expectContents(here, memory, pattern(BYTES, 7));
      expect(node.card(1).hardResets).toBe(0);
      here.context.memUnmap(memory);
      await expect.poll(() => node.card(1).hardResets).toBe(1);
    });
  } else {
    it('that its owner revokes fails with a typed error, and can be unmapped', async () => {
      const node = fixture.node({ asic, importDmabuf: true });
      fixture.allow(/reports user_engine_err, razwi, page_fault/);
      const [from, here] = [await owner(node), await onCard(node, 0)];
      const memory = mapped(here, from);
      const rkey = rkeyOf(here, memory);
      await here.endpoint.put(pattern(BYTES, 7), rkey);
      await from.end.context.close();
      const failure = await failureOf(() => here.endpoint.put(pattern(BYTES, 8), rkey));
      expect(failure).toMatchObject({ code: 'ERR_IO_ERROR', cause: { code: 'ERR_GAUDI_DMA_FAILED' } });
      here.context.memUnmap(memory);
      const own = here.context.memMap({ allocate: BYTES, memoryType: GAUDI });
      await fill(here, own, pattern(BYTES, 9));
      await expectContents(here, own, pattern(BYTES, 9));
    });
  }

  it('leaves no descriptor and no mapping behind: 200 times mapped, used and unmapped', async () => {
    const node = fixture.node({ asic, importDmabuf: true });
    const [from, here] = [await owner(node), await onCard(node, 0)];
    const first = mapped(here, from);
    await fill(here, first, new Uint8Array(8));
    here.context.memUnmap(first);
    const mappings = (): number => [...node.card(0).context!.imports.list()].length;
    const before = [openFileDescriptors(), mappings()];
    for (let i = 0; i < 200; i++) {
      const memory = mapped(here, from);
      await fill(here, memory, pattern(64, i).subarray(0, 8));
      here.context.memUnmap(memory);
      expect([openFileDescriptors(), mappings()]).toEqual(before);
    }
    expectSame((await seen(from)).subarray(0, 8), pattern(64, 199).subarray(0, 8));
  });

  it('is mapped or refused without descriptors, and leaves none behind', async () => {
    const node = fixture.node({ asic, importDmabuf: true });
    const [from, here] = [await owner(node), await onCard(node, 0)];
    const { fd, offset } = from.export();
    const dmabuf = { fd, offset, byteLength: BYTES };
    const map = (): MemoryHandle => here.context.memMap({ dmabuf, memoryType: GAUDI });
    here.context.memUnmap(map());
    const before = openFileDescriptors();
    const outcomes: (number | 'mapped')[] = [];
    for (let left = 0; left <= 4; left++) {
      await withoutDescriptors(() => {
        try {
          here.context.memUnmap(map());
          outcomes.push('mapped');
        } catch (error) {
          outcomes.push((error as { status: number }).status);
        }
      }, left);
      expect(openFileDescriptors()).toBe(before);
    }
    // The duplicate of this process, and that of the driver.
    expect(outcomes.slice(0, 2)).toEqual([Status.EXCEEDS_LIMIT, Status.NO_MEMORY]);
    expect(outcomes.at(-1)).toBe('mapped');
    closeSync(fd);
    const memory = mapped(here, from);
    await fill(here, memory, pattern(BYTES, 1));
    expectSame(await seen(from), pattern(BYTES, 1));
  });

  it('is refused without a link to its card', async () => {
    const node = fixture.node({ asic, importDmabuf: true, cards: 3, absentLinks: [[0, 1]] });
    const [from, here, linked] = [await owner(node), await onCard(node, 0), await onCard(node, 2)];
    closeSync(from.export().fd);
    const before = openFileDescriptors();
    expect(() => mapped(here, from)).toThrow(expect.objectContaining({ code: 'ERR_GAUDI_DEVICE_NOT_FOUND' }));
    expect(openFileDescriptors()).toBe(before);
    linked.context.memUnmap(mapped(linked, from));
  });

  it('is refused by a driver without imports, such as upstream’s', async () => {
    const node = fixture.node({ asic, importDmabuf: false });
    const [from, here] = [await owner(node), await onCard(node, 0)];
    closeSync(from.export().fd);
    const before = openFileDescriptors();
    expect(() => mapped(here, from)).toThrow(
      expect.objectContaining({
        code: 'ERR_UNSUPPORTED',
        message: expect.stringMatching(/habanalabs driver of the vendor/),
      }),
    );
    expect(openFileDescriptors()).toBe(before);
  });
});

describe.each(ENGINES)('memMap({ dmabuf }) over %s refuses', (engine) => {
  const fixture = useContexts(engine);

  /** A context, a dma-buf of HBM, and the resources that must not change. */
  async function setUp(): Promise<{ stack: Stack; fd: number; held: () => unknown; end: () => void }> {
    const stack = await fixture.open();
    const { address } = stack.context.memMap({ allocate: BYTES, memoryType: GAUDI, sysDevice: 1 });
    const { fd } = stack.context.exportDmabuf({ address, byteLength: 1, sysDevice: 1 });
    const imports = (card: number): number => [...stack.node.card(card).context!.imports.list()].length;
    const held = (): unknown => [openFileDescriptors(), imports(0), imports(1)];
    return { stack, fd, held, end: () => closeSync(fd) };
  }

  const WRONG_FDS = [-1, 1.5, Number.NaN, Number.POSITIVE_INFINITY, 2 ** 31, 2 ** 53, '3', 3n, null, undefined, {}];
  const WRONG_OFFSETS = [-1, 0.5, Number.NaN, Number.POSITIVE_INFINITY, 2 ** 53, '0', 0n, null];
  const WRONG_LENGTHS = [0, -1, 0.5, Number.NaN, Number.POSITIVE_INFINITY, 2 ** 53, '1', 1n, null, undefined];

  it.each([MemoryType.HOST, GAUDI])('invalid fields, of memory type %s', async (memoryType) => {
    const { stack, fd, held, end } = await setUp();
    const good = { fd, offset: 0, byteLength: 4096 };
    const before = held();
    for (const [field, values] of [
      ['fd', WRONG_FDS],
      ['offset', WRONG_OFFSETS],
      ['byteLength', WRONG_LENGTHS],
    ] as const) {
      for (const value of values) {
        const dmabuf = { ...good, [field]: value };
        expect(() => stack.context.memMap({ dmabuf, memoryType })).toThrow(
          expect.objectContaining({
            code: 'ERR_INVALID_PARAM',
            message: expect.stringMatching(new RegExp(`argument dmabuf\\.${field} .*got `)),
          }),
        );
      }
    }
    for (const dmabuf of [undefined, null, 3, 'fd']) {
      expect(() => stack.context.memMap({ dmabuf: dmabuf as never, memoryType })).toThrow(
        expect.objectContaining({ code: 'ERR_INVALID_PARAM', message: expect.stringContaining('argument dmabuf') }),
      );
    }
    expect(held()).toEqual(before);
    end();
  });

  it.each([MemoryType.HOST, GAUDI])(
    'descriptors that are no dma-bufs and closed ones, of memory type %s',
    async (memoryType) => {
      const { stack, fd, held, end } = await setUp();
      const [file, [reading, writing], closed] = [memfdCreate('no-dmabuf'), pipe2(OpenFlag.CLOEXEC), dup(fd)];
      closeFd(closed);
      const before = held();
      for (const wrong of [file, reading, writing, closed]) {
        expect(() => stack.context.memMap({ dmabuf: { fd: wrong, byteLength: 4096 }, memoryType })).toThrow(
          expect.objectContaining({
            code: 'ERR_INVALID_PARAM',
            message: expect.stringMatching(/argument (dmabuf\.)?fd must be/),
          }),
        );
      }
      expect(held()).toEqual(before);
      for (const each of [file, reading, writing]) closeFd(each);
      end();
    },
  );

  it('ranges beyond the end, other types of memory, unknown cards, and a closed context', async () => {
    const { stack, fd, held, end } = await setUp();
    const { context } = stack;
    const dmabuf = { fd, byteLength: 4096 };
    const before = held();
    for (const [params, code, message] of [
      [
        { dmabuf: { fd, offset: 2 ** 52, byteLength: 1 }, memoryType: GAUDI },
        'ERR_INVALID_PARAM',
        /byteLength plus offset/,
      ],
      [{ dmabuf: { fd, byteLength: 2 ** 52 }, memoryType: GAUDI }, 'ERR_INVALID_PARAM', /byteLength plus offset/],
      [{ dmabuf, memoryType: 99 as never }, 'ERR_INVALID_PARAM', /memoryType/],
      [{ dmabuf, memoryType: MemoryType.CUDA }, 'ERR_UNSUPPORTED', /cuda memory/],
      [{ dmabuf, memoryType: GAUDI, sysDevice: 9 }, 'ERR_GAUDI_DEVICE_NOT_FOUND', /sysDevice 9/],
      [{ dmabuf, memoryType: GAUDI, sysDevice: -1 }, 'ERR_INVALID_PARAM', /sysDevice/],
      [{ dmabuf }, 'ERR_INVALID_PARAM', /dmabuf\.fd must be a dma-buf/],
    ] as const) {
      expect(() => context.memMap(params)).toThrow(
        expect.objectContaining({ code, message: expect.stringMatching(message) }),
      );
      expect(held()).toEqual(before);
    }
    await context.close();
    expect(() => context.memMap({ dmabuf, memoryType: GAUDI })).toThrow(
      expect.objectContaining({ code: 'ERR_CLOSED' }),
    );
    end();
  });
});

const UNAVAILABLE_REASON = new Udmabuf().unavailableReason;

describe.each(ENGINES)('host memory over %s', (engine) => {
  const fixture = useContexts(engine);

  it('that can be exported is used like other memory', async () => {
    const stack = await fixture.open();
    const { context, endpoint } = stack;
    const memory = context.memMap({ allocate: BYTES, shared: true });
    expect(memory.bytes!.every((byte) => byte === 0)).toBe(true);
    await endpoint.put(pattern(BYTES, 1), rkeyOf(stack, memory));
    expectSame(memory.bytes!, pattern(BYTES, 1));
    const hbm = context.memMap({ allocate: BYTES, memoryType: GAUDI });
    await endpoint.put(memory, rkeyOf(stack, hbm));
    memory.bytes!.fill(0);
    await endpoint.get(memory, rkeyOf(stack, hbm));
    expectSame(memory.bytes!, pattern(BYTES, 1));
    context.memUnmap(memory);
    expect(() => context.memMap({ allocate: 64, shared: 1 as never })).toThrow(/argument shared/);
  });

  it.skipIf(UNAVAILABLE_REASON === undefined)(
    'is not exported without /dev/udmabuf, which is named (needs a machine without /dev/udmabuf)',
    async () => {
      const { context } = await fixture.open();
      const { address, byteLength } = context.memMap({ allocate: BYTES, shared: true });
      expect(() => context.exportDmabuf({ address, byteLength })).toThrow(
        expect.objectContaining({ code: 'ERR_UNSUPPORTED', message: expect.stringContaining(UNAVAILABLE_REASON!) }),
      );
    },
  );

  it('that is registered or not shared is not exported, because of its memory, whatever the machine has', async () => {
    const { context } = await fixture.open();
    for (const memory of [context.memMap({ buffer: new Uint8Array(BYTES) }), context.memMap({ allocate: BYTES })]) {
      expect(() => context.exportDmabuf(memory)).toThrow(
        expect.objectContaining({
          code: 'ERR_UNSUPPORTED',
          message: expect.stringMatching(
            /is not in a memfd of this library, .* memMap\(\{ allocate, shared: true \}\)/,
          ),
        }),
      );
    }
  });

  it.skipIf(UNAVAILABLE_REASON !== undefined)(
    'is exported by the device of this machine (needs /dev/udmabuf)',
    async () => {
      const { context } = await fixture.open();
      const { address, bytes } = context.memMap({ allocate: BYTES, shared: true });
      const { fd, offset } = context.exportDmabuf({ address: address + 5n, byteLength: 100 });
      const other = await Context.create({ env: {}, configDirectories: [], engine });
      const mapped = other.memMap({ dmabuf: { fd, offset, byteLength: 100 } });
      closeSync(fd);
      bytes!.set(pattern(100, 2), 5);
      expectSame(mapped.bytes!, pattern(100, 2));
      await other.close();
    },
  );
});

describe.each(ENGINES)('host memory of another context over %s', (engine) => {
  const fixture = useContexts(engine);
  afterEach(() => void vi.restoreAllMocks());

  /** Makes every context export by the substitute of /dev/udmabuf. */
  function withUdmabuf(): void {
    const fake = new FakeUdmabuf();
    vi.spyOn(Udmabuf.prototype, 'unavailableReason', 'get').mockReturnValue(undefined);
    vi.spyOn(Udmabuf.prototype, 'create').mockImplementation((...args) => fake.create(...args));
    vi.spyOn(Udmabuf.prototype, 'byteLengthOf').mockImplementation((fd) => fake.byteLengthOf(fd));
  }

  it.each(['all', 'tcp,self,gaudi_cpy'])('is used like own memory, over %s', async (tls) => {
    withUdmabuf();
    const node = fixture.node();
    const one = await fixture.openOn(node, { env: cardEnv(node, 0, tls) });
    const two = await fixture.openOn(node, { env: cardEnv(node, 1, tls) });
    const memory = one.context.memMap({ allocate: SKIP + BYTES, shared: true });
    const { fd, offset } = one.context.exportDmabuf({ address: memory.address + BigInt(SKIP), byteLength: BYTES });
    const mapped = two.context.memMap({ dmabuf: { fd, offset, byteLength: BYTES } });
    const seen = (): Uint8Array => memory.bytes!.slice(SKIP);
    const ab = one.worker.endpoint(two.worker.address());
    const rkey = keyFor(ab, two, mapped);
    await serving({ one, two }, async () => {
      await ab.put(pattern(BYTES, 1), rkey);
      await ab.flush();
      expectSame(seen(), pattern(BYTES, 1));
      expectSame(mapped.bytes!, pattern(BYTES, 1));
      const hbm = two.context.memMap({ allocate: BYTES, memoryType: GAUDI });
      await two.endpoint.put(mapped, rkeyOf(two, hbm));
      await expectContents(two, hbm, pattern(BYTES, 1));
      await fill(two, hbm, pattern(BYTES, 2));
      await two.endpoint.get(mapped, rkeyOf(two, hbm));
      expectSame(seen(), pattern(BYTES, 2));
      await Promise.all([ab.tagSend(pattern(BYTES, 3), { tag: 1 }), two.worker.tagRecv(mapped, { tag: 1 })]);
      expectSame(seen(), pattern(BYTES, 3));
      // It stays mapped after its owner has unmapped it.
      one.context.memUnmap(memory);
      expectSame(mapped.bytes!, pattern(BYTES, 3));
    });
    rkey.release();
    two.context.memUnmap(mapped);
    expect(() => mapped.view()).toThrow(/unmapped|closed/i);
    closeSync(fd);
  });
});
