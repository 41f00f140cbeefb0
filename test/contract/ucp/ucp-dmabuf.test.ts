/**
 * The interface for network transports that reach device memory: the memory domain of the memory exports a dma-buf, that of the network registers it.
 * A transport of the suite emulates the network card; `ib` has to pass the same cases.
 */

import { describe, expect, it } from 'vitest';
import { type MemoryHandle, MemoryType, Status } from '../../../src/index.ts';
import { close as closeFd, Errno, isCloexec, openFileDescriptors } from '../../../src/sys/index.ts';
import { ManualClock } from '../../../src/ucs/sys/clock.ts';
import type { DmabufMemory, DmabufRange } from '../../../src/uct/api/host-dmabufs.ts';
import { ContextDmabufs } from '../../../src/uct/base/host/dmabufs.ts';
import { failureOf } from '../../fixtures/contexts.ts';
import { nativeHandle } from '../../fixtures/libucp/native-engine.ts';
import {
  contents,
  expectContents,
  expectSame,
  fill,
  keyFor,
  mappedOf,
  pattern,
  type Side,
  serving,
} from '../../fixtures/pair.ts';
import { FAKE_NAME } from '../../fixtures/transports/fake-memory-domain.ts';
import { type FakePair, useFakePairs } from '../../fixtures/transports/fake-pair.ts';
import { FakeUdmabuf } from '../../fixtures/transports/fake-udmabuf.ts';

const BYTES = 300_001;

describe('device memory of a network card', () => {
  const fixture = useFakePairs();

  it('is put and read directly, with its part of the key', async () => {
    const { network, one, two, ab } = fixture.pair();
    const [here, there] = [mappedOf(one, 'gaudi', BYTES), mappedOf(two, 'gaudi', BYTES)];
    expect(network.dmabufRegistrations).toBe(2);
    await fill(one, here, pattern(BYTES, 1));
    const rkey = keyFor(ab, two, there);
    const put = await ab.put(here, rkey);
    expect(put).toMatchObject({ transport: FAKE_NAME, device: 'net0', protocol: 'put/zcopy' });
    await expectContents(two, there, pattern(BYTES, 1));
    await fill(two, there, pattern(BYTES, 2));
    const target = new Uint8Array(1000);
    expect(await ab.get(target, rkey, { remoteOffset: 77 })).toMatchObject({ protocol: 'get/zcopy' });
    expectSame(target, pattern(BYTES, 2).subarray(77, 1077));
    expect(ab.explain('put', here, rkey).at(BYTES).winner).toMatchObject({ protocol: 'put/zcopy' });
  });

  it('is sent and received without staging', async () => {
    const { one, two, ab } = fixture.pair();
    for (const [from, to] of [
      ['gaudi', 'gaudi'],
      ['bytes', 'gaudi'],
      ['gaudi', 'registered'],
    ] as const) {
      const source = from === 'bytes' ? new Uint8Array(BYTES) : mappedOf(one, from, BYTES);
      const target = mappedOf(two, to, BYTES);
      await fill(one, source, pattern(BYTES, 5));
      const [sent] = await Promise.all([ab.tagSend(source, { tag: 1 }), two.worker.tagRecv(target, { tag: 1 })]);
      expect(sent).toMatchObject({ transport: FAKE_NAME, protocol: 'tag/rndv/get' });
      await expectContents(two, target, pattern(BYTES, 5), `${from} to ${to}`);
    }
    expect(two.worker.stats().counters).toMatchObject({ rndv_get_zcopy: 3, rndv_rtr_mtype: 0 });
  });

  it('is refused by its keys when it is unmapped', async () => {
    const { network, two, ab } = fixture.pair();
    const there = mappedOf(two, 'gaudi', BYTES);
    const packed = two.context.packRkey(there);
    const rkey = ab.unpackRkey(packed);
    await ab.put(pattern(100, 1), rkey);
    two.context.memUnmap(there);
    expect([network.liveMemories, network.engine!.imports]).toEqual([0, 0]);
    expect(await failureOf(() => ab.put(pattern(100, 1), rkey))).toMatchObject({ status: Status.INVALID_ADDR });
    rkey.release();
    expect(() => ab.unpackRkey(packed)).toThrow(expect.objectContaining({ status: Status.INVALID_ADDR }));
    // Later memory at the same address is not accessible with the old key.
    mappedOf(two, 'gaudi', BYTES);
    expect(() => ab.unpackRkey(packed)).toThrow(expect.objectContaining({ status: Status.INVALID_ADDR }));
  });

  it('stays mapped while the network card uses it', async () => {
    const { network, one, two, ab } = fixture.pair();
    const [here, there] = [mappedOf(one, 'gaudi', BYTES), mappedOf(two, 'gaudi', BYTES)];
    const rkey = keyFor(ab, two, there);
    network.isHeld = true;
    const put = ab.put(here, rkey);
    expect(() => one.context.memUnmap(here)).toThrow(expect.objectContaining({ status: Status.BUSY }));
    network.isHeld = false;
    await put;
    one.context.memUnmap(here);
  });

  it('leaves no descriptor behind: 1,000 times mapped and unmapped', () => {
    const { network, one } = fixture.pair();
    const keep = mappedOf(one, 'gaudi', 4096);
    const before = openFileDescriptors();
    for (let i = 0; i < 1000; i++) {
      const memory = mappedOf(one, 'gaudi', 4096);
      one.context.memUnmap(memory);
      expect(openFileDescriptors()).toBe(before);
    }
    expect(network.dmabufRegistrations).toBe(1001);
    one.context.memUnmap(keep);
    expect(network.liveMemories).toBe(0);
  });
});

