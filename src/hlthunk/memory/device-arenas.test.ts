/** Device memory in blocks: placement, coalescing, generations, exhaustion, dma-bufs. */

import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { settle, useEmulatedDevice } from '../../../test/fixtures/driver/emulated-device.ts';
import { fillPattern } from '../../../test/fixtures/pattern.ts';
import { close as closeFd, isCloexec, mapFile, openFileDescriptors } from '../../sys/index.ts';
import type { AsicName } from '../../uapi/index.ts';
import {
  type DeviceBlock,
  deviceMappedMemoryExportDmabufFd,
  deviceMemoryAlloc,
  deviceMemoryExportDmabufFd,
  deviceMemoryFree,
  deviceMemoryMap,
  exportBlock,
  GaudiErrorCode,
  getDramUsage,
  memoryUnmap,
  open,
} from '../index.ts';

const fixture = useEmulatedDevice();
const MIB = 2 ** 20;
const PAGE = 768 * MIB;
const INVALID = expect.objectContaining({ code: GaudiErrorCode.INVALID_PARAMS });
const NO_MEMORY = expect.objectContaining({ code: GaudiErrorCode.OUT_OF_MEMORY });
const ASICS: readonly AsicName[] = ['gaudi2', 'gaudi'];

describe.each(ASICS)('blocks of %s', (asic) => {
  it('keeps 10,000 live blocks of 64 KiB in one arena and frees them in any order', () => {
    const arenaBytes = 640 * MIB;
    const device = fixture.setUp({ asic }, { arenaBytes });
    const blocks = Array.from({ length: 10_000 }, () => device.memory.allocate(65536));
    expect(device.memory.statistics).toMatchObject({ arenas: 1, blocks: 10_000, usedBytes: 10_000 * 65536 });
    expect(new Set(blocks.map(({ generation }) => generation)).size).toBe(10_000);
    expect(new Set(blocks.map(({ address }) => address)).size).toBe(10_000);
    // A stride coprime to the count visits every block once, far apart.
    for (let i = 0; i < blocks.length; i++) blocks[(i * 7919) % blocks.length]!.free();
    expect(device.memory.statistics).toMatchObject({ arenas: 1, blocks: 0, usedBytes: 0 });
    expect(device.memory.allocate(600 * MIB).offset).toBe(0);
    expect(device.memory.statistics.arenas).toBe(1);
  });

  it('maps arenas, blocks and free space, with a bounded number of cells', () => {
    const device = fixture.setUp({ asic }, { arenaBytes: 768 * MIB });
    expect(device.memory.maps()).toEqual([]);
    const blocks = Array.from({ length: 4 }, () => device.memory.allocate(192 * MIB));
    blocks[1]!.free();
    const quarter = (percent: number): number[] => Array.from({ length: 32 }, () => percent);
    const usedPercent = [quarter(100), quarter(0), quarter(100), quarter(100)].flat();
    expect(device.memory.maps()).toEqual([{ byteLength: 768 * MIB, blocks: 3, usedPercent }]);
    // A block smaller than a cell does not count as 0 percent, and a cell that is nearly full does not count as 100.
    const small = device.memory.allocate(256);
    expect(device.memory.maps()[0]!.usedPercent[32]).toBe(1);
    small.free();
    device.memory.allocate(192 * MIB - 256);
    expect(device.memory.maps()[0]!.usedPercent[63]).toBe(99);
    device.memory.allocate(256, { dedicated: true });
    const [first, second] = device.memory.maps();
    expect([first!.usedPercent.length, second!.usedPercent.length, second!.blocks]).toEqual([64, 64, 1]);
  });

  it('finds the block of an address', () => {
    const device = fixture.setUp({ asic });
    const first = device.memory.allocate(1000);
    const second = device.memory.allocate(1, { alignment: 4096 });
    expect(second.address % 4096n).toBe(0n);
    expect(device.memory.find(first.address)).toBe(first);
    expect(device.memory.find(first.address + 999n)).toBe(first);
    expect(device.memory.find(first.address + 1000n)).toBeUndefined();
    expect(device.memory.find(second.address)).toBe(second);
    expect(device.memory.find(0n)).toBeUndefined();
    first.free();
    expect(device.memory.find(first.address)).toBeUndefined();
  });

  it.each([1, 256, 4096, 2 * MIB, 64 * MIB, 2 ** 30])('aligns to %i', (alignment) => {
    const device = fixture.setUp({ asic });
    device.memory.allocate(1);
    const block = device.memory.allocate(300, { alignment });
    expect(block.address % BigInt(Math.max(256, alignment))).toBe(0n);
    expect(block.offset + block.byteLength).toBeLessThanOrEqual(block.arena.byteLength);
    block.free();
    expect(device.memory.statistics.blocks).toBe(1);
  });

  it('never overlaps blocks, for any request', () => {
    const device = fixture.setUp({ asic });
    const wish = fc.record({
      byteLength: fc.integer({ min: 1, max: 3 * MIB }),
      alignment: fc.constantFrom(1, 256, 512, 4096, MIB),
      free: fc.nat(),
    });
    fc.assert(
      fc.property(fc.array(wish, { minLength: 1, maxLength: 60 }), (wishes) => {
        const live: DeviceBlock[] = [];
        for (const { byteLength, alignment, free } of wishes) {
          live.push(device.memory.allocate(byteLength, { alignment }));
          if (free % 3 === 0) live.splice(free % live.length, 1)[0]?.free();
        }
        const sorted = [...live].sort((a, b) => (a.address < b.address ? -1 : 1));
        for (let i = 1; i < sorted.length; i++) {
          const before = sorted[i - 1]!;
          expect(before.address + BigInt(before.byteLength)).toBeLessThanOrEqual(sorted[i]!.address);
        }
        for (const block of live) block.free();
        expect(device.memory.statistics.usedBytes).toBe(0);
      }),
      { numRuns: 30, seed: 7 },
    );
  });

  it('reports the free bytes when memory is exhausted, and recovers', () => {
    const page = asic === 'gaudi2' ? PAGE : 2 * MIB;
    const hbmBytes = asic === 'gaudi2' ? 5 * PAGE : 1024 * MIB;
    const device = fixture.setUp({ asic, hbmBytes });
    const total = Number(device.info.dramSize);
    const blocks: DeviceBlock[] = [];
    const piece = asic === 'gaudi2' ? 500 * MIB : 100 * MIB;
    const error = (() => {
      for (;;) {
        try {
          blocks.push(device.memory.allocate(piece));
        } catch (thrown) {
          return thrown;
        }
      }
    })();
    expect(error).toEqual(NO_MEMORY);
    const { details } = error as { details: Record<string, number> };
    expect(details['byteLength']).toBe(piece);
    expect(details['freeBytes']).toBe(total - blocks.length * piece);
    expect(details['largestFree']).toBeLessThan(piece);
    expect(page).toBe(device.memory.pageBytes);
    blocks.pop()!.free();
    blocks.push(device.memory.allocate(piece));
    for (const block of blocks) block.free();
    expect(() => device.memory.allocate(total + 1)).toThrow(NO_MEMORY);
    expect(device.memory.allocate(total - page).byteLength).toBe(total - page);
  });

  it('returns all empty arenas except one to the driver', () => {
    const device = fixture.setUp({ asic });
    const free = getDramUsage(device).dramFreeMem;
    const blocks = [0, 1, 2].map(() => device.memory.allocate(500 * MIB));
    const own = device.memory.allocate(1, { dedicated: true });
    expect(own.arena.byteLength).toBe(device.memory.pageBytes);
    expect(device.memory.statistics.arenas).toBe(4);
    own.free();
    expect(device.memory.statistics.arenas).toBe(3);
    for (const block of blocks) block.free();
    expect(device.memory.statistics).toMatchObject({ arenas: 1, blocks: 0 });
    expect(free - getDramUsage(device).dramFreeMem).toBe(BigInt(device.memory.statistics.arenaBytes));
  });

  it.each([0, -1, 0.5, Number.NaN, 2 ** 53])('refuses %d bytes', (byteLength) => {
    const device = fixture.setUp({ asic });
    expect(() => device.memory.allocate(byteLength)).toThrow(INVALID);
  });

  it.each([0, 3, -256, 2 ** 31, 0.5])('refuses alignment %d', (alignment) => {
    const device = fixture.setUp({ asic });
    expect(() => device.memory.allocate(1, { alignment })).toThrow(INVALID);
  });

  it('exports an arena once and gives each caller a descriptor', () => {
    const device = fixture.setUp({ asic });
    const descriptors = openFileDescriptors();
    const first = device.memory.allocate(4096);
    const second = device.memory.allocate(4096);
    const a = exportBlock(first);
    const b = device.exportDmabuf(second);
    expect([a.offset, b.offset]).toEqual([first.offset, second.offset]);
    expect(a.fd).not.toBe(b.fd);
    expect([isCloexec(a.fd), isCloexec(b.fd)]).toEqual([true, true]);
    expect(() => mapFile(a.fd, 4096, 0)).toThrow();
    closeFd(a.fd);
    closeFd(b.fd);
    first.free();
    expect(() => exportBlock(first)).toThrow(INVALID);
    device.close();
    expect(openFileDescriptors()).toBeLessThanOrEqual(descriptors);
    expect(() => exportBlock(second)).toThrow(INVALID);
  });
});

