/**
 * The calls of hl-thunk as a C program makes them: allocate device memory, map it, copy to it and back by DMA, export it as a dma-buf, free everything.
 * Runs on a real card or, without one, on an emulated card; UCX_GAUDI_DRIVER selects.
 */

import { closeSync } from 'node:fs';
import {
  close,
  type Device,
  type DmaRequest,
  deviceMappedMemoryExportDmabufFd,
  deviceMemoryAlloc,
  deviceMemoryExportDmabufFd,
  deviceMemoryFree,
  deviceMemoryMap,
  deviceMemoryRange,
  dmaDeviceToHostAsync,
  dmaHostToDeviceAsync,
  dmaPoll,
  dmaRequestFree,
  free,
  getDeviceName,
  getPciBusId,
  hostMemoryMap,
  malloc,
  memoryUnmap,
  openDevice,
  Status,
} from '../src/hlthunk.ts';

const BYTES = 2 ** 20;

/** Polls until a transfer has ended, and throws its error. */
function finish(device: Device, request: DmaRequest | undefined): void {
  if (request === undefined) throw new Error('too many transfers in flight');
  let status = dmaPoll(device, request);
  while (status === Status.INPROGRESS) status = dmaPoll(device, request);
  dmaRequestFree(device, request);
  if (status !== Status.OK) throw device.dma.errorOf(status);
}

const device = openDevice();
console.log(`${getDeviceName(device)} at ${getPciBusId(device)}, driver: ${device.node.kind}`);

// On gaudi the driver only accounts for memory: it has physical addresses, which the program divides.
const handle = deviceMemoryAlloc(device, BYTES);
const hasMmu = device.info.profile.capabilities.dramMmu;
const address = hasMmu ? deviceMemoryMap(device, handle) : device.info.dramBaseAddress;
const range = deviceMemoryRange(device, address, BYTES);
console.log(`${BYTES} bytes of device memory at 0x${address.toString(16)}`);

const source = malloc(BYTES);
const target = malloc(BYTES);
source.bytes.fill(42);
const from = hostMemoryMap(device, source.address, BYTES);
const to = hostMemoryMap(device, target.address, BYTES);

finish(device, dmaHostToDeviceAsync(device, from, 0, range, 0, BYTES));
finish(device, dmaDeviceToHostAsync(device, range, 0, to, 0, BYTES));
const isSame = Buffer.compare(source.bytes, target.bytes) === 0;

// For another driver, such as that of a network device. It keeps the memory until the descriptor is closed.
const exportMemory = hasMmu ? deviceMappedMemoryExportDmabufFd : deviceMemoryExportDmabufFd;
closeSync(exportMemory(device, address, BYTES));

from.unmap();
to.unmap();
free(source);
free(target);
range.end();
if (hasMmu) memoryUnmap(device, address);
deviceMemoryFree(device, handle, BYTES);
close(device);
console.log(isSame ? 'the same bytes came back' : 'the bytes differ');
