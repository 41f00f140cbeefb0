/**
 * The seam for network transports that reach device memory: the memory domain that knows the memory exports a dma-buf, that of the network registers it.
 * A transport of the suite plays the network card; `ib` passes the same cases.
 */

import { describe, expect, it } from 'vitest';
import { MemoryType, Status } from '../../src/index.ts';
import { close as closeFd, isCloexec, openFileDescriptors } from '../../src/sys/index.ts';
import { failureOf } from '../fixtures/contexts.ts';
import { FAKE_NAME } from '../fixtures/fake-memory-domain.ts';
import { useFakePairs } from '../fixtures/fake-pair.ts';
import { nativeHandle } from '../fixtures/native-engine.ts';
import { expectContents, expectSame, fill, keyFor, mappedOf, pattern, serving } from '../fixtures/pair.ts';

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
      expect(sent).toMatchObject({ transport: FAKE_NAME, protocol: 'rndv/get' });
      await expectContents(two, target, pattern(BYTES, 5), `${from} to ${to}`);
    }
    expect(two.worker.stats().counters).toMatchObject({ rndv_get_zcopy: 3, rndv_rtr_mtype: 0 });
  });

  it('is refused when it is unmapped, to whoever still has a key', async () => {
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
    // What is at the place next is none of the old key.
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

describe('device memory that no network card gets', () => {
  const fixture = useFakePairs();

  const REFUSED = [
    ['an export that is forbidden', { oneEnv: { UCX_GAUDI_COPY_DMABUF: 'n' } }, Status.OK, /UCX_GAUDI_COPY_DMABUF=n/],
    ['a registration that is refused', {}, Status.UNSUPPORTED, /register a dma-buf: unsupported operation/],
  ] as const;

  it.each(REFUSED)('by %s is staged, and the reason shows', async (_what, options, refusal, reason) => {
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
    expect(missing!.reason).toMatch(/has no handle for the local memory/);
    expect(missing!.reason).toMatch(reason);
    expect(fixture.logged.filter((message) => reason.test(message))).toHaveLength(2);
    await fill(one, source, pattern(BYTES, 3));
    const [sent] = await Promise.all([ab.tagSend(source, { tag: 1 }), two.worker.tagRecv(target, { tag: 1 })]);
    expect(sent).toMatchObject({ transport: FAKE_NAME, protocol: 'rndv/put-pipeline' });
    await expectContents(two, target, pattern(BYTES, 3));
    await fill(two, target, new Uint8Array(BYTES));
    await serving({ one, two }, () => ab.put(source, rkey));
    await expectContents(two, target, pattern(BYTES, 3));
  });

  it('is not asked for where the network card takes no dma-bufs', () => {
    const { network, one } = fixture.pair({ hasDmabuf: false });
    const memory = mappedOf(one, 'gaudi', BYTES);
    expect([network.dmabufRegistrations, nativeHandle(memory).refusals.size]).toEqual([0, 0]);
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
      /host memory \(what lies at 0x1000 is in no memfd/,
    ],
    ['no range', { address: -1, byteLength: 1 }, 'ERR_INVALID_PARAM', /address/],
  ])('is refused of %s', (_what, place, code, message) => {
    const { one } = fixture.pair();
    expect(() => one.context.exportDmabuf(place)).toThrow(
      expect.objectContaining({ code, message: expect.stringMatching(message) }),
    );
  });

  it('is refused where the user forbids it, and where memory of others is only reported', () => {
    const { one } = fixture.pair({ oneEnv: { UCX_GAUDI_COPY_DMABUF: 'n' } });
    const memory = mappedOf(one, 'gaudi', BYTES);
    expect(() => one.context.exportDmabuf({ address: memory.address, byteLength: 1, sysDevice: 0 })).toThrow(
      /gaudi memory \(gaudi_copy: .*UCX_GAUDI_COPY_DMABUF=n/,
    );
    const foreign = { address: 2n ** 60n, byteLength: 4096 };
    one.context.memoryTypeEvent({ event: 'allocated', memoryType: MemoryType.GAUDI, ...foreign });
    expect(() => one.context.exportDmabuf(foreign)).toThrow(/no memory domain knows it/);
  });
});
