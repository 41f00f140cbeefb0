/** Memory of a context of a card without engines: buffers of the driver, device memory, pinned host memory, imports; and what each gives back. */

import { afterEach, describe, expect, it, vi } from 'vitest';
import { EmulatedCard } from '../../../../test/contract/driver/emulated-card.ts';
import { expectNoLeaks } from '../../../../test/fixtures/leak-check.ts';
import { close, dup, Errno, openFileDescriptors, SyscallError } from '../../../sys/index.ts';
import { HandleType, HL_CB_FLAGS, HL_CB_OP, HL_MEM, packHandle } from '../../../uapi/index.ts';
import type { Context } from '../ioctl/context.ts';
import { PrimaryFile } from '../ioctl/file.ts';
import { type BufferTable, CommandBufferVa, type DriverBuffer } from './buffer-table.ts';

expectNoLeaks();

const MIB = 2 ** 20;
const HUGE = 2 * MIB;
const { EINVAL, EFAULT, ENOMEM, ENXIO, EBADF } = Errno;

let card: EmulatedCard;
afterEach(() => card.close());

function open(options: ConstructorParameters<typeof EmulatedCard>[0] = {}): Context {
  card = new EmulatedCard(options);
  const { file } = card.client;
  if (!(file instanceof PrimaryFile)) throw new Error('no primary file');
  return file.context;
}

/** A page of device memory, mapped: its handle and address. */
function devicePage(pages = 1): { handle: bigint; address: bigint; pageBytes: number } {
  const pageBytes = Number(card.node.config.profile.dram.pageSize);
  const handle = card.client.allocate(pages * pageBytes).out;
  return { handle, address: card.client.mapDevice(handle).out, pageBytes };
}

describe('buffers of the driver', () => {
  const create = (buffers: BufferTable, type: HandleType = HandleType.CB, byteLength = 5000): DriverBuffer => {
    const buffer = buffers.create(type, byteLength);
    if (typeof buffer === 'number') throw new Error(`errno ${buffer}`);
    return buffer;
  };
  const halves = (handle: bigint): [number, number] => [Number(handle & 0xffff_ffffn), Number(handle >> 32n)];

  it('exist until they are both destroyed and unmapped, whichever comes first', () => {
    const { buffers } = open();
    const [first, second] = [create(buffers), create(buffers)];
    const mapped = buffers.mmap(8192, first.handle);
    expect([buffers.size, buffers.hasMappedBuffers]).toEqual([2, true]);
    expect([buffers.destroy(first), buffers.destroy(first)]).toEqual([true, false]);
    expect(buffers.findCommandBuffer(...halves(first.handle))).toBe(first);
    mapped.close();
    expect([buffers.size, buffers.hasMappedBuffers]).toEqual([1, false]);
    expect(buffers.findCommandBuffer(...halves(first.handle))).toBeUndefined();
    const again = buffers.mmap(8192, second.handle);
    again.close();
    again.close();
    expect(buffers.size).toBe(1);
    buffers.destroy(second);
    expect(buffers.size).toBe(0);
    // The smallest free number is the next, and the first free pages.
    const next = create(buffers);
    expect([next.id, next.place.page]).toEqual([first.id, first.place.page]);
  });

  it('are mapped once at a time, as a whole, by a handle of their type', () => {
    const { buffers } = open();
    const buffer = create(buffers);
    const refused = expect.objectContaining({ errno: EINVAL });
    expect(() => buffers.mmap(4096, buffer.handle)).toThrow(refused);
    expect(() => buffers.mmap(12_288, buffer.handle)).toThrow(refused);
    expect(() => buffers.mmap(0, buffer.handle)).toThrow(refused);
    expect(() => buffers.mmap(8192, packHandle(HandleType.TS, buffer.id))).toThrow(refused);
    expect(() => buffers.mmap(8192, packHandle(HandleType.CB, buffer.id + 1))).toThrow(refused);
    const mapping = buffers.mmap(5000, buffer.handle);
    expect(() => buffers.mmap(8192, buffer.handle)).toThrow(refused);
    expect(() => buffers.share(8192, buffer.handle)).toThrow(refused);
    buffer.view.setUint32(4996, 0xabcd, true);
    expect(new Uint32Array(mapping.buffer)[1249]).toBe(0xabcd);
    mapping.close();
    const shared = buffers.share(8192, buffer.handle);
    expect(buffers.hasMappedBuffers).toBe(true);
    shared.release();
    expect(buffers.hasMappedBuffers).toBe(false);
  });

  it('are found by number and type, and listed if they are command buffers', () => {
    const { buffers } = open();
    const [commands, stamps] = [create(buffers), create(buffers, HandleType.TS)];
    expect(buffers.find(HandleType.TS, ...halves(stamps.handle))).toBe(stamps);
    expect(buffers.find(HandleType.TS, ...halves(commands.handle))).toBeUndefined();
    expect(buffers.findCommandBuffer(...halves(stamps.handle))).toBeUndefined();
    const mapping = buffers.mmap(8192, commands.handle);
    expect(buffers.commandBuffers()).toEqual([{ handle: commands.handle, byteLength: 5000, mapped: true }]);
    mapping.close();
  });

  it('have a device address until their last reference is gone', () => {
    const { buffers, va } = open();
    const { client } = card;
    const before = va.host.table.size;
    const handle = client.createCommandBuffer(4096, HL_CB_FLAGS.MAP).out;
    const address = () =>
      client.commandBuffer({ op: HL_CB_OP.INFO, cb_handle: handle, flags: HL_CB_FLAGS.GET_DEVICE_VA });
    const { device_va: first } = address().out;
    expect(first).not.toBe(0n);
    expect(va.host.table.size).toBe(before + 1);
    const mapping = client.file.mmap(4096, handle);
    expect(client.destroyCommandBuffer(handle)).toBe(0);
    expect([va.host.table.size, client.destroyCommandBuffer(handle)]).toEqual([before + 1, -EINVAL]);
    mapping.close();
    expect([va.host.table.size, buffers.size, address().result]).toEqual([before, 0, -EINVAL]);
    const again = client.createCommandBuffer(4096, HL_CB_FLAGS.MAP).out;
    const info = { op: HL_CB_OP.INFO, cb_handle: again, flags: HL_CB_FLAGS.GET_DEVICE_VA };
    expect(client.commandBuffer(info).out.device_va).toBe(first);
  });
});

