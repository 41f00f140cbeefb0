import { Worker } from 'node:worker_threads';
import { describe, expect, it } from 'vitest';
import { Errno } from '../base/errno.ts';
import { mapFile, mappedMemoryStatistics } from '../base/mapped-memory.ts';
import { close } from '../file/file.ts';
import { ftruncate, memfdCreate } from './memfd.ts';
import { addressOf, memcpy, memset } from './memory.ts';
import { mapLarge, mapSharedWindow, unmapLarge } from './shared-window.ts';

function memfdOf(byteLength: number): number {
  const fd = memfdCreate('shared-window-test');
  ftruncate(fd, byteLength);
  return fd;
}

describe('mapSharedWindow', () => {
  it('is the file, under a real SharedArrayBuffer', () => {
    const fd = memfdOf(1 << 20);
    const window = mapSharedWindow(fd, 1 << 19, 1 << 19);
    using memory = mapFile(fd, 1 << 20, 0);
    close(fd);
    expect(window.buffer).toBeInstanceOf(SharedArrayBuffer);
    const bytes = new Uint8Array(window.buffer);
    expect([bytes.length, addressOf(bytes)]).toEqual([1 << 19, window.address]);
    bytes[3] = 33;
    expect(memory.u8[(1 << 19) + 3]).toBe(33);
    memory.u8[(1 << 20) - 1] = 44;
    expect(bytes[(1 << 19) - 1]).toBe(44);
  });

  it('shares the bytes with a worker that sleeps in Atomics.wait', async () => {
    const fd = memfdOf(65536);
    const window = mapSharedWindow(fd, 65536, 0);
    const words = new Int32Array(window.buffer);
    const worker = new Worker(
      `const { workerData } = require('node:worker_threads');
       const words = new Int32Array(workerData);
       while (Atomics.load(words, 0) === 0) Atomics.wait(words, 0, 0, 50);
       words[1] = words[0] + 1;`,
      { eval: true, workerData: window.buffer },
    );
    Atomics.store(words, 0, 41);
    Atomics.notify(words, 0);
    await new Promise((resolve) => worker.once('exit', resolve));
    using memory = mapFile(fd, 4096, 0);
    expect(memory.words[1]).toBe(42);
    close(fd);
  });

  it('covers a part of a 64 KiB page', () => {
    const fd = memfdOf(4096);
    const window = mapSharedWindow(fd, 4096, 0);
    expect([window.byteLength, window.buffer.byteLength]).toEqual([4096, 65536]);
    const bytes = new Uint8Array(window.buffer);
    bytes.fill(1);
    expect(bytes[65535]).toBe(1);
    close(fd);
  });

  it('windows 96 GiB in 24 pieces', () => {
    const fd = memfdOf(96 * 2 ** 30);
    const windows = Array.from({ length: 24 }, (_, index) => mapSharedWindow(fd, 2 ** 32, index * 2 ** 32));
    for (const [index, window] of windows.entries()) new Uint8Array(window.buffer)[2 ** 32 - 1] = index + 1;
    using last = mapFile(fd, 4096, 96 * 2 ** 30 - 4096);
    expect(last.u8[4095]).toBe(24);
    close(fd);
  });

  it('reports errors', () => {
    expect(() => mapSharedWindow(9999, 65536, 0)).toThrow(expect.objectContaining({ errno: Errno.EBADF }));
    const invalid = expect.objectContaining({ code: 'ERR_INVALID_PARAM' });
    expect(() => mapSharedWindow(0, 100, 0)).toThrow(invalid);
    expect(() => mapSharedWindow(0, 0, 0)).toThrow(invalid);
    expect(() => mapSharedWindow(0, 2 ** 32 + 65536, 0)).toThrow(invalid);
    expect(() => mapSharedWindow(0, 65536, -4096)).toThrow(invalid);
  });
});

describe('mapLarge', () => {
  it('reaches both ends of 96 GiB by address', () => {
    const byteLength = 96 * 2 ** 30;
    const before = mappedMemoryStatistics();
    const fd = memfdOf(byteLength);
    const address = mapLarge(fd, byteLength);
    expect(mappedMemoryStatistics().liveBytes).toBe(before.liveBytes + byteLength);
    memset(address, 0x5a, 8);
    memcpy(address + byteLength - 8, address, 8);
    using tail = mapFile(fd, 4096, byteLength - 4096);
    expect([...tail.u8.subarray(4087)]).toEqual([0, ...Array(8).fill(0x5a)]);
    unmapLarge(address, byteLength);
    close(fd);
    tail.close();
    const after = mappedMemoryStatistics();
    expect([after.liveMappings, after.liveBytes]).toEqual([before.liveMappings, before.liveBytes]);
  });

  it('reports errors', () => {
    expect(() => mapLarge(9999, 4096)).toThrow(expect.objectContaining({ errno: Errno.EBADF }));
    expect(() => unmapLarge(17, 4096)).toThrow(expect.objectContaining({ errno: Errno.EINVAL }));
  });
});
