/** The contract of a memory domain: memory, keys and queries, case by case. */

import { describe, expect, it, vi } from 'vitest';
import {
  close as closeFd,
  fstat,
  isCloexec,
  isSyscallError,
  mapFile,
  openFileDescriptors,
} from '../../../src/sys/index.ts';
import {
  hasMemoryType,
  MEMORY_TYPE_COUNT,
  MemoryType,
  memoryTypesOfMask,
} from '../../../src/ucs/memory/memory-type.ts';
import { isUcxError } from '../../../src/ucs/type/error.ts';
import { Status } from '../../../src/ucs/type/status.ts';
import type { MdMemory } from '../../../src/uct/api/memory.ts';
import { MdFlag } from '../../../src/uct/api/memory-domain.ts';
import { requires } from '../../fixtures/requires.ts';
import { memoryDomainImportCases } from './memory-domain-imports.ts';
import { memoryDomainKeyCases } from './memory-domain-keys.ts';
import { memoryDomainRegistrationCases } from './memory-domain-registration.ts';
import { errorOf, type MdSetup, UctFixture } from './uct-fixture.ts';

/** Possible statuses of a refused argument. */
const REFUSALS: readonly Status[] = [Status.INVALID_PARAM, Status.UNSUPPORTED, Status.NO_MEMORY, Status.NO_DEVICE];
const PAGE = 4096;

/**
 * Declares the suite.
 * @param setup opens the memory domain for one case, with at least two devices if it has any
 */
export function memoryDomainContract(name: string, setup: MdSetup): void {
  describe(`memory domain: ${name}`, () => {
    attributeCases(setup);
    allocationCases(setup);
    describe('registration', () => memoryDomainRegistrationCases(setup));
    describe('queries', () => queryCases(setup));
    describe('dma-bufs', () => dmabufCases(setup));
    describe('dma-bufs of others', () => memoryDomainImportCases(setup));
    describe('advice', () => adviceCases(setup));
    describe('remote keys', () => memoryDomainKeyCases(setup));
    describe('closing', () => closingCases(setup));
  });
}

function attributeCases(setup: MdSetup): void {
  describe('attributes', () => {
    const fixture = new UctFixture(setup);

    it('are consistent with one another', () => {
      const { attributes } = fixture.md;
      expect(attributes.name).not.toBe('');
      expect(fixture.has(MdFlag.ALLOC)).toBe(attributes.allocateMemoryTypes !== 0);
      expect(fixture.has(MdFlag.REG)).toBe(attributes.registerMemoryTypes !== 0);
      expect(fixture.has(MdFlag.EXPORT_DMABUF)).toBe(attributes.dmabufMemoryTypes !== 0);
      const takesDmabufs = (attributes.registerDmabufMemoryTypes ?? 0) !== 0;
      expect(fixture.has(MdFlag.REG_DMABUF)).toBe(takesDmabufs);
      expect(fixture.md.memRegDmabuf !== undefined).toBe(takesDmabufs);
      expect(fixture.has(MdFlag.NEED_RKEY)).toBe(attributes.rkeyPackedBytes > 0);
      expect(attributes.dmabufMemoryTypes & ~attributes.detectMemoryTypes).toBe(0);
      expect(attributes.cacheMemoryTypes & ~attributes.registerMemoryTypes).toBe(0);
      expect(attributes.allocateBytesMax > 0).toBe(fixture.has(MdFlag.ALLOC));
      expect(attributes.registerBytesMax).toBeGreaterThan(0);
      expect(attributes.registerCost.overheadNs).toBeGreaterThanOrEqual(0);
      expect(attributes.registerCost.perByteNs).toBeGreaterThanOrEqual(0);
    });

    it('name the memory types that allocate, and no others', () => {
      for (let type = 0; type < MEMORY_TYPE_COUNT; type++) {
        const memoryType = type as MemoryType;
        if (hasMemoryType(fixture.md.attributes.allocateMemoryTypes, memoryType)) {
          const memory = fixture.md.memAlloc(100, { memoryType });
          expect(memory).toMatchObject({ memoryType, byteLength: 100, live: true, mdName: fixture.md.attributes.name });
          fixture.md.memFree(memory);
        } else {
          expect(REFUSALS).toContain(errorOf(() => fixture.md.memAlloc(100, { memoryType })).status);
        }
      }
    });

    it('list resources that can be opened', () => {
      expect(fixture.md.resources.length).toBeGreaterThan(0);
      for (const resource of fixture.md.resources) {
        const iface = fixture.md.openIface(resource);
        expect(iface.attributes.resource).toBe(resource);
        expect(iface.outstanding).toBe(0);
        iface.close();
        iface.close();
      }
    });
  });
}

