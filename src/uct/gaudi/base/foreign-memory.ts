/**
 * Device memory that this program did not allocate with gaudi_copy: imported dma-bufs, with their descriptors for further export, and blocks of the
 * application, found by device address.
 */

import {
  type DeviceBlock,
  type DevicePart,
  GaudiErrorCode,
  gaudiError,
  type ImportedMapping,
  type IpcHandle,
  ipcWrapImport,
} from '../../../hlthunk/index.ts';
import { close as closeFd, dup, Errno, isSyscallError } from '../../../sys/index.ts';
import { MemoryType } from '../../../ucs/memory/memory-type.ts';
import type { DmabufCounts } from '../../../ucs/stats/dmabuf-counts.ts';
import { checkOptions } from '../../../ucs/type/check-options.ts';
import { invalidParam, isUcxError, statusError } from '../../../ucs/type/error.ts';
import { Status } from '../../../ucs/type/status.ts';
import type { DeviceRange, DmabufRegion, RegistrationSource } from '../../api/memory-domain.ts';
import { checkByteLength, checkSysDevice } from '../../base/checks.ts';
import type { DmabufPlace } from '../../base/host/dmabufs.ts';
import type { GaudiCard } from './cards.ts';
import { GaudiMemory } from './memory.ts';

/** Whether the driver of any of the cards can import dma-bufs. MEMORY REG_DMABUF_FD is in the vendor's driver only, not in upstream drivers. */
export function canImportDmabufs(cards: readonly GaudiCard[]): boolean {
  return cards.some(({ device }) => device.canImportDmabuf);
}

/** An imported dma-buf. Created by {@link importDmabuf}. */
export class ImportedDmabuf {
  /** The card whose address space contains it. */
  readonly card: GaudiCard;
  /** The registered range, for transfers of the card. */
  readonly mapping: ImportedMapping;
  /** Offset of the registered range in the dma-buf. */
  readonly offset: number;
  readonly #fd: number;
  #closed = false;

  /** @param fd a descriptor that this object owns */
  constructor(card: GaudiCard, mapping: ImportedMapping, offset: number, fd: number) {
    this.card = card;
    this.mapping = mapping;
    this.offset = offset;
    this.#fd = fd;
    this.#dmabufs.kept();
  }