describe('arenas of gaudi2', () => {
  it('costs one page for small blocks', () => {
    const device = fixture.setUp();
    const before = getDramUsage(device).ctxDramMem;
    device.memory.allocate(MIB);
    device.memory.allocate(MIB);
    expect(getDramUsage(device).ctxDramMem - before).toBe(BigInt(PAGE));
  });

  it('keeps an arena whose dma-buf is open', () => {
    const device = fixture.setUp();
    const block = device.memory.allocate(4096, { dedicated: true });
    const { fd } = exportBlock(block);
    block.free();
    expect(device.memory.statistics).toMatchObject({ arenas: 1, blocks: 0 });
    closeFd(fd);
  });

  it('moves data into memory of another card through its dma-buf', async () => {
    const device = fixture.setUp({ cards: 2 });
    const other = open(fixture.node, { minor: 1 }, { log: fixture.log.log });
    const remote = other.memory.allocate(65536);
    const local = device.memory.allocate(65536);
    const source = fixture.pin(device, 65536);
    fillPattern(source.memory.u8, 11);
    const { fd, offset } = other.exportDmabuf(remote);
    expect(device.canImportDmabuf).toBe(true);
    const imported = device.registerDmabufFd(fd, offset + 65536);
    closeFd(fd);
    const { dma } = device;
    expect(await settle(device, dma.dmaHostToDeviceAsync(source.mapping, 0, local, 0, 65536))).toBe(0);
    expect(await settle(device, dma.dmaDeviceToDeviceAsync(local, 0, imported, offset, 65536))).toBe(0);
    const got = new Uint8Array(1024);
    expect(await settle(other, other.dma.getShort(got, 0, remote, 2048, 1024))).toBe(0);
    expect(got).toEqual(source.memory.u8.slice(2048, 3072));
    imported.unmap();
    expect(() => imported.unmap()).toThrow(INVALID);
    expect(() => device.registerDmabufFd(fd, 4096)).toThrow(INVALID);
    other.close();
  });

  it('reports that the driver cannot import', () => {
    const device = fixture.setUp({ importDmabuf: false });
    expect(device.canImportDmabuf).toBe(false);
    expect(() => device.registerDmabufFd(0, 4096)).toThrow(/vendor/);
  });
});