function allocationCases(setup: MdSetup): void {
  describe('allocation', () => {
    const fixture = new UctFixture(setup);
    const types = (): MemoryType[] => memoryTypesOfMask(fixture.md.attributes.allocateMemoryTypes);

    it('allocates memory and frees it once', () => {
      for (const memoryType of types()) {
        const memory = fixture.md.memAlloc(PAGE + 1, { memoryType });
        expect(memory.byteLength).toBe(PAGE + 1);
        expect(memory.bytes?.byteLength).toBe(memoryType === MemoryType.HOST ? PAGE + 1 : undefined);
        expect(memory.address).toBeGreaterThan(0n);
        fixture.md.memFree(memory);
        expect(memory.live).toBe(false);
        expect(errorOf(() => fixture.md.memFree(memory)).status).toBe(Status.INVALID_PARAM);
        expect(errorOf(() => fixture.md.memDereg(memory)).status).toBe(Status.INVALID_PARAM);
        expect(fixture.under.deviceBytes()).toBe(0);
      }
    });

    it('distinguishes consecutive allocations at one address', () => {
      for (const memoryType of types()) {
        const generations = new Set<number>();
        for (let i = 0; i < 50; i++) {
          const memory = fixture.md.memAlloc(PAGE, { memoryType });
          generations.add(memory.generation);
          fixture.md.memFree(memory);
        }
        expect(generations.size).toBe(50);
      }
    });

    it.each([
      0,
      -1,
      Number.NaN,
      1.5,
      Number.POSITIVE_INFINITY,
      -0.5,
      2 ** 53,
      '8' as never,
      undefined as never,
      8n as never,
    ])('refuses %s bytes', (byteLength) => {
      for (const memoryType of types()) {
        const error = errorOf(() => fixture.md.memAlloc(byteLength, { memoryType }));
        expect(isUcxError(error)).toBe(true);
        expect(error.status).toBe(Status.INVALID_PARAM);
        expect(error.message).toContain('byteLength');
        expect(fixture.under.deviceBytes()).toBe(0);
      }
    });

    it('refuses more memory than exists, and stays usable', () => {
      for (const memoryType of types()) {
        const error = errorOf(() => fixture.md.memAlloc(fixture.md.attributes.allocateBytesMax + 1, { memoryType }));
        expect([Status.NO_MEMORY, Status.INVALID_PARAM]).toContain(error.status);
        expect(fixture.under.deviceBytes()).toBe(0);
        fixture.md.memFree(fixture.md.memAlloc(PAGE, { memoryType }));
      }
    });

    it('runs out of device memory with NO_MEMORY, and recovers', () => {
      requires(types().includes(MemoryType.GAUDI), 'allocation of device memory');
      const options = { memoryType: MemoryType.GAUDI, sysDevice: 0 };
      const whole = fixture.md.memAlloc(fixture.md.attributes.allocateBytesMax, options);
      const used = fixture.under.deviceBytes();
      expect(errorOf(() => fixture.md.memAlloc(1, options)).status).toBe(Status.NO_MEMORY);
      expect(fixture.under.deviceBytes()).toBe(used);
      const other = fixture.md.memAlloc(PAGE, { memoryType: MemoryType.GAUDI, sysDevice: 1 });
      fixture.md.memFree(whole);
      fixture.md.memFree(fixture.md.memAlloc(PAGE, options));
      fixture.md.memFree(other);
    });

    it('refuses unknown devices', () => {
      requires(types().includes(MemoryType.GAUDI), 'allocation of device memory');
      for (const sysDevice of [2, -1, 1.5, Number.NaN, 255, '0' as never]) {
        const error = errorOf(() => fixture.md.memAlloc(PAGE, { memoryType: MemoryType.GAUDI, sysDevice }));
        expect(REFUSALS).toContain(error.status);
        expect(error.message).toContain('sysDevice');
      }
    });

    it('does not free memory that it did not allocate', () => {
      const record = {
        mdName: fixture.md.attributes.name,
        memoryType: MemoryType.HOST,
        sysDevice: undefined,
        address: 4096n,
        byteLength: 1,
        bytes: undefined,
        generation: 1,
        live: true,
      };
      for (const foreign of [record, { ...record, mdName: 'other' }, {} as never]) {
        for (const call of ['memFree', 'memDereg'] as const) {
          const error = errorOf(() => fixture.md[call](foreign));
          expect(isUcxError(error) && error.status, call).toBe(Status.INVALID_PARAM);
        }
      }
    });

    it.each([undefined, null, 7])('refuses %s for memory by name', (nothing) => {
      const packed = new Uint8Array(fixture.md.attributes.rkeyPackedBytes);
      const calls = [
        () => fixture.md.memFree(nothing as never),
        () => fixture.md.memDereg(nothing as never),
        () => fixture.md.mkeyPack(nothing as never, packed, 0),
      ];
      for (const call of calls) {
        expect(errorOf(call)).toMatchObject({ code: 'ERR_INVALID_PARAM', message: expect.stringContaining('memory') });
      }
    });

    it('frees remaining memory when it is closed', () => {
      const allocated = types().map((memoryType) => fixture.md.memAlloc(PAGE, { memoryType }));
      fixture.md.close();
      expect(allocated.map(({ live }) => live)).toEqual(types().map(() => false));
    });
  });
}