  get #dmabufs(): DmabufCounts {
    return this.card.device.card.dmabufs;
  }

  /**
   * Exports the dma-buf for another driver, from the first registered byte on.
   * @returns a new descriptor, which the caller owns
   * @throws SyscallError EMFILE
   */
  export(): DmabufPlace {
    const { mapping, offset } = this;
    const fd = dup(this.#fd);
    this.#dmabufs.exported(
      mapping.byteLength,
      `${mapping.byteLength} bytes of the import at 0x${mapping.address.toString(16)}, fd ${fd}`,
    );
    return { fd, offset };
  }

  /** The handle with which gaudi_ipc of a peer opens the dma-buf. Throws like {@link ipcWrapImport}. */
  wrap(): IpcHandle {
    return ipcWrapImport(this.card.device, this.mapping, this.#fd);
  }

  /**
   * Ends the import. Idempotent.
   * @param isForced if true, transfers in flight keep the mapping until the card is closed
   * @throws UcxError ERR_GAUDI_DEVICE_BUSY, without any change, if transfers use it and the close is not forced
   */
  close(isForced: boolean): void {
    if (this.#closed) return;
    const { mapping } = this;
    const isUsed = mapping.live && mapping.inFlight > 0;
    if (isUsed && !isForced) {
      const message = `imported memory at 0x${mapping.address.toString(16)} has transfers in flight: wait for them first`;
      throw gaudiError(GaudiErrorCode.DEVICE_BUSY, message);
    }
    if (mapping.live && !isUsed) mapping.unmap();
    this.#closed = true;
    closeFd(this.#fd);
    this.#dmabufs.closed();
  }
}

/**
 * Imports a dma-buf of device memory into the card of the region, or into the first card that can import. The caller keeps its descriptor: a duplicate is held
 * until the import is closed.
 * @throws UcxError ERR_INVALID_PARAM for an invalid fd, offset or byteLength; ERR_UNSUPPORTED if the driver cannot import; ERR_GAUDI_DEVICE_NOT_FOUND for a
 *   card that is not open, and for memory of a card without a link to it; NO_MEMORY without free descriptors or device addresses
 */
export function importDmabuf(cards: readonly GaudiCard[], region: DmabufRegion): ImportedDmabuf {
  checkOptions(region, 'region');
  const { fd, offset, byteLength, memoryType, sysDevice } = region;
  if (memoryType !== MemoryType.GAUDI) {
    throw invalidParam('memoryType', 'must be gaudi: cards cannot import dma-bufs of other memory', memoryType);
  }
  if (!Number.isSafeInteger(offset) || offset < 0)
    throw invalidParam('offset', 'must be an integer of at least 0', offset);
  checkByteLength(byteLength);
  if (!Number.isSafeInteger(offset + byteLength)) {
    throw invalidParam('byteLength', 'plus offset must be below 2^53', byteLength);
  }
  checkSysDevice(sysDevice);
  const card = sysDevice === undefined ? firstImporter(cards) : cardAt(cards, sysDevice);
  if (card?.device.canImportDmabuf !== true) {
    const who = card === undefined ? 'the cards' : card.device.card.name;
    const why = 'MEMORY REG_DMABUF_FD is in the vendor’s driver only';
    throw statusError(Status.UNSUPPORTED, `import a dma-buf: the driver of ${who} cannot import (${why})`);
  }
  const own = duplicate(fd);
  try {
    return new ImportedDmabuf(card, register(card, own, { fd, offset, byteLength }), offset, own);
  } catch (error) {
    closeFd(own);
    throw error;
  }
}

function firstImporter(cards: readonly GaudiCard[]): GaudiCard | undefined {
  return cards.find(({ device }) => device.canImportDmabuf);
}

function duplicate(fd: number): number {
  if (!Number.isInteger(fd) || fd < 0 || fd >= 2 ** 31) throw invalidParam('fd', 'must be a file descriptor', fd);
  try {
    return dup(fd);
  } catch (error) {
    if (isSyscallError(error, Errno.EBADF)) throw invalidParam('fd', 'must be an open descriptor', fd);
    throw error;
  }
}

/** A range of a dma-buf, with the program's descriptor for errors. */
interface DmabufRange {
  readonly fd: number;
  readonly offset: number;
  readonly byteLength: number;
}

/** Maps the range. Distinguishes the two causes of EINVAL: the descriptor is not a dma-buf of a card, or the range exceeds the dma-buf. */
function register(card: GaudiCard, own: number, { fd, offset, byteLength }: DmabufRange): ImportedMapping {
  const { device } = card;
  try {
    return device.registerDmabufFd(own, byteLength, offset);
  } catch (error) {
    if (!isInvalid(error)) throw error;
    if (!isDeviceDmabuf(card, own)) {
      throw invalidParam('fd', 'must be a dma-buf of device memory that the driver can import', fd);
    }
    throw invalidParam('byteLength', `plus offset ${offset} must be at most the size of the dma-buf`, byteLength);
  }
}

/** Whether the driver can import the first byte of a dma-buf. */
function isDeviceDmabuf({ device }: GaudiCard, fd: number): boolean {
  try {
    device.registerDmabufFd(fd, 1).unmap();
    return true;
  } catch (error) {
    if (isInvalid(error)) return false;
    throw error;
  }
}

/** Whether the driver returned EINVAL. */
function isInvalid(error: unknown): boolean {
  return isUcxError(error) && error.details['errno'] === 'EINVAL';
}

/** A part of a block, and its card. */
export interface PartOfCard {
  readonly card: GaudiCard;
  readonly block: DeviceBlock;
  readonly part: DevicePart;
}

/**
 * Whether a registration source is memory of a card.
 * @throws UcxError ERR_INVALID_PARAM for an object of the same shape that this library did not create
 */
export function isDeviceRange(source: RegistrationSource): source is DeviceRange {
  if (source instanceof GaudiMemory && !GaudiMemory.isGenuine(source)) {
    throw invalidParam('memory', 'must be memory of this library, not an object that imitates it', source);
  }
  return (
    typeof source === 'object' && source !== null && 'memoryType' in source && source.memoryType === MemoryType.GAUDI
  );
}

/**
 * The card with this index.
 * @throws UcxError ERR_GAUDI_DEVICE_NOT_FOUND
 */
export function cardAt(cards: readonly GaudiCard[], sysDevice: number): GaudiCard {
  const card = cards.find(({ index }) => index === sysDevice);
  if (card !== undefined) return card;
  const known = cards.map(({ index }) => index).join(', ');
  throw gaudiError(
    GaudiErrorCode.DEVICE_NOT_FOUND,
    `sysDevice ${sysDevice} is not an open card (open cards: ${known})`,
  );
}

/**
 * Makes a part of the block that contains a range.
 * @throws UcxError ERR_GAUDI_DEVICE_NOT_FOUND; ERR_INVALID_PARAM for a range that is not inside one allocation of the card
 */
export function partAt(cards: readonly GaudiCard[], { address, byteLength, sysDevice }: DeviceRange): PartOfCard {
  if (typeof address !== 'bigint') throw invalidParam('address', 'must be a device address (bigint)', address);
  if (!Number.isSafeInteger(byteLength) || byteLength <= 0) {
    throw invalidParam('byteLength', 'must be a positive integer', byteLength);
  }
  const card = cardAt(cards, sysDevice);
  const block = card.device.memory.find(address);
  const offset = block === undefined ? 0 : Number(address - block.address);
  if (block === undefined || byteLength > block.byteLength - offset) {
    const rule = `must be the start of ${byteLength} bytes inside one allocation that hl-thunk made on ${card.device.card.name}`;
    throw invalidParam('address', rule, `0x${address.toString(16)}`);
  }
  return { card, block, part: block.part(offset, byteLength) };
}
