/** Handles of device memory: their contents, the checks at opening, and transfers to the memory. */

import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { settle, useEmulatedDevice } from '../../../test/fixtures/driver/emulated-device.ts';
import { fillPattern } from '../../../test/fixtures/pattern.ts';
import { close as closeFd, isCloexec, OpenFlag, open as openFile, openFileDescriptors } from '../../sys/index.ts';
import { isUcxError } from '../../ucs/type/error.ts';
import {
  type Device,
  GaudiErrorCode,
  IPC_HANDLE_BYTES,
  ipcCloseHandle,
  ipcInspectHandle,
  ipcOpenHandle,
  ipcWrapArena,
  ipcWrapHandle,
  ipcWrapImport,
  open,
} from '../index.ts';

const fixture = useEmulatedDevice();
const INVALID = expect.objectContaining({ code: GaudiErrorCode.INVALID_PARAMS });
const BYTES = 100_003;

/** Two cards of one node; the first is closed by its test. */
function twoCards(): { owner: Device; device: Device } {
  const device = fixture.setUp({ cards: 2 });
  return { device, owner: open(fixture.node, { minor: 1 }, { log: fixture.log.log }) };
}

describe('ipc handles', () => {
  it('give another card access to a block, and to a range in one', async () => {
    const { device, owner } = twoCards();
    owner.memory.allocate(5000);
    const remote = owner.memory.allocate(BYTES);
    const here = device.memory.allocate(BYTES);
    const { memory, mapping } = fixture.pin(device, 2 * BYTES);
    fillPattern(memory.u8.subarray(0, BYTES), 7);
    await settle(device, device.dma.dmaHostToDeviceAsync(mapping, 0, here, 0, BYTES));
    const block = ipcWrapHandle(owner, remote);
    const range = ipcWrapHandle(owner, { address: remote.address + 11n, byteLength: BYTES - 11 });
    expect([block.handle.byteLength, isCloexec(block.fd)]).toEqual([IPC_HANDLE_BYTES, true]);
    const fds = openFileDescriptors();
    const whole = ipcOpenHandle(device, block.fd, block.handle);
    const part = ipcOpenHandle(device, range.fd, range.handle);
    for (const { fd } of [block, range]) closeFd(fd);
    expect([whole.byteLength, part.byteLength]).toEqual([BYTES, BYTES - 11]);
    expect(await settle(device, device.dma.dmaDeviceToDeviceAsync(here, 0, whole, 0, BYTES))).toBe(0);
    const back = device.dma.dmaDeviceToHostAsync(part, 0, mapping, BYTES, BYTES - 11);
    expect(() => ipcCloseHandle(part)).toThrow(/transfers in flight/);
    expect(await settle(device, back)).toBe(0);
    expect(Buffer.compare(memory.u8.subarray(BYTES, 2 * BYTES - 11), memory.u8.subarray(11, BYTES))).toBe(0);
    expect(() => device.dma.putShort(memory.u8, 0, part, BYTES - 11, 1)).toThrow(INVALID);
    for (const opened of [whole, part]) ipcCloseHandle(opened);
    expect(() => ipcCloseHandle(part)).toThrow(INVALID);
    expect(device.imports.count).toBe(0);
    expect(openFileDescriptors()).toBe(fds - 2);
    owner.close();
  });

  it('of an arena give access to every block in it', async () => {
    const { device, owner } = twoCards();
    const blocks = [1, 2, 3].map(() => owner.memory.allocate(4096));
    const { fd, handle } = ipcWrapArena(owner, blocks[0]!);
    const arena = ipcOpenHandle(device, fd, handle);
    closeFd(fd);
    expect(arena.byteLength).toBe(blocks[0]!.arena.byteLength);
    const bytes = new Uint8Array(4);
    for (const [i, block] of blocks.entries()) {
      bytes.fill(i + 1);
      expect(await settle(device, device.dma.putShort(bytes, 0, arena, block.offset, 4))).toBe(0);
    }
    for (const [i, block] of blocks.entries()) {
      expect(await settle(owner, owner.dma.getShort(bytes, 0, block, 0, 4))).toBe(0);
      expect([...bytes]).toEqual([i + 1, i + 1, i + 1, i + 1]);
    }
    ipcCloseHandle(arena);
    owner.close();
  });

  it('of an import give a third card access to the same memory', async () => {
    const { device, owner } = twoCards();
    const block = owner.memory.allocate(8192);
    const exported = ipcWrapHandle(owner, { address: block.address + 4096n, byteLength: 4096 });
    const imported = ipcOpenHandle(device, exported.fd, exported.handle);
    const { fd, handle } = ipcWrapImport(device, imported, exported.fd);
    expect(isCloexec(fd)).toBe(true);
    const again = ipcOpenHandle(owner, fd, handle);
    for (const each of [fd, exported.fd]) closeFd(each);
    const skip = again.byteLength - imported.byteLength;
    expect(skip).toBe(Number(imported.address - imported.baseAddress));
    expect(await settle(device, device.dma.putShort(new Uint8Array([1, 2, 3]), 0, imported, 5, 3))).toBe(0);
    const bytes = new Uint8Array(3);
    expect(await settle(owner, owner.dma.getShort(bytes, 0, again, skip + 5, 3))).toBe(0);
    expect([...bytes]).toEqual([1, 2, 3]);
    expect(() => ipcWrapImport(owner, imported, 0)).toThrow(INVALID);
    expect(() => ipcWrapImport(device, imported, 2 ** 30)).toThrow(INVALID);
    for (const mapping of [again, imported]) ipcCloseHandle(mapping);
    expect(() => ipcWrapImport(device, imported, 0)).toThrow(INVALID);
    owner.close();
  });

  it('contain neither the descriptor nor an address', () => {
    const { device, owner } = twoCards();
    const block = owner.memory.allocate(4096);
    const first = ipcWrapHandle(owner, block);
    const second = ipcWrapHandle(owner, block);
    expect(first.fd).not.toBe(second.fd);
    expect(first.handle).toEqual(second.handle);
    const address = new Uint8Array(new BigUint64Array([block.address]).buffer);
    expect(Buffer.from(first.handle).indexOf(address)).toBe(-1);
    for (const { fd } of [first, second]) closeFd(fd);
    owner.close();
    expect(device.imports.count).toBe(0);
  });

  it('are rejected for freed and foreign memory and for ranges outside', () => {
    const { device, owner } = twoCards();
    const block = owner.memory.allocate(4096);
    expect(() => ipcWrapHandle(device, block)).toThrow(INVALID);
    expect(() => ipcWrapHandle(owner, { address: block.address, byteLength: 4097 })).toThrow(INVALID);
    expect(() => ipcWrapHandle(owner, { address: block.address - 1n, byteLength: 1 })).toThrow(INVALID);
    expect(() => ipcWrapHandle(owner, { address: block.address + 1n, byteLength: block.byteLength })).toThrow(INVALID);
    expect(() => ipcWrapHandle(owner, { address: block.address, byteLength: 0 })).toThrow(INVALID);
    block.free();
    expect(() => ipcWrapHandle(owner, block)).toThrow(INVALID);
    expect(() => ipcWrapHandle(owner, { address: block.address, byteLength: 1 })).toThrow(INVALID);
    owner.close();
  });

  it('are rejected with foreign descriptors and with invalid bytes', async () => {
    const { device, owner } = twoCards();
    const { fd, handle } = ipcWrapHandle(owner, owner.memory.allocate(4096));
    const plain = openFile('/dev/null', OpenFlag.CLOEXEC);
    for (const other of [plain, -1, 1.5, 1 << 30]) expect(() => ipcOpenHandle(device, other, handle)).toThrow(INVALID);
    closeFd(plain);
    for (const bytes of [undefined, handle.subarray(1), new Uint8Array(IPC_HANDLE_BYTES)]) {
      expect(() => ipcOpenHandle(device, fd, bytes as Uint8Array)).toThrow(INVALID);
    }
    // Any bytes lead to a typed error, or to a mapping inside the dma-buf.
    await fc.assert(
      fc.property(fc.nat(IPC_HANDLE_BYTES - 1), fc.nat(255), (at, value) => {
        const changed = handle.slice();
        changed[at] = value;
        try {
          ipcCloseHandle(ipcOpenHandle(device, fd, changed));
        } catch (error) {
          expect(isUcxError(error)).toBe(true);
        }
      }),
    );
    closeFd(fd);
    expect(device.imports.count).toBe(0);
    owner.close();
  });

  it('describe a range that ends in its arena', () => {
    const device = fixture.setUp();
    const { fd, handle } = ipcWrapHandle(device, device.memory.allocate(4096));
    closeFd(fd);
    const { arenaBytes, byteLength } = ipcInspectHandle(handle);
    expect(byteLength).toBe(4096);
    const at = (offset: number): Uint8Array => {
      const changed = handle.slice();
      new DataView(changed.buffer).setBigUint64(8, BigInt(offset), true);
      return changed;
    };
    expect(ipcInspectHandle(at(arenaBytes - 4096)).offset).toBe(arenaBytes - 4096);
    expect(() => ipcInspectHandle(at(arenaBytes - 4095))).toThrow(/must describe a range inside its arena/);
  });

  it('cannot be opened if the driver does not import', () => {
    const device = fixture.setUp({ importDmabuf: false });
    const { fd, handle } = ipcWrapHandle(device, device.memory.allocate(4096));
    expect(() => ipcOpenHandle(device, fd, handle)).toThrow(/cannot import dma-bufs/);
    closeFd(fd);
  });
});