function queryCases(setup: MdSetup): void {
  const fixture = new UctFixture(setup);
  const detects = (): boolean => fixture.md.attributes.detectMemoryTypes !== 0;

  it('do not detect host memory', () => {
    expect(fixture.md.detectMemoryType(4096n, 1)).toBeUndefined();
    const error = errorOf(() => fixture.md.memQuery(4096n, 1));
    expect([Status.INVALID_ADDR, Status.UNSUPPORTED]).toContain(error.status);
  });

  it('detect every byte of an allocation and no adjacent byte', () => {
    requires(detects(), 'detection of memory types');
    const { md } = fixture;
    const memory = md.memAlloc(3 * PAGE, { memoryType: MemoryType.GAUDI, sysDevice: 1 });
    const expected = { memoryType: MemoryType.GAUDI, sysDevice: 1, baseAddress: memory.address, allocLength: 3 * PAGE };
    for (const offset of [0n, 1n, 4097n, 3n * 4096n - 1n]) {
      expect(md.memQuery(memory.address + offset, 1)).toEqual(expected);
      expect(md.detectMemoryType(memory.address + offset, 1, 1)).toEqual(expected);
    }
    expect(md.memQuery(memory.address, 3 * PAGE)).toEqual(expected);
    for (const outside of [memory.address - 1n, memory.address + BigInt(3 * PAGE)]) {
      expect(md.detectMemoryType(outside, 1)).toBeUndefined();
      expect(errorOf(() => md.memQuery(outside, 1)).status).toBe(Status.INVALID_ADDR);
    }
    expect(md.detectMemoryType(memory.address, 1, 0)).toBeUndefined();
    md.memFree(memory);
    expect(md.detectMemoryType(memory.address, 1)).toBeUndefined();
    expect(errorOf(() => md.memQuery(memory.address, 1)).status).toBe(Status.INVALID_ADDR);
  });

  it('refuse ranges that cross an end', () => {
    requires(detects(), 'detection of memory types');
    const { md } = fixture;
    const memory = md.memAlloc(PAGE, { memoryType: MemoryType.GAUDI });
    const end = memory.address + BigInt(PAGE);
    for (const [address, byteLength] of [
      [memory.address, PAGE + 1],
      [end - 1n, 2],
      [memory.address - 1n, 2],
      [memory.address - 1n, PAGE + 2],
    ] as const) {
      expect(errorOf(() => md.memQuery(address, byteLength)).status).toBe(Status.INVALID_ADDR);
      expect(errorOf(() => md.memExportDmabuf(address, byteLength)).status).toBe(Status.INVALID_ADDR);
    }
    md.memFree(memory);
  });

  it('distinguish two cards with the same address', () => {
    requires(detects(), 'detection of memory types');
    const { md } = fixture;
    const pair = [0, 1].map((sysDevice) => md.memAlloc(PAGE, { memoryType: MemoryType.GAUDI, sysDevice }));
    // The cards share address ranges, and both blocks are the first of their card.
    expect(pair[0]!.address).toBe(pair[1]!.address);
    const { address } = pair[0]!;
    expect([0, 1].map((device) => md.memQuery(address, 1, device).sysDevice)).toEqual([0, 1]);
    expect(errorOf(() => md.memQuery(address, 1)).status).toBe(Status.INVALID_ADDR);
    md.memFree(pair[0]!);
    expect(md.memQuery(address, 1).sysDevice).toBe(1);
    expect(md.detectMemoryType(address, 1, 0)).toBeUndefined();
    md.memFree(pair[1]!);
  });

  it.each([0, -1, 1.5, Number.NaN, 2 ** 53])('refuse a length of %s', (byteLength) => {
    requires(detects(), 'detection of memory types');
    const memory = fixture.md.memAlloc(PAGE, { memoryType: MemoryType.GAUDI });
    expect(errorOf(() => fixture.md.memQuery(memory.address, byteLength))).toMatchObject({
      status: Status.INVALID_PARAM,
      message: expect.stringContaining('byteLength'),
    });
    fixture.md.memFree(memory);
  });

  it.each([-1n, 2n ** 64n, 5 as never, undefined as never])('refuse %s for an address', (address) => {
    requires(detects(), 'detection of memory types');
    const memory = fixture.md.memAlloc(PAGE, { memoryType: MemoryType.GAUDI });
    const error = errorOf(() => fixture.md.memQuery(address, 1));
    expect(isUcxError(error)).toBe(true);
    expect([Status.INVALID_ADDR, Status.INVALID_PARAM]).toContain(error.status);
    fixture.md.memFree(memory);
  });
}

