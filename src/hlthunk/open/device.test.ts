/** Closing a device whose file is not released at once, as the kernel does while a call is in progress. */

import { describe, expect, it } from 'vitest';
import { useEmulatedDevice } from '../../../test/fixtures/driver/emulated-device.ts';
import type { DriverFile } from '../../driver/port.ts';
import { mappedMemoryStatistics } from '../../sys/index.ts';
import { Status } from '../../ucs/type/status.ts';
import { Device } from './device.ts';

const fixture = useEmulatedDevice();

/** A file whose release after close is deferred until `release`. */
function heldFile(file: DriverFile): { file: DriverFile; release: () => void } {
  let release: () => void = () => {};
  let released: Promise<void> | undefined;
  const held: DriverFile = {
    numbers: file.numbers,
    ioctl: (request, block) => file.ioctl(request, block),
    ioctlAsync: (request, block) => file.ioctlAsync(request, block),
    mmap: (byteLength, offset) => file.mmap(byteLength, offset),
    mapRegisters: (byteLength, offset) => file.mapRegisters(byteLength, offset),
    close: () => {
      file.close();
      released = new Promise((resolve) => {
        release = resolve;
      });
    },
    get released() {
      return released;
    },
  };
  return { file: held, release: () => release() };
}

describe('close', () => {
  it('keeps the memory of the rings until the file is released, then releases it', async () => {
    fixture.setUp({ cards: 2 });
    const entry = fixture.node.cards()[1]!;
    const { file, release } = heldFile(fixture.node.open(1));
    const device = new Device(fixture.node, file, entry, { log: fixture.log.log });
    const block = device.memory.allocate(4096);
    const request = device.dma.putShort(new Uint8Array(8), 0, block, 0, 8)!;
    device.close();
    expect(request.status).not.toBe(Status.INPROGRESS);
    const held = mappedMemoryStatistics().liveMappings;
    const { released } = device;
    device.close();
    expect(device.released).toBe(released);
    release();
    await released;
    expect(mappedMemoryStatistics().liveMappings).toBe(held - 1);
    expect(device.released).toBeUndefined();
  });

  it('releases everything at once if no call is in progress', () => {
    const device = fixture.setUp();
    device.close();
    expect(device.released).toBeUndefined();
  });
});
