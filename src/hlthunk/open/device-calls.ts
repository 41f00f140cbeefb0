/**
 * The calls of hl-thunk that work on an open device, as functions with the device first: the C names in camelCase. They call the methods of the objects;
 * programs may use either form.
 */

import type { Status } from '../../ucs/type/status.ts';
import type { DmaRequest } from '../dma/request.ts';
import type { DeviceMemoryRange } from '../memory/device-range.ts';
import type { DmaMemory } from '../memory/dma-memory.ts';
import type { ImportedMapping } from '../memory/dmabuf.ts';
import type { HostMapOptions, HostMapping } from '../memory/host-memory.ts';
import { checkDevice, type Device } from './device.ts';

/** Closes a device: see {@link Device.close}. */
export function close(device: Device): void {
  checkDevice(device);
  device.close();
}

/** Pins host memory and maps it to a device address: see {@link Device.hostMemoryMap}. */
export function hostMemoryMap(
  device: Device,
  address: number,
  byteLength: number,
  options?: HostMapOptions,
): HostMapping {
  checkDevice(device);
  return device.hostMemoryMap(address, byteLength, options);
}

/**
 * The device memory at an address, as a range for transfers: inside a mapping of deviceMemoryMap, SRAM, or physical memory of gaudi. The range ends with its
 * `end` or with the mapping. See DeviceRanges.
 */
export function deviceMemoryRange(device: Device, address: bigint, byteLength: number): DeviceMemoryRange {
  checkDevice(device);
  return device.deviceMemoryRange(address, byteLength);
}

/**
 * Starts a copy of host memory to device memory: see DeviceDma. Undefined is NO_RESOURCE.
 * @example
 * ```ts
 * const from = hostMemoryMap(device, malloc(4096).address, 4096);
 * const block = device.memory.allocate(4096);
 * const request = dmaHostToDeviceAsync(device, from, 0, block, 0, 4096)!;
 * while (dmaPoll(device, request) === Status.INPROGRESS);
 * dmaRequestFree(device, request);
 * ```
 */
export function dmaHostToDeviceAsync(
  device: Device,
  mapping: HostMapping,
  mappingOffset: number,
  block: DmaMemory,
  blockOffset: number,
  byteLength: number,
): DmaRequest | undefined {
  checkDevice(device);
  return device.dma.dmaHostToDeviceAsync(mapping, mappingOffset, block, blockOffset, byteLength);
}

/** Starts a copy of device memory to host memory: see DeviceDma. Undefined is NO_RESOURCE. */
export function dmaDeviceToHostAsync(
  device: Device,
  block: DmaMemory,
  blockOffset: number,
  mapping: HostMapping,
  mappingOffset: number,
  byteLength: number,
): DmaRequest | undefined {
  checkDevice(device);
  return device.dma.dmaDeviceToHostAsync(block, blockOffset, mapping, mappingOffset, byteLength);
}

/** Starts a copy within the card: see DeviceDma. Undefined is NO_RESOURCE. */
export function dmaDeviceToDeviceAsync(
  device: Device,
  source: DmaMemory,
  sourceOffset: number,
  destination: DmaMemory,
  destinationOffset: number,
  byteLength: number,
): DmaRequest | undefined {
  checkDevice(device);
  return device.dma.dmaDeviceToDeviceAsync(source, sourceOffset, destination, destinationOffset, byteLength);
}

/** The status of a request, after making progress: INPROGRESS, OK or a failure. */
export function dmaPoll(device: Device, request: DmaRequest): Status {
  checkDevice(device);
  return device.dma.dmaPoll(request);
}

/** Releases an ended request. */
export function dmaRequestFree(device: Device, request: DmaRequest): void {
  checkDevice(device);
  device.dma.dmaRequestFree(request);
}

/** Imports a dma-buf, if the driver supports that: see {@link Device.registerDmabufFd}. */
export function registerDmabufFd(device: Device, fd: number, byteLength: number): ImportedMapping {
  checkDevice(device);
  return device.registerDmabufFd(fd, byteLength);
}
