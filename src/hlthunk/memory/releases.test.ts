/** What device and host memory give back when a call fails, and what counts as a use of a block. */

import { afterEach, describe, expect, it, vi } from 'vitest';
import { useEmulatedDevice } from '../../../test/fixtures/driver/emulated-device.ts';
import { scriptedFileCard } from '../../../test/fixtures/driver/scripted-file.ts';
import { close as closeFd, Errno, mapAnonymous, memfdCreate } from '../../sys/index.ts';
import { DRM_IOCTLS, HABANALABS_IOCTLS, HL_MEM, HL_MEM_ARGS } from '../../uapi/index.ts';
import { deviceMemoryAlloc, deviceMemoryFree, deviceMemoryMap, GaudiErrorCode, memoryUnmap } from '../index.ts';
import { getDramUsage } from '../info/device-info.ts';
import { Arena } from './arena.ts';
import { PhysicalArenaSource } from './arena-source.ts';
import { DmabufImports, deviceMappedMemoryExportDmabufFd, exportBlock } from './dmabuf.ts';

const fixture = useEmulatedDevice();
const INVALID = expect.objectContaining({ code: GaudiErrorCode.INVALID_PARAMS });
const PAGE = 4096;

afterEach(() => {
  vi.restoreAllMocks();
});

describe('a part of a block', () => {
  it('lies in the block, whose use its transfers are, and ends with it', () => {
    const device = fixture.setUp();
    const block = device.memory.allocate(8192);
    const part = block.part(4096, 4096);
    expect([part.address, part.byteLength]).toEqual([block.address + 4096n, 4096]);
    expect(() => block.part(4096, 4097)).toThrow(INVALID);
    part.retain();
    expect([part.inFlight, block.inFlight]).toEqual([1, 1]);
    part.release();
    expect([part.inFlight, block.inFlight]).toEqual([0, 0]);
    block.free();
    expect(part.live).toBe(false);
  });
});

describe('a block', () => {
  it('calls the callbacks that are not cancelled, once', () => {
    const device = fixture.setUp();
    const block = device.memory.allocate(4096);
    const calls: number[] = [];
    block.onFree(() => calls.push(block.live ? 1 : -1));
    block.onFree(() => calls.push(2))();
    block.free();
    expect(calls).toEqual([1]);
  });

  it('counts the end of its export', () => {
    const device = fixture.setUp();
    const closed = vi.spyOn(device.card.dmabufs, 'closed');
    const block = device.memory.allocate(4096);
    closeFd(device.exportDmabuf(block).fd);
    expect(closed).not.toHaveBeenCalled();
    block.arena.closeExport();
    block.arena.closeExport();
    expect(closed).toHaveBeenCalledTimes(1);
    block.free();
  });
});

describe('an arena that cannot be mapped', () => {
  it('gives its memory back', () => {
    const device = fixture.setUp();
    const before = getDramUsage(device).dramFreeMem;
    fixture.node.inject(device.minor, { kind: 'exhausted', resource: 'va', nth: 1 });
    expect(() => device.memory.allocate(4096)).toThrow(expect.objectContaining({ code: GaudiErrorCode.OUT_OF_MEMORY }));
    expect(getDramUsage(device).dramFreeMem).toBe(before);
  });
});

describe('physical memory', () => {
  function source(result: number): PhysicalArenaSource {
    const card = { tryMemory: () => result, memoryResult: () => ({ handle: 0n }), error: () => new Error('refused') };
    return new PhysicalArenaSource(card as never, PAGE, 0x1000_0000n, 8 * PAGE + 100);
  }

  it('keeps no range of an allocation that fails', () => {
    const full = source(-Errno.ENOMEM);
    expect([full.acquire(4 * PAGE), full.freeBytes()]).toEqual([undefined, 8 * PAGE]);
    const broken = source(-Errno.EIO);
    expect(() => broken.acquire(4 * PAGE)).toThrow('refused');
    expect(broken.freeBytes()).toBe(8 * PAGE);
  });

  it('is claimed in whole pages, and given back', () => {
    const memory = source(0);
    const release = memory.claim(0x1000_0000n + 10n, PAGE);
    expect(memory.freeBytes()).toBe(6 * PAGE);
    expect(memory.claim(0x1000_0000n + BigInt(2 * PAGE - 1), 1)).toBeUndefined();
    release?.();
    expect(memory.freeBytes()).toBe(8 * PAGE);
  });
});

describe('the raw calls', () => {
  it('pass each option, and forget a handle that was freed', () => {
    const device = fixture.setUp();
    const memory = vi.spyOn(device.card, 'memory');
    const handle = deviceMemoryAlloc(device, 4096, { shared: true });
    const other = deviceMemoryAlloc(device, 4096, { contiguous: true });
    expect(memory.mock.calls.map(([{ flags }]) => flags)).toEqual([HL_MEM.SHARED, HL_MEM.CONTIGUOUS]);
    const hint = device.info.profile.va.host.start;
    const address = deviceMemoryMap(device, handle, hint);
    expect(memory.mock.lastCall?.[0]).toMatchObject({ map_device_hint_addr: hint, map_device_handle: handle });
    memoryUnmap(device, address);
    for (const each of [handle, other]) deviceMemoryFree(device, each);
    expect(device.card.rawAllocations.size).toBe(0);
  });
});

