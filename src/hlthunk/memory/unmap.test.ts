/** memoryUnmap by address: it ends every kind of mapping as its own method does, or leaves it usable. */

import { expect, it } from 'vitest';
import { expectRoundTrip, useEmulatedDevice } from '../../../test/fixtures/driver/emulated-device.ts';
import { close as closeFd } from '../../sys/index.ts';
import { Status } from '../../ucs/type/status.ts';
import {
  deviceMappedMemoryExportDmabufFd,
  deviceMemoryAlloc,
  deviceMemoryFree,
  deviceMemoryMap,
  dmaPoll,
  dmaRequestFree,
  free,
  GaudiErrorCode,
  malloc,
  memoryUnmap,
} from '../index.ts';

const BYTES = 8192;
const INVALID = expect.objectContaining({ code: GaudiErrorCode.INVALID_PARAMS });
const BUSY = expect.objectContaining({ code: GaudiErrorCode.DEVICE_BUSY });
const fixture = useEmulatedDevice();

it('ends a host mapping like its own unmap', async () => {
  const device = fixture.setUp();
  const buffer = malloc(BYTES);
  const mapping = device.hostMemoryMap(buffer.address, BYTES);
  const pinned = device.pinnedBytes;
  mapping.retain();
  expect(() => memoryUnmap(device, mapping.address)).toThrow(BUSY);
  mapping.release();
  memoryUnmap(device, mapping.address);
  expect([mapping.live, pinned - device.pinnedBytes]).toEqual([false, BYTES]);
  expect(() => mapping.unmap()).toThrow(INVALID);
  const block = device.memory.allocate(BYTES);
  expect(() => device.dma.dmaHostToDeviceAsync(mapping, 0, block, 0, BYTES)).toThrow(INVALID);
  block.free();
  free(buffer);
});

it('does not take the arena from under blocks', async () => {
  const device = fixture.setUp();
  const block = device.memory.allocate(BYTES);
  expect(() => memoryUnmap(device, block.address)).toThrow(INVALID);
  await expectRoundTrip(fixture, device, block.address);
  block.free();
});

it('is refused with the holder while the memory is exported, which stays usable', async () => {
  const device = fixture.setUp();
  const handle = deviceMemoryAlloc(device, BYTES);
  const address = deviceMemoryMap(device, handle);
  const fd = deviceMappedMemoryExportDmabufFd(device, address, BYTES, 0, 0);
  expect(() => memoryUnmap(device, address)).toThrow(
    expect.objectContaining({ message: expect.stringContaining('a dma-buf of the memory is open') }),
  );
  await expectRoundTrip(fixture, device, address);
  closeFd(fd);
  memoryUnmap(device, address);
  deviceMemoryFree(device, handle);
});

it('finds that a polled request has been freed', async () => {
  const device = fixture.setUp();
  const { mapping } = fixture.pin(device, BYTES);
  const block = device.memory.allocate(BYTES);
  const request = device.dma.dmaHostToDeviceAsync(mapping, 0, block, 0, BYTES)!;
  while (dmaPoll(device, request) === Status.INPROGRESS) await new Promise(setImmediate);
  dmaRequestFree(device, request);
  expect(() => dmaPoll(device, request)).toThrow(INVALID);
  mapping.unmap();
  block.free();
});
