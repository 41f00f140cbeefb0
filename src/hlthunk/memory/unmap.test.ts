/** memoryUnmap by address: it ends every kind of mapping as its own method does, or leaves it usable. */

import { expect, it } from 'vitest';
import { settle, useEmulatedDevice } from '../../../test/fixtures/emulated-device.ts';
import { fillPattern } from '../../../test/fixtures/pattern.ts';
import { close as closeFd } from '../../sys/index.ts';
import { Status } from '../../ucs/type/status.ts';
import {
  type Device,
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

/** Copies through a range of device memory and back, and compares. */
async function expectRoundTrip(device: Device, address: bigint): Promise<void> {
  const buffer = malloc(2 * BYTES);
  fillPattern(buffer.bytes.subarray(0, BYTES), 3);
  const mapping = device.hostMemoryMap(buffer.address, buffer.byteLength);
  const range = device.deviceMemoryRange(address, BYTES);
  expect(await settle(device, device.dma.dmaHostToDeviceAsync(mapping, 0, range, 0, BYTES))).toBe(Status.OK);
  expect(await settle(device, device.dma.dmaDeviceToHostAsync(range, 0, mapping, BYTES, BYTES))).toBe(Status.OK);
  expect(buffer.bytes.subarray(BYTES)).toEqual(buffer.bytes.subarray(0, BYTES));
  range.end();
  memoryUnmap(device, mapping.address);
  free(buffer);
}

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
  await expectRoundTrip(device, block.address);
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
  await expectRoundTrip(device, address);
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
