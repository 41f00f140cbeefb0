/**
 * The raw device-memory calls of hl-thunk: allocate, free, map, unmap. Handles and addresses are the driver's, as bigint, in whole pages (768 MiB on gaudi2);
 * for smaller sizes there are arenas (device-arenas.ts).
 *
 * On gaudi the driver only counts allocated bytes: the handle is always 0, and the user manages the memory, at physical addresses and without mappings.
 */

import { HL_MEM, HL_MEM_OP } from '../../uapi/index.ts';
import { type CardTarget, cardOf } from '../base/card-file.ts';
import {
  checkFlag,
  checkInteger,
  checkLength,
  checkObject,
  checkWord64,
  invalidArgument,
} from '../base/gaudi-error.ts';

/** Options of a device memory allocation. */
export interface DeviceMemoryAllocOptions {
  /** Bytes of a page, one of getDevMemAllocPageOrders; 0 for the default. */
  readonly pageSize?: number | undefined;
  /** Whether the memory must be physically contiguous. */
  readonly contiguous?: boolean | undefined;
  /** Whether other contexts of the card may map it. */
  readonly shared?: boolean | undefined;
}

/**
 * Allocates device memory (MEMORY ALLOC).
 * @param byteLength rounded up to pages by the driver
 * @returns the handle, 0n on gaudi
 * @throws UcxError ERR_GAUDI_OUT_OF_MEMORY, ERR_GAUDI_INVALID_PARAMS, ERR_GAUDI_DEVICE_BUSY
 */
export function deviceMemoryAlloc(
  target: CardTarget,
  byteLength: number,
  options: DeviceMemoryAllocOptions = {},
): bigint {
  checkLength('byteLength', byteLength);
  checkObject('options', options, ['pageSize', 'contiguous', 'shared']);
  const pageSize = options.pageSize ?? 0;
  checkInteger('pageSize', pageSize);
  checkFlag('contiguous', options.contiguous);
  checkFlag('shared', options.shared);
  let flags = 0;
  if (options.contiguous === true) flags |= HL_MEM.CONTIGUOUS;
  if (options.shared === true) flags |= HL_MEM.SHARED;
  const card = cardOf(target);
  const { handle } = card.memory(
    { alloc_mem_size: BigInt(byteLength), alloc_page_size: BigInt(pageSize), op: HL_MEM_OP.ALLOC, flags },
    `deviceMemoryAlloc of ${byteLength} bytes`,
  );
  if (handle !== 0n && card.pageBytes !== 0) {
    const pageBytes = pageSize === 0 ? card.pageBytes : pageSize;
    card.rawAllocations.set(handle, Math.ceil(byteLength / pageBytes) * pageBytes);
  }
  return handle;
}

/**
 * Frees memory of {@link deviceMemoryAlloc}, which must not be mapped any more.
 * @param byteLength gaudi only: the bytes to subtract from the driver's count, because all handles are 0 there
 * @throws UcxError ERR_GAUDI_INVALID_PARAMS for an unknown or mapped handle
 */
export function deviceMemoryFree(target: CardTarget, handle: bigint, byteLength = 0): void {
  const input = freeInput(handle, byteLength);
  const card = cardOf(target);
  card.memory(input, `deviceMemoryFree of handle ${handle}`);
  card.rawAllocations.delete(handle);
}

/** The arguments of FREE: a handle, or on gaudi a number of bytes in the same field (`hl_mem_ioctl`, Linux 6.12). */
export function freeInput(handle: bigint, byteLength: number): { free_handle: bigint; op: number } {
  checkWord64('handle', handle);
  checkInteger('byteLength', byteLength);
  return { free_handle: handle === 0n ? BigInt(byteLength) : handle, op: HL_MEM_OP.FREE };
}

/**
 * Maps device memory into the address space of the card (MEMORY MAP). From then on `device.memory.find` finds it, and contexts can register it.
 * @param hint preferred device address; 0n for none
 * @returns the device address: not a CPU pointer
 * @throws UcxError ERR_GAUDI_INVALID_PARAMS for an unknown handle; ERR_GAUDI_OUT_OF_MEMORY if the address space is exhausted
 */
export function deviceMemoryMap(target: CardTarget, handle: bigint, hint = 0n): bigint {
  const address = mapHandle(target, handle, hint);
  const byteLength = target.card.rawAllocations.get(handle);
  if (byteLength !== undefined) target.card.onRawMapped(address, byteLength, handle);
  return address;
}

/** MEMORY MAP without registration, for arenas. Arguments and errors are those of {@link deviceMemoryMap}. */
export function mapHandle(target: CardTarget, handle: bigint, hint = 0n): bigint {
  if (handle === 0n) throw invalidArgument('handle', 'must be a handle of deviceMemoryAlloc other than 0', handle);
  checkWord64('handle', handle);
  checkWord64('hint', hint);
  return cardOf(target).memory(
    { map_device_hint_addr: hint, map_device_handle: handle, op: HL_MEM_OP.MAP },
    `deviceMemoryMap of handle ${handle}`,
  ).device_virt_addr;
}

/**
 * Ends a mapping of {@link deviceMemoryMap}, a host mapping or an import of a dma-buf; the last two as with their `unmap`. Registrations of device memory end
 * with it, and peers that have imported the memory are notified to release it. While a dma-buf of the memory is open, the driver rejects the call, which can be
 * repeated: the memory stays mapped, and can be used and registered again.
 * @param address exactly the result of the mapping
 * @throws UcxError ERR_GAUDI_INVALID_PARAMS for another address, and for memory that is exported as a dma-buf; ERR_GAUDI_DEVICE_BUSY while a transfer uses it
 */
export function memoryUnmap(target: CardTarget, address: bigint): void {
  checkWord64('address', address);
  const card = cardOf(target);
  if (card.addressOwners.some((owner) => owner.unmapAt(address))) return;
  card.memory({ unmap_device_virt_addr: address, op: HL_MEM_OP.UNMAP }, `memoryUnmap of 0x${address.toString(16)}`);
}