describe('a key that lacks a part for want of memory', () => {
  const fixture = useFakePairs();

  it('is kept for a second, then packed again', async () => {
    const clock = new ManualClock(1e9);
    fixture.allow(/^remote key packed without a part for fake_net: .*ENOMEM/);
    const { network, one, two, ab } = fixture.pair({ clock });
    const [source, target] = [mappedOf(one, 'registered', 64), mappedOf(two, 'registered', 64)];
    network.keyErrno = Errno.ENOMEM;
    const partial = two.context.packRkey(target);
    network.keyErrno = 0;
    expect(two.context.packRkey(target)).toEqual(partial);
    clock.advance(1e9);
    const whole = two.context.packRkey(target);
    expect(whole.byteLength).toBeGreaterThan(partial.byteLength);
    expect(two.context.packRkey(target)).toEqual(whole);
    const rkey = ab.unpackRkey(whole);
    expect(ab.explain('put', source, rkey).at(64)?.winner?.transport).toContain(FAKE_NAME);
    rkey.release();
  });
});

describe('device memory that the network card cannot register', () => {
  const fixture = useFakePairs();

  const REFUSED = [
    ['an export that is forbidden', { oneEnv: { UCX_GAUDI_COPY_DMABUF: 'n' } }, Status.OK, /UCX_GAUDI_COPY_DMABUF=n/],
    ['a registration that is refused', {}, Status.UNSUPPORTED, /register a dma-buf: unsupported operation/],
  ] as const;

  it.each(REFUSED)('by %s is staged, and the reason is shown', async (_what, options, refusal, reason) => {
    const { network, one, two, ab } = fixture.pair(options);
    network.dmabufRefusal = refusal;
    const source = mappedOf(one, 'gaudi', BYTES);
    const before = openFileDescriptors();
    one.context.memUnmap(mappedOf(one, 'gaudi', BYTES));
    expect(openFileDescriptors()).toBe(before);
    network.dmabufRefusal = Status.OK;
    const target = mappedOf(two, 'registered', BYTES);
    const rkey = keyFor(ab, two, target);
    const missing = ab.explain('put', source, rkey).rejected.find(({ transport }) => transport.startsWith(FAKE_NAME));
    expect(missing!.reason).toMatch(/the local memory is not registered/);
    expect(missing!.reason).toMatch(reason);
    expect(fixture.logged.filter((message) => reason.test(message))).toHaveLength(2);
    await fill(one, source, pattern(BYTES, 3));
    const [sent] = await Promise.all([ab.tagSend(source, { tag: 1 }), two.worker.tagRecv(target, { tag: 1 })]);
    expect(sent).toMatchObject({ transport: FAKE_NAME, protocol: 'tag/rndv/put-pipeline' });
    await expectContents(two, target, pattern(BYTES, 3));
    await fill(two, target, new Uint8Array(BYTES));
    await serving({ one, two }, () => ab.put(source, rkey));
    await expectContents(two, target, pattern(BYTES, 3));
  });

  it('is not exported if the network card does not accept dma-bufs', () => {
    const { network, one } = fixture.pair({ hasDmabuf: false });
    const memory = mappedOf(one, 'gaudi', BYTES);
    expect([network.dmabufRegistrations, nativeHandle(memory).registrationErrors.size]).toEqual([0, 0]);
    expect(fixture.logged.join()).not.toMatch(/dma-buf/);
  });
});