describe('an address after SRAM', () => {
  it('is none, whatever the length', () => {
    const device = fixture.setUp();
    const { sramBaseAddress, sramSize } = device.info;
    expect(() => device.deviceMemoryRange(sramBaseAddress + BigInt(sramSize), 1)).toThrow(
      expect.objectContaining({ details: expect.objectContaining({ argument: 'address' }) }),
    );
  });
});

describe('a mapping of host memory', () => {
  it.each([Errno.EBUSY, Errno.ENODEV, Errno.EIO, Errno.EPERM])('ends with a card that answers %s', (errno) => {
    const device = fixture.setUp();
    const memory = mapAnonymous(PAGE);
    const mapping = device.hostMemoryMap(memory.address, PAGE);
    const call = vi.spyOn(device.card, 'tryMemory').mockReturnValueOnce(-errno);
    mapping.unmap();
    expect([mapping.live, device.pinnedBytes, call.mock.calls.length]).toEqual([false, 0, 1]);
    memory.close();
  });
});

describe('an imported dma-buf', () => {
  it('begins at its offset, and is unmapped by its own address', () => {
    const device = fixture.setUp();
    const imports = new DmabufImports(device.card);
    vi.spyOn(imports, 'canImport', 'get').mockReturnValue(true);
    const memory = vi.spyOn(device.card, 'memory').mockReturnValue({ device_virt_addr: 0x1000n } as never);
    const mapping = imports.register(0, 4096, 256);
    expect(memory.mock.lastCall?.[0]).toMatchObject({ reg_dmabuf_fd_fd: 0, reg_dmabuf_fd_length: 4352n });
    expect([mapping.address, mapping.baseAddress, mapping.byteLength]).toEqual([0x1100n, 0x1000n, 4096]);
    expect([0x10ffn, 0x2100n].map((address) => imports.touches(address, 1))).toEqual([false, false]);
    expect([0x10ffn, 0x20ffn].map((address) => imports.touches(address, 2))).toEqual([true, true]);
    const unmap = vi.spyOn(device.card, 'tryMemory').mockReturnValueOnce(0);
    mapping.unmap();
    expect(unmap.mock.lastCall?.[0]).toMatchObject({ unmap_device_virt_addr: 0x1000n });
    expect([mapping.live, imports.count]).toEqual([false, 0]);
    vi.restoreAllMocks();
  });

  it.each([
    [0, true],
    [-Errno.EBADF, true],
    [-Errno.EINVAL, false],
  ])('is possible if the driver answers %s to an invalid one: %s', (result, canImport) => {
    const device = fixture.setUp();
    const imports = new DmabufImports(device.card);
    vi.spyOn(device.card, 'tryMemory').mockReturnValue(result);
    expect(imports.canImport).toBe(canImport);
    vi.restoreAllMocks();
  });
});

describe('an exported dma-buf', () => {
  it('is of the range that was asked for', () => {
    const device = fixture.setUp();
    const memory = vi.spyOn(device.card, 'memory').mockReturnValue({ fd: 99 } as never);
    expect(deviceMappedMemoryExportDmabufFd(device, 0x4000n, 512, 1024, 3)).toBe(99);
    expect(memory.mock.lastCall?.[0]).toMatchObject({
      export_dmabuf_fd_addr: 0x4000n,
      export_dmabuf_fd_mem_size: 512n,
      export_dmabuf_fd_offset: 1024n,
      flags: 3,
    });
    vi.restoreAllMocks();
  });

  it.each([
    ['an old driver, which rejects the address', HABANALABS_IOCTLS, [0x1000n, 9n]],
    ['a new driver', DRM_IOCTLS, [0x1000n]],
  ])('of an arena is named as expected by %s', (_title, numbers, names) => {
    const asked: bigint[] = [];
    const answer = (args: DataView): number => {
      const { export_dmabuf_fd_addr: name } = HL_MEM_ARGS.in.decode(args);
      asked.push(name);
      if (name !== names.at(-1)) return -Errno.EINVAL;
      HL_MEM_ARGS.out.encode({ fd: memfdCreate('dma-buf') }, args);
      return 0;
    };
    const { card } = scriptedFileCard({ MEMORY: answer }, numbers);
    const arena = new Arena(card, { address: 0x1000n, byteLength: PAGE, handle: 9n }, false, () => {});
    closeFd(exportBlock(arena.allocate(PAGE, 256)!).fd);
    expect(asked).toEqual(names);
    arena.closeExport();
    card.close();
  });
});