describe('device memory', () => {
  it('is counted in whole pages until it is freed, which needs that it is not mapped', () => {
    const { deviceMemory, card: state } = open();
    const { client } = card;
    const { handle, address, pageBytes } = devicePage(2);
    const bytes = 2 * pageBytes;
    expect([deviceMemory.usedBytes, state.dramUsedBytes]).toEqual([bytes, bytes]);
    const odd = client.allocate(pageBytes + 1).out;
    expect(deviceMemory.usedBytes).toBe(2 * bytes);
    expect([client.free(odd), client.free(odd), deviceMemory.usedBytes]).toEqual([0, -EINVAL, bytes]);
    const second = client.mapDevice(handle).out;
    expect(second).not.toBe(address);
    expect([...deviceMemory.list()]).toEqual([address, second].map((each) => ({ address: each, byteLength: bytes })));
    expect([client.free(handle), client.unmap(second), client.free(handle)]).toEqual([-EINVAL, 0, -EINVAL]);
    expect([client.unmap(address), client.unmap(address), client.free(handle)]).toEqual([0, -EINVAL, 0]);
    expect([deviceMemory.usedBytes, [...deviceMemory.list()]]).toEqual([0, []]);
    // The smallest free handle is the next.
    expect(client.allocate(pageBytes).out).toBe(handle);
  });

  it('runs out at its last page, and fails with ENOMEM without keeping anything', () => {
    const { deviceMemory, device } = open();
    const { client } = card;
    const pageBytes = Number(card.node.config.profile.dram.pageSize);
    const reserved = Number(card.node.config.profile.dram.reservedSize);
    const pages = Math.floor((device.hbm.byteLength - reserved) / pageBytes);
    const all = Array.from({ length: pages }, () => client.allocate(pageBytes));
    expect(all.every(({ result }) => result === 0)).toBe(true);
    expect(client.allocate(1).result).toBe(-ENOMEM);
    // Every second page is free: two are not contiguous.
    for (let i = 0; i < pages; i += 2) client.free(all[i]!.out);
    const free = Math.ceil(pages / 2);
    expect(client.allocate(2 * pageBytes, HL_MEM.CONTIGUOUS).result).toBe(-ENOMEM);
    expect(client.allocate((free + 1) * pageBytes).result).toBe(-ENOMEM);
    const pieces = client.allocate(free * pageBytes);
    expect([pieces.result, deviceMemory.usedBytes]).toEqual([0, pages * pageBytes]);
    const address = client.mapDevice(pieces.out).out;
    const { table, base } = card.client.file instanceof PrimaryFile ? card.client.file.context.va.dram! : never();
    const at = Number(address - base);
    const offsets = Array.from({ length: free }, (_, i) => table.translate(at + i * pageBytes)!.memoryOffset);
    expect(new Set(offsets).size).toBe(free);
    expect(offsets.every((offset) => offset >= reserved && offset < device.hbm.byteLength)).toBe(true);
  });

  it('that is exported stays mapped until the last descriptor is closed', () => {
    const context = open();
    const { deviceMemory } = context;
    const { client } = card;
    const { address, handle, pageBytes } = devicePage();
    expect(client.exportDmabuf(address, pageBytes, 4096).result).toBe(-EINVAL);
    expect(client.exportDmabuf(address, 4096, 8).result).toBe(-EINVAL);
    expect(client.exportDmabuf(address, 4096 + 8).result).toBe(-EINVAL);
    expect(client.exportDmabuf(address + 4096n, 4096).result).toBe(-EINVAL);
    expect(client.exportDmabuf(address, 0).result).toBe(-EINVAL);
    const { out: fd } = client.exportDmabuf(address, 4096, pageBytes - 4096);
    const { va, card: state } = context;
    const { memoryOffset } = va.dram!.table.translate(Number(address - va.dram!.base))!;
    expect(state.dmabufs.find(fd)).toMatchObject({
      runs: [{ offset: memoryOffset + pageBytes - 4096, byteLength: 4096 }],
    });
    const copy = dup(fd);
    close(fd);
    expect([client.unmap(address), deviceMemory.hasLiveExports]).toEqual([-EINVAL, true]);
    close(copy);
    expect([deviceMemory.hasLiveExports, client.unmap(address), client.free(handle)]).toEqual([false, 0, 0]);
  });
});