function dmabufCases(setup: MdSetup): void {
  const fixture = new UctFixture(setup);
  const exports = (): boolean => fixture.has(MdFlag.EXPORT_DMABUF);

  it('are refused if the flag is missing', () => {
    requires(!exports(), 'a memory domain without EXPORT_DMABUF');
    expect(errorOf(() => fixture.md.memExportDmabuf(4096n, 1)).status).toBe(Status.UNSUPPORTED);
  });

  it('are new descriptors of the caller, at the right offset', () => {
    requires(exports(), 'EXPORT_DMABUF');
    const { md } = fixture;
    const memory = [0, 1, 2].map(() => md.memAlloc(3 * PAGE, { memoryType: MemoryType.GAUDI, sysDevice: 0 }));
    const at = memory.map(({ address }) => md.memExportDmabuf(address, PAGE, 0));
    const inside = md.memExportDmabuf(memory[1]!.address + 4097n, 1, 0);
    expect(new Set([...at, inside].map(({ fd }) => fd)).size).toBe(4);
    expect(inside.offset - at[1]!.offset).toBe(4097);
    // One dma-buf per arena: blocks have the same distance in the dma-buf as on the card.
    expect(BigInt(at[2]!.offset - at[0]!.offset)).toBe(memory[2]!.address - memory[0]!.address);
    for (const { fd } of [...at, inside]) {
      expect(isCloexec(fd)).toBe(true);
      expect(fstat(fd).ino).toBe(fstat(at[0]!.fd).ino);
    }
    for (const { fd } of [...at, inside]) closeFd(fd);
    // The domain has its own descriptors: those of callers do not affect it.
    const before = openFileDescriptors();
    const again = md.memExportDmabuf(memory[0]!.address, 1, 0);
    expect(openFileDescriptors()).toBe(before + 1);
    closeFd(again.fd);
    for (const each of memory) md.memFree(each);
    expect(openFileDescriptors()).toBeLessThanOrEqual(before);
  });

  it('cannot be mapped', () => {
    requires(exports(), 'EXPORT_DMABUF');
    const memory = fixture.md.memAlloc(PAGE, { memoryType: MemoryType.GAUDI });
    const { fd } = fixture.md.memExportDmabuf(memory.address, PAGE);
    const error = errorOf(() => mapFile(fd, PAGE, 0));
    expect(isSyscallError(error)).toBe(true);
    closeFd(fd);
    fixture.md.memFree(memory);
  });

  it('leave no descriptors behind after a hundred thousand exports', () => {
    requires(exports(), 'EXPORT_DMABUF');
    const { md } = fixture;
    const memory = md.memAlloc(PAGE, { memoryType: MemoryType.GAUDI });
    closeFd(md.memExportDmabuf(memory.address, PAGE).fd);
    const before = openFileDescriptors();
    for (let i = 0; i < 100_000; i++) closeFd(md.memExportDmabuf(memory.address + BigInt(i % PAGE), 1).fd);
    expect(openFileDescriptors()).toBe(before);
    md.memFree(memory);
  });

  it('of shared memory contain no other memory', () => {
    requires(exports(), 'EXPORT_DMABUF');
    const { md } = fixture;
    const common = md.memAlloc(PAGE, { memoryType: MemoryType.GAUDI, sysDevice: 0 });
    const shared = md.memAlloc(PAGE, { memoryType: MemoryType.GAUDI, sysDevice: 0, shared: true });
    const fds = [common, shared].map(({ address }) => md.memExportDmabuf(address, 1, 0));
    expect(fstat(fds[0]!.fd).ino).not.toBe(fstat(fds[1]!.fd).ino);
    for (const { fd } of fds) closeFd(fd);
    md.memFree(common);
    md.memFree(shared);
  });
}