describe('a dma-buf of device memory', () => {
  const fixture = useFakePairs();

  it('is a descriptor of the caller, of an allocation that is exported once', async () => {
    const { network, one } = fixture.pair();
    const memory = mappedOf(one, 'gaudi', BYTES);
    await fill(one, memory, pattern(BYTES, 8));
    const before = openFileDescriptors();
    const place = { address: memory.address + 100n, byteLength: 1000, sysDevice: 0 };
    const [first, second] = [one.context.exportDmabuf(place), one.context.exportDmabuf(place)];
    expect(first.fd).not.toBe(second.fd);
    expect([isCloexec(first.fd), openFileDescriptors()]).toEqual([true, before + 2]);
    closeFd(first.fd);
    const imported = network.engine!.import(second.fd, second.offset, 1000);
    closeFd(second.fd);
    const bytes = new Uint8Array(1000);
    network.engine!.read(imported, 0, bytes);
    expectSame(bytes, pattern(BYTES, 8).subarray(100, 1100));
    imported.unmap();
    expect(openFileDescriptors()).toBe(before);
  });

  it.each([
    [
      'host memory of others',
      { address: 4096, byteLength: 1 },
      'ERR_UNSUPPORTED',
      /host memory \(\[0x1000, \+1\) is not in a memfd of this library/,
    ],
    ['no range', { address: -1, byteLength: 1 }, 'ERR_INVALID_PARAM', /address/],
  ])('is refused of %s', (_what, place, code, message) => {
    const { one } = fixture.pair();
    expect(() => one.context.exportDmabuf(place)).toThrow(
      expect.objectContaining({ code, message: expect.stringMatching(message) }),
    );
  });

  it('is refused if the user forbids it, and for foreign memory that is only reported', () => {
    const { one } = fixture.pair({ oneEnv: { UCX_GAUDI_COPY_DMABUF: 'n' } });
    const memory = mappedOf(one, 'gaudi', BYTES);
    expect(() => one.context.exportDmabuf({ address: memory.address, byteLength: 1, sysDevice: 0 })).toThrow(
      /gaudi memory \(gaudi_copy: .*UCX_GAUDI_COPY_DMABUF=n/,
    );
    const foreign = { address: 2n ** 60n, byteLength: 4096 };
    one.context.memoryTypeEvent({ event: 'allocated', memoryType: MemoryType.GAUDI, ...foreign });
    expect(() => one.context.exportDmabuf(foreign)).toThrow(/not recognized by any memory domain/);
  });
});

describe('foreign HBM by its dma-buf', () => {
  const fixture = useFakePairs();

  /** Maps the bytes of `memory` of one end at the other, from `skip` on. */
  function mapAt({ context }: Side, owner: Side, memory: MemoryHandle, skip: number): MemoryHandle {
    const { address, byteLength } = memory;
    const place = { address: address + BigInt(skip), byteLength: byteLength - skip, sysDevice: 0 };
    const { fd, offset } = owner.context.exportDmabuf(place);
    const dmabuf = { fd, offset, byteLength: byteLength - skip };
    try {
      return context.memMap({ dmabuf, memoryType: MemoryType.GAUDI });
    } finally {
      closeFd(fd);
    }
  }

  it('is registered with the network card as well, which reaches it directly', async () => {
    const { network, one, two, ab } = fixture.pair();
    const memory = mappedOf(one, 'gaudi', BYTES);
    const here = mapAt(two, one, memory, 100);
    expect([network.dmabufRegistrations, network.liveMemories]).toEqual([2, 2]);
    const rkey = keyFor(ab, two, here);
    const source = pattern(BYTES - 100, 4);
    expect(await ab.put(source, rkey)).toMatchObject({ transport: FAKE_NAME, protocol: 'put/zcopy' });
    await expectContents(two, here, source);
    expectSame((await contents(one, memory)).subarray(100), source);
    two.context.memUnmap(here);
    expect(network.liveMemories).toBe(1);
  });

  it('is staged if the network card refuses it, and the reason is shown', async () => {
    const { network, one, two, ab } = fixture.pair();
    const memory = mappedOf(one, 'gaudi', BYTES);
    network.dmabufRefusal = Status.UNSUPPORTED;
    const here = mapAt(two, one, memory, 0);
    expect([...nativeHandle(here).registrationErrors.values()].join()).toMatch(
      /register a dma-buf: unsupported operation/,
    );
    expect(fixture.logged.filter((message) => /it is staged: register a dma-buf/.test(message))).toHaveLength(1);
    const rkey = keyFor(ab, two, here);
    await serving({ one, two }, () => ab.put(pattern(BYTES, 5), rkey));
    await expectContents(one, memory, pattern(BYTES, 5));
  });
});

describe('a dma-buf of host memory', () => {
  const fixture = useFakePairs();

  /** Both contexts with one device; the kernel can pin the pages of its dma-bufs, or not. */
  function setUp(isPinnable = true): FakePair {
    const udmabuf = new FakeUdmabuf();
    const hostDmabufs = (): ContextDmabufs => {
      const dmabufs = new ContextDmabufs(udmabuf);
      if (isPinnable) return dmabufs;
      return Object.assign(dmabufs, {
        map: (range: DmabufRange) => unpinnable(ContextDmabufs.prototype.map.call(dmabufs, range)),
      });
    };
    return fixture.pair({ hostDmabufs });
  }

  /** Memory of one end, mapped at the other from an odd byte on. */
  function sharedOf({ one, two }: FakePair): readonly [MemoryHandle, MemoryHandle] {
    const memory = one.context.memMap({ allocate: BYTES, shared: true });
    const { fd, offset } = one.context.exportDmabuf({ address: memory.address + 77n, byteLength: BYTES - 77 });
    const mapped = two.context.memMap({ dmabuf: { fd, offset, byteLength: BYTES - 77 }, memoryType: MemoryType.HOST });
    closeFd(fd);
    return [memory, mapped];
  }

  it('is memory of both contexts, which cards and networks reach', async () => {
    const pair = setUp();
    const { one, two, ab } = pair;
    const [memory, mapped] = sharedOf(pair);
    expect(mapped).toMatchObject({ memoryType: MemoryType.HOST, sysDevice: undefined, byteLength: BYTES - 77 });
    memory.bytes!.set(pattern(BYTES, 1));
    expectSame(mapped.bytes!, pattern(BYTES, 1).subarray(77));
    const hbm = mappedOf(two, 'gaudi', BYTES - 77);
    const intoHbm = await two.endpoint.put(mapped, keyFor(two.endpoint, two, hbm));
    expect(intoHbm.transport).toMatch(/^gaudi_cpy/);
    await expectContents(two, hbm, pattern(BYTES, 1).subarray(77));
    await fill(two, hbm, pattern(BYTES - 77, 2));
    await two.endpoint.get(mapped, keyFor(two.endpoint, two, hbm));
    expectSame(memory.bytes!.subarray(77), pattern(BYTES - 77, 2));
    const rkey = keyFor(ab, two, mapped);
    expect(await ab.put(pattern(1000, 3), rkey, { remoteOffset: 5 })).toMatchObject({ transport: FAKE_NAME });
    expectSame(memory.bytes!.subarray(82, 1082), pattern(1000, 3));
    await Promise.all([ab.tagSend(pattern(BYTES - 77, 4), { tag: 1 }), two.worker.tagRecv(mapped, { tag: 1 })]);
    expectSame(memory.bytes!.subarray(77), pattern(BYTES - 77, 4));
    // After its owner has unmapped it, it stays mapped in other contexts.
    one.context.memUnmap(memory);
    expectSame(mapped.bytes!, pattern(BYTES - 77, 4));
    two.context.memUnmap(mapped);
    expect(() => mapped.view()).toThrow(/unmapped|closed/i);
    expect((await failureOf(() => ab.put(pattern(8, 1), rkey))).status).toBe(Status.INVALID_ADDR);
  });

  it('whose pages no driver can pin is staged for cards', async () => {
    const pair = setUp(false);
    const { one, two, ab } = pair;
    const [memory, mapped] = sharedOf(pair);
    const parts = nativeHandle(mapped).mdMemory.map((part) => part?.mdName);
    expect(parts).not.toContain('gaudi_copy');
    expect(parts).toContain(FAKE_NAME);
    memory.bytes!.set(pattern(BYTES, 6));
    const hbm = mappedOf(one, 'gaudi', BYTES - 77);
    const ends = { one, two };
    const [sent] = await Promise.all([
      two.worker.endpoint(one.worker.address()).tagSend(mapped, { tag: 1 }),
      one.worker.tagRecv(hbm, { tag: 1 }),
    ]);
    expect(sent.transport).toBe(FAKE_NAME);
    await expectContents(one, hbm, pattern(BYTES, 6).subarray(77));
    await serving(ends, () => ab.put(hbm, keyFor(ab, two, mapped), { remoteOffset: 1, byteLength: 5000 }));
    expectSame(memory.bytes!.subarray(78, 5078), pattern(BYTES, 6).subarray(77, 5077));
  });

  it('leaves nothing behind: 300 times allocated, exported, mapped and unmapped', () => {
    const pair = setUp();
    const { one, two } = pair;
    const before = openFileDescriptors();
    for (let i = 0; i < 300; i++) {
      const [memory, mapped] = sharedOf(pair);
      expect(mapped.bytes!.byteLength).toBe(BYTES - 77);
      two.context.memUnmap(mapped);
      one.context.memUnmap(memory);
      expect(openFileDescriptors()).toBe(before);
    }
  });

  it('is not unmapped under a transfer of a card', async () => {
    const pair = setUp();
    const { two } = pair;
    const [, mapped] = sharedOf(pair);
    const hbm = mappedOf(two, 'gaudi', BYTES - 77);
    const put = two.endpoint.put(mapped, keyFor(two.endpoint, two, hbm));
    expect(() => two.context.memUnmap(mapped)).toThrow(expect.objectContaining({ status: Status.BUSY }));
    await put;
    two.context.memUnmap(mapped);
  });
});

/** The same memory, as of a driver that maps it without pages. */
function unpinnable(memory: DmabufMemory): DmabufMemory {
  return { bytes: memory.bytes, isPinnable: false, close: () => memory.close() };
}