const never = (): never => {
  throw new Error('not reached');
};

describe('pinned host memory', () => {
  it('is mapped in whole pages at the offset of its first byte, and counted', () => {
    const { hostMappings } = open();
    const { client, host } = card;
    const before = hostMappings.pinnedBytes;
    const { out } = client.mapHost(host.address + 100, 4096);
    expect([out % 4096n, hostMappings.pinnedBytes - before]).toEqual([100n, 8192]);
    expect(client.unmap(out - 100n)).toBe(-EINVAL);
    expect([client.unmap(out), client.unmap(out), hostMappings.pinnedBytes]).toEqual([0, -EINVAL, before]);
  });

  it('is aligned to huge pages if it is, and lies in their range if it consists of them', () => {
    const { va } = open();
    const { client, host } = card;
    const aligned = Math.ceil(host.address / HUGE) * HUGE;
    const bytes = host.address + host.byteLength - aligned;
    const mapped = client.mapHost(aligned, Math.min(bytes, 8192)).out;
    expect(Number(mapped - va.host.base) % HUGE).toBe(0);
    expect(bytes).toBeGreaterThanOrEqual(HUGE);
    const huge = client.mapHost(aligned, HUGE).out;
    expect(huge >= va.hostHuge.base && huge < va.hostHuge.base + BigInt(va.hostHuge.byteLength)).toBe(true);
  });

  it.each([
    ['no bytes', 0n, 0, EINVAL],
    ['a wrap-around', 2n ** 64n - 4096n, 8192, EINVAL],
    ['addresses of the kernel', 2n ** 47n - 4096n, 8192, EFAULT],
    ['address 0', 0n, 4096, EFAULT],
    ['memory that is not mapped', 4096n, 4096, EFAULT],
  ])('is refused: %s', (_, address, byteLength, errno) => {
    const { hostMappings } = open();
    const before = hostMappings.pinnedBytes;
    expect(card.client.mapHost(address, byteLength)).toEqual({ result: -errno, out: 0n });
    expect(hostMappings.pinnedBytes).toBe(before);
  });

  it('takes an address that is forced, or fails and stays unpinned', () => {
    const { va, hostMappings } = open();
    const { client, host } = card;
    const hint = va.host.base + 0x4000_0000n;
    expect(client.mapHost(host.address, 4096, hint, HL_MEM.FORCE_HINT)).toEqual({ result: 0, out: hint });
    const before = hostMappings.pinnedBytes;
    expect(client.mapHost(host.address, 4096, hint, HL_MEM.FORCE_HINT).result).toBe(-ENOMEM);
    expect(client.mapHost(host.address + 8, 4096, hint, HL_MEM.FORCE_HINT).result).toBe(-EINVAL);
    expect(hostMappings.pinnedBytes).toBe(before);
    expect(client.mapHost(host.address, 4096, hint).out).not.toBe(hint);
  });
});