function adviceCases(setup: MdSetup): void {
  const fixture = new UctFixture(setup);

  /** One memory of every kind, with a function that releases it. */
  const everyKind = (): { memory: MdMemory; end: () => void }[] => {
    const { md } = fixture;
    const kinds = memoryTypesOfMask(md.attributes.allocateMemoryTypes).map((memoryType) => {
      const memory = md.memAlloc(3 * PAGE, { memoryType });
      return { memory, end: () => md.memFree(memory) };
    });
    if (!fixture.has(MdFlag.REG)) return kinds;
    const registered = md.memReg(new Uint8Array(3 * PAGE));
    return [...kinds, { memory: registered, end: () => md.memDereg(registered) }];
  };

  it('is accepted exactly if the flag is set', () => {
    for (const { memory, end } of everyKind()) {
      for (const advice of ['normal', 'will-need'] as const) {
        const advise = (): void => fixture.md.memAdvise(memory, advice, 100, PAGE);
        if (fixture.has(MdFlag.ADVISE)) advise();
        else expect(errorOf(advise).status).toBe(Status.UNSUPPORTED);
      }
      if (memory.bytes !== undefined) expect(memory.bytes.every((byte) => byte === 0)).toBe(true);
      end();
    }
  });

  it('that is invalid is refused by name', () => {
    requires(fixture.has(MdFlag.ADVISE), 'ADVISE');
    const { md } = fixture;
    for (const { memory, end } of everyKind()) {
      for (const [offset, byteLength] of [
        [0, 3 * PAGE + 1],
        [3 * PAGE, 1],
        [-1, 1],
        [0, 0],
        [0.5, 1],
        [0, Number.NaN],
      ] as const) {
        expect(errorOf(() => md.memAdvise(memory, 'will-need', offset, byteLength))).toMatchObject({
          code: 'ERR_INVALID_PARAM',
          message: expect.stringMatching(/byteLength|offset|bytes/),
        });
      }
      expect(errorOf(() => md.memAdvise(memory, 'sometimes' as never, 0, 1)).message).toContain('advice');
      end();
      expect(errorOf(() => md.memAdvise(memory, 'normal', 0, 1)).status).toBe(Status.INVALID_PARAM);
    }
    expect(errorOf(() => md.memAdvise(undefined as never, 'normal', 0, 1)).status).toBe(Status.INVALID_PARAM);
  });
}

function closingCases(setup: MdSetup): void {
  const fixture = new UctFixture(setup);

  it('does not reach interfaces that were closed before another was opened', () => {
    const [resource] = fixture.md.resources;
    const [closed, open] = [fixture.md.openIface(resource!), fixture.md.openIface(resource!)];
    closed.close();
    const later = fixture.md.openIface(resource!);
    const closing = vi.spyOn(closed, 'close');
    fixture.md.close();
    expect(closing).not.toHaveBeenCalled();
    for (const iface of [open, later]) expect(() => iface.close()).not.toThrow();
  });

  it('can be repeated', () => {
    fixture.md.close();
    expect(() => fixture.md.close()).not.toThrow();
  });

  it.each(['memAlloc', 'memReg', 'openIface'])('refuses %s afterwards', (call) => {
    const { md } = fixture;
    const [memoryType] = memoryTypesOfMask(md.attributes.allocateMemoryTypes);
    md.close();
    const calls: Readonly<Record<string, () => unknown>> = {
      // Always refused without the ALLOC flag.
      memAlloc: () => md.memAlloc(PAGE, { memoryType: memoryType ?? MemoryType.HOST }),
      memReg: () => md.memReg(new Uint8Array(PAGE)),
      openIface: () => md.openIface(md.resources[0]!),
    };
    expect(isUcxError(errorOf(calls[call]!))).toBe(true);
  });
}