describe('raw device memory', () => {
  it('allocates, maps, exports, unmaps and frees on gaudi2', () => {
    const device = fixture.setUp();
    const handle = deviceMemoryAlloc(device, 1, { contiguous: true, shared: true });
    expect(handle).toBeGreaterThan(0n);
    const address = deviceMemoryMap(device, handle);
    expect(address).toBeGreaterThanOrEqual(device.info.dramBaseAddress);
    expect(() => deviceMemoryFree(device, handle)).toThrow(INVALID);
    const fd = deviceMappedMemoryExportDmabufFd(device, address, 4096, 8192);
    expect(() => memoryUnmap(device, address)).toThrow(INVALID);
    closeFd(fd);
    expect(() => deviceMappedMemoryExportDmabufFd(device, address + 4096n, 4096)).toThrow(INVALID);
    memoryUnmap(device, address);
    expect(() => memoryUnmap(device, address)).toThrow(INVALID);
    deviceMemoryFree(device, handle);
    expect(() => deviceMemoryFree(device, handle)).toThrow(INVALID);
    expect(() => deviceMemoryMap(device, 0n)).toThrow(INVALID);
    expect(() => deviceMemoryMap(device, -1n)).toThrow(INVALID);
    expect(() => deviceMemoryAlloc(device, 2 ** 50)).toThrow(NO_MEMORY);
  });

  it('only accounts on gaudi', () => {
    const device = fixture.setUp({ asic: 'gaudi' });
    const free = getDramUsage(device).dramFreeMem;
    expect(deviceMemoryAlloc(device, 4096)).toBe(0n);
    expect(free - getDramUsage(device).dramFreeMem).toBe(4096n);
    deviceMemoryFree(device, 0n, 4096);
    expect(getDramUsage(device).dramFreeMem).toBe(free);
    const fd = deviceMemoryExportDmabufFd(device, device.info.dramBaseAddress, 4096);
    closeFd(fd);
    expect(() => deviceMemoryExportDmabufFd(device, 1n, 4096)).toThrow(INVALID);
  });
});