describe('pinned pages', () => {
  it('are unpinned when they are unmapped, and if they cannot be mapped', () => {
    const { userMemory, va } = open();
    const { client, host, node } = card;
    let unpins = 0;
    const pin = userMemory.pin.bind(userMemory);
    userMemory.pin = (...args) => {
      const pages = pin(...args);
      if (pages === undefined) return undefined;
      const unpin = pages.unpin.bind(pages);
      pages.unpin = () => {
        unpins += 1;
        unpin();
      };
      return pages;
    };
    const first = client.mapHost(host.address, 4096).out;
    expect([client.unmap(first), unpins]).toEqual([0, 1]);
    // Its addresses are free again.
    expect(client.mapHost(host.address, 4096).out).toBe(first);
    const hint = va.host.base + 0x4000_0000n;
    expect(client.mapHost(host.address + 8, 4096, hint, HL_MEM.FORCE_HINT).result).toBe(-EINVAL);
    expect(unpins).toBe(2);
    node.inject(0, { kind: 'exhausted', resource: 'va' });
    expect([client.mapHost(host.address, 4096).result, unpins]).toEqual([-ENOMEM, 3]);
  });
});

describe('an import', () => {
  function importing() {
    const context = open({ cards: 1 });
    const { address, pageBytes } = devicePage();
    const { out: fd } = card.client.exportDmabuf(address, 8192);
    return { context, fd, address, pageBytes };
  }

  it('maps the first bytes of a dma-buf, and keeps it alive with a duplicate descriptor', () => {
    const { context, fd } = importing();
    const { client } = card;
    expect(context.imports.map(fd, 0)).toBe(EINVAL);
    expect(context.imports.map(fd, 8193)).toBe(EINVAL);
    expect(context.imports.map(9999, 4096)).toBe(EBADF);
    const mapped = context.imports.map(fd, 4097);
    if (typeof mapped === 'number') throw new Error(`errno ${mapped}`);
    expect([...context.imports.list()]).toEqual([{ address: mapped, byteLength: 8192 }]);
    close(fd);
    expect(context.deviceMemory.hasLiveExports).toBe(true);
    expect([context.imports.unmap(mapped + 4096n), context.imports.unmap(mapped)]).toEqual([false, true]);
    expect([context.deviceMemory.hasLiveExports, context.imports.unmap(mapped)]).toEqual([false, false]);
    expect([...context.imports.list()]).toEqual([]);
    expect(client.createCommandBuffer(64).result).toBe(0);
  });

  it('without addresses leaves no descriptor, and one that has ended is not told of its memory', () => {
    const { context, fd } = importing();
    const descriptors = openFileDescriptors();
    card.node.inject(0, { kind: 'exhausted', resource: 'va' });
    expect([context.imports.map(fd, 4096), openFileDescriptors()]).toEqual([ENOMEM, descriptors]);
    const mapped = context.imports.map(fd, 4096);
    if (typeof mapped === 'number') throw new Error(`errno ${mapped}`);
    context.imports.unmap(mapped);
    const unmap = vi.spyOn(context.va.host.table, 'unmap');
    context.deviceMemory.leaveBus();
    expect(unmap).not.toHaveBeenCalled();
    unmap.mockRestore();
    close(fd);
  });

  it('of memory that has left the bus is refused, and one that exists is a page fault from then on', () => {
    const { context, fd } = importing();
    const mapped = context.imports.map(fd, 8192);
    if (typeof mapped === 'number') throw new Error(`errno ${mapped}`);
    const { table, base } = context.va.host;
    expect(table.translate(Number(mapped - base))).toBeDefined();
    context.deviceMemory.leaveBus();
    expect(table.translate(Number(mapped - base))).toBeUndefined();
    expect(context.imports.map(fd, 8192)).toBe(ENXIO);
    // Its addresses stay allocated until it is unmapped.
    expect(context.imports.unmap(mapped)).toBe(true);
    close(fd);
  });
});

