/** The contract of a memory domain: foreign memory that it registers by a dma-buf. */

import { expect, it } from 'vitest';
import {
  close as closeFd,
  dup,
  fstat,
  memfdCreate,
  OpenFlag,
  openFileDescriptors,
  pipe2,
  SocketType,
  unixSocketPair,
} from '../../../src/sys/index.ts';
import { hasMemoryType, MemoryType } from '../../../src/ucs/memory/memory-type.ts';
import { isUcxError } from '../../../src/ucs/type/error.ts';
import { Status } from '../../../src/ucs/type/status.ts';
import type { MdMemory } from '../../../src/uct/api/memory.ts';
import { type DmabufExport, type DmabufRegion, MdFlag } from '../../../src/uct/api/memory-domain.ts';
import { requires } from '../../fixtures/requires.ts';
import {
  CountingCompletion,
  driveUntil,
  errorOf,
  finish,
  keyOf,
  type MdSetup,
  ownBytes,
  started,
  UctFixture,
} from './uct-fixture.ts';

const BYTES = 300_001;
/** Longer than every dma-buf of the suite: arenas are at most that large. */
const ARENA_BYTES_MAX = 2 ** 40;

/** Declares the cases. */
export function memoryDomainImportCases(setup: MdSetup): void {
  const fixture = new UctFixture(setup);
  const imports = (): boolean => fixture.has(MdFlag.REG_DMABUF) && fixture.under.foreignDmabuf !== undefined;

  /** Whether the memory domain has devices of the memory, at which it gets an address. Others name it as the caller does. */
  const assignsAddresses = (): boolean => hasMemoryType(fixture.md.attributes.accessMemoryTypes, MemoryType.GAUDI);

  /** A dma-buf of the second card, its descriptor closed at the end. */
  function withDmabuf(use: (dmabuf: DmabufExport) => void): void {
    const dmabuf = fixture.under.foreignDmabuf!(BYTES);
    try {
      use(dmabuf);
    } finally {
      closeFd(dmabuf.fd);
    }
  }

  function regionOf({ fd, offset }: DmabufExport, change: Partial<DmabufRegion> = {}): DmabufRegion {
    const place = { address: 0n, memoryType: MemoryType.GAUDI, sysDevice: 0 };
    return { fd, offset, byteLength: BYTES, ...place, ...change };
  }

  it('are memory of the importing card, and are removed once', () => {
    requires(imports(), 'devices that register dma-bufs');
    withDmabuf((dmabuf) => {
      const { md } = fixture;
      const before = openFileDescriptors();
      const memory = md.memRegDmabuf!(regionOf(dmabuf));
      expect(memory).toMatchObject({
        mdName: md.attributes.name,
        memoryType: MemoryType.GAUDI,
        sysDevice: 0,
        byteLength: BYTES,
        bytes: undefined,
        live: true,
      });
      if (assignsAddresses()) expect(memory.address).toBeGreaterThan(0n);
      // The caller keeps its descriptor; the memory domain has duplicated it.
      expect(fstat(dmabuf.fd).ino).toBeGreaterThan(0);
      md.memDereg(memory);
      expect(memory.live).toBe(false);
      expect(openFileDescriptors()).toBe(before);
      expect(errorOf(() => md.memDereg(memory)).status).toBe(Status.INVALID_PARAM);
      expect(errorOf(() => md.memFree(memory)).status).toBe(Status.INVALID_PARAM);
    });
  });

  it('are put to and got from through every registration of them, at any alignment', async () => {
    requires(imports(), 'devices that register dma-bufs');
    const { md } = fixture;
    const dmabuf = fixture.under.foreignDmabuf!(BYTES);
    const whole = md.memRegDmabuf!(regionOf(dmabuf));
    const part = md.memRegDmabuf!(regionOf(dmabuf, { offset: dmabuf.offset + 4097, byteLength: 1001 }));
    closeFd(dmabuf.fd);
    const iface = md.openIface(md.resources[0]!);
    const endpoint = iface.connect(iface.address);
    const [source, target] = [ownBytes(BYTES).map((_, i) => (i * 7) % 251), ownBytes(BYTES)];
    const locals = [md.memReg(source), md.memReg(target)] as const;
    const keys = [keyOf(md, whole), keyOf(md, part)] as const;
    const all = (memory: MdMemory, byteLength: number) => [{ memory, offset: 0, byteLength }];
    expect(await finish(iface, (end) => endpoint.putZcopy(all(locals[0], BYTES), 0, keys[0], end))).toBe(Status.OK);
    expect(await finish(iface, (end) => endpoint.getZcopy(all(locals[1], 1001), 0, keys[1], end))).toBe(Status.OK);
    expect(Buffer.compare(target.subarray(0, 1001), source.subarray(4097, 5098))).toBe(0);
    const word = new Uint8Array([1, 2, 3, 4]);
    expect(await finish(iface, (end) => endpoint.putShort(word, 0, 4, 3, keys[1], end))).toBe(Status.OK);
    expect(await finish(iface, (end) => endpoint.getZcopy(all(locals[1], BYTES), 0, keys[0], end))).toBe(Status.OK);
    source.set(word, 4100);
    expect(Buffer.compare(target, source)).toBe(0);
    expect(endpoint.putShort(word, 0, 4, 998, keys[1])).toBe(Status.INVALID_ADDR);
    md.memDereg(part);
    expect(endpoint.putShort(word, 0, 4, 0, keys[1])).toBe(Status.INVALID_ADDR);
    expect(keys[0].live).toBe(true);
    for (const key of keys) key.release();
    for (const memory of [whole, ...locals]) md.memDereg(memory);
    iface.close();
  });

  it('are not removed during a transfer', async () => {
    requires(imports(), 'devices that register dma-bufs');
    const { md } = fixture;
    const dmabuf = fixture.under.foreignDmabuf!(BYTES);
    const memory = md.memRegDmabuf!(regionOf(dmabuf));
    closeFd(dmabuf.fd);
    const iface = md.openIface(md.resources[0]!);
    const endpoint = iface.connect(iface.address);
    const [local, rkey] = [md.memReg(ownBytes(BYTES)), keyOf(md, memory)];
    const put = new CountingCompletion();
    const iov = [{ memory: local, offset: 0, byteLength: BYTES }];
    expect(await started(iface, put, () => endpoint.putZcopy(iov, 0, rkey, put))).toBe(Status.INPROGRESS);
    expect(errorOf(() => md.memDereg(memory)).status).toBe(Status.BUSY);
    expect([memory.live, rkey.live]).toEqual([true, true]);
    await driveUntil(iface, () => put.calls > 0);
    expect(put.failure).toBe(Status.OK);
    md.memDereg(memory);
    md.memDereg(local);
    rkey.release();
    iface.close();
  });

  it('must be dma-bufs: files, pipes, sockets, closed and invalid descriptors are refused', () => {
    requires(imports(), 'devices that register dma-bufs');
    withDmabuf((dmabuf) => {
      const { md } = fixture;
      const closed = dup(dmabuf.fd);
      const [memfd, [reading, writing], sockets] = [
        memfdCreate('no-dmabuf'),
        pipe2(OpenFlag.CLOEXEC),
        unixSocketPair(SocketType.STREAM),
      ];
      closeFd(closed);
      const before = openFileDescriptors();
      const none = [memfd, reading, writing, sockets[0].fd, closed];
      const wrong = [-1, -100, 1.5, Number.NaN, 2 ** 31, Number.POSITIVE_INFINITY, '3', undefined, null, 3n, {}];
      for (const fd of [...none, ...wrong]) {
        const error = errorOf(() => md.memRegDmabuf!(regionOf(dmabuf, { fd: fd as number })));
        expect(isUcxError(error)).toBe(true);
        expect(error).toMatchObject({ status: Status.INVALID_PARAM, message: expect.stringMatching(/argument fd/) });
        expect(openFileDescriptors()).toBe(before);
      }
      for (const fd of [memfd, reading, writing]) closeFd(fd);
      for (const socket of sockets) socket.close();
    });
  });

  it.each([
    ['offset', [-1, -4096, 0.5, Number.NaN, Number.POSITIVE_INFINITY, 2 ** 53, '0', 0n, null]],
    [
      'byteLength',
      [0, -1, 1.5, Number.NaN, Number.POSITIVE_INFINITY, 2 ** 53 - 1, ARENA_BYTES_MAX, '1', 1n, undefined],
    ],
  ] as const)('are refused at a range that no dma-buf has: %s', (field, values) => {
    requires(imports(), 'devices that register dma-bufs');
    withDmabuf((dmabuf) => {
      const before = openFileDescriptors();
      for (const value of values) {
        const region = regionOf(dmabuf, { offset: dmabuf.offset + 1, [field]: value as number });
        const error = errorOf(() => fixture.md.memRegDmabuf!(region));
        expect(error).toMatchObject({ status: Status.INVALID_PARAM });
        expect(error.message).toContain(field);
        expect(openFileDescriptors()).toBe(before);
      }
    });
  });

  it('are refused beyond their end, and for an unknown card', () => {
    requires(imports(), 'devices that register dma-bufs');
    withDmabuf((dmabuf) => {
      const before = openFileDescriptors();
      const refusals = [
        [{ offset: ARENA_BYTES_MAX }, Status.INVALID_PARAM, /byteLength plus offset/],
        [{ memoryType: MemoryType.HOST }, Status.INVALID_PARAM, /memoryType/],
        [{ sysDevice: 7 }, Status.NO_DEVICE, /sysDevice 7/],
        [{ sysDevice: -1 }, Status.INVALID_PARAM, /sysDevice/],
      ] as const;
      for (const [change, status, message] of refusals) {
        if (status === Status.NO_DEVICE && !assignsAddresses()) continue;
        const error = errorOf(() => fixture.md.memRegDmabuf!(regionOf(dmabuf, change)));
        expect(error).toMatchObject({ status, message: expect.stringMatching(message) });
        expect(openFileDescriptors()).toBe(before);
      }
    });
  });

  it('that are still registered are removed with the memory domain', () => {
    requires(imports(), 'devices that register dma-bufs');
    withDmabuf((dmabuf) => {
      const memory = fixture.md.memRegDmabuf!(regionOf(dmabuf));
      fixture.md.close();
      expect(memory.live).toBe(false);
      expect(errorOf(() => fixture.md.memRegDmabuf!(regionOf(dmabuf))).status).toBe(Status.INVALID_PARAM);
    });
  });
}