describe('memory of the caller', () => {
  it('is read and written in any length, and refused at the end of what is mapped', () => {
    const { userMemory } = open();
    const { host } = card;
    const bytes = new Uint8Array(100_000).map((_, i) => i * 7 + (i >> 8));
    expect(userMemory.write(host.address + 3, bytes)).toBe(true);
    const back = new Uint8Array(100_000);
    expect(userMemory.read(host.address + 3, back)).toBe(true);
    expect(Buffer.from(back).equals(bytes)).toBe(true);
    expect([userMemory.read(8, new Uint8Array(8)), userMemory.write(8, bytes)]).toEqual([false, false]);
    expect(userMemory.read(2 ** 47 - 4, new Uint8Array(8))).toBe(false);
  });

  it('inside the arguments is read from them, and answers are stored there', () => {
    const { userMemory } = open();
    const block = { address: 0x5000_0000, words: new Uint32Array(16).map((_, i) => i) };
    expect(userMemory.readWords(block, block.address + 8, 0, 14)).toBe(true);
    expect([userMemory.words === block.words, userMemory.index]).toEqual([true, 2]);
    expect(userMemory.readWords(block, block.address + 8, 0, 15)).toBe(false);
    expect(userMemory.writeResult(block, block.address + 4, Uint8Array.of(1, 2, 3, 4, 5))).toBe(true);
    expect([block.words[1], block.words[2]! & 0xff, userMemory.resultWords]).toEqual([0x0403_0201, 5, 3]);
    expect(userMemory.writeResult(block, block.address + 60, new Uint8Array(8))).toBe(false);
    const { host } = card;
    card.words(64).set([11, 12, 13]);
    expect(userMemory.readWords(block, host.address + 64, Math.floor(host.address / 2 ** 32), 3)).toBe(true);
    expect([...userMemory.words.subarray(userMemory.index, userMemory.index + 3)]).toEqual([11, 12, 13]);
  });
});

describe('the device addresses of command buffers', () => {
  it('are those of a pool, which is made at the first and given back at the end', () => {
    card = new EmulatedCard();
    const calls: unknown[] = [];
    const range = {
      base: 0x7000_0000_0000n,
      allocate: ({ byteLength }: { byteLength: number }) => {
        calls.push(['allocate', byteLength]);
        return 8192;
      },
      free: (offset: number) => calls.push(['free', offset]),
      addressOf: (offset: number) => 0x7000_0000_0000n + BigInt(offset),
      table: {
        map: (...args: unknown[]) => calls.push(['map', ...args.slice(0, 2)]),
        unmap: (...args: unknown[]) => calls.push(['unmap', ...args]),
      },
    };
    const commands = new CommandBufferVa(range as never);
    const buffer = (byteLength: number) => ({ memory: { byteLength }, deviceAddress: 0n }) as unknown as DriverBuffer;
    const [first, second] = [buffer(3 * 2 ** 30), buffer(3 * 2 ** 30)];
    first.deviceAddress = commands.map(first);
    expect([first.deviceAddress, commands.map(second)]).toEqual([0x7000_0000_2000n, 0n]);
    expect(calls).toEqual([
      ['allocate', 4 * 2 ** 30],
      ['map', 8192, 3 * 2 ** 30],
    ]);
    commands.unmap(first);
    commands.unmap(first);
    expect([first.deviceAddress, commands.map(second)]).toEqual([0n, 0x7000_0000_2000n]);
    commands.close();
    commands.close();
    expect(calls.slice(2)).toEqual([
      ['unmap', 8192, 3 * 2 ** 30],
      ['map', 8192, 3 * 2 ** 30],
      ['free', 8192],
    ]);
  });
});

describe('a context that is closed', () => {
  it('ends its exports, though a descriptor is open', () => {
    const { card: state } = open();
    const { out: fd } = card.client.exportDmabuf(devicePage().address, 4096);
    card.client.file.close();
    expect(state.dmabufs.find(fd)).toBe(EINVAL);
    close(fd);
  });

  it('gives back what it had', () => {
    const context = open();
    devicePage();
    context.buffers.create(HandleType.CB, 4096);
    expect(card.client.createCommandBuffer(64, HL_CB_FLAGS.MAP).result).toBe(0);
    const { host } = context.va;
    card.client.file.close();
    expect([context.hostMappings.pinnedBytes, context.deviceMemory.usedBytes]).toEqual([0, 0]);
    expect([host.table.size, host.usedBytes, context.va.dram!.usedBytes]).toEqual([0, 0, 0]);
    expect(context.buffers.size).toBe(0);
    expect(() => card.client.file.mmap(4096, 0n)).toThrow(SyscallError);
  });
});
