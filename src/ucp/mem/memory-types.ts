/**
 * Finds the memory type of an address: in the memory type cache of a context, which memory domains and reports of the program fill, or by queries of the
 * memory domains that detect memory.
 */

import type { AddressedMemory, MemoryInfo, TypeEvent } from '../../api/contract/memory.ts';
import { hasMemoryType, MEMORY_TYPE_COUNT, MemoryType, memoryTypeName } from '../../ucs/memory/memory-type.ts';
import { MemoryTypeCache } from '../../ucs/memory/memory-type-cache.ts';
import { checkOptions } from '../../ucs/type/check-options.ts';
import { invalidParam, isUcxError, statusError, UcxError } from '../../ucs/type/error.ts';
import { Status } from '../../ucs/type/status.ts';
import type { HostDmabufs } from '../../uct/api/host-dmabufs.ts';
import type { DmabufExport, MemoryDomain } from '../../uct/api/memory-domain.ts';

const ADDRESS_END: bigint = 2n ** 64n;
/** Stands for memory of the process that is not on any known device. */
const NO_DEVICE: number = 2 ** 31 - 1;

export class MemoryTypes {
  /** Undefined with UCX_MEMTYPE_CACHE=n: then every query goes to the memory domains. */
  readonly cache: MemoryTypeCache | undefined;
  readonly #mds: () => readonly MemoryDomain[];
  readonly #hostDmabufs: Pick<HostDmabufs, 'export'>;

  /**
   * @param mds the memory domains, which may be opened later
   * @param hostDmabufs exports host memory
   */
  constructor(isCached: boolean, mds: () => readonly MemoryDomain[], hostDmabufs: Pick<HostDmabufs, 'export'>) {
    this.cache = isCached ? new MemoryTypeCache() : undefined;
    this.#mds = mds;
    this.#hostDmabufs = hostDmabufs;
  }

  /**
   * The memory at an address. Memory that no memory domain knows is host memory.
   * @throws UcxError ERR_INVALID_PARAM; ERR_INVALID_ADDR for a range that is only partly inside an allocation, or spans
   *   allocations of several devices
   */
  query(memory: AddressedMemory): MemoryInfo {
    const address = checkRange(memory);
    const { byteLength, sysDevice } = memory;
    const { cache } = this;
    const known = cache === undefined ? 'partial' : cache.lookup(sysDevice, address, byteLength);
    if (known !== undefined && known !== 'partial') {
      const { memoryType, device, base, length } = known;
      return { memoryType, sysDevice: deviceOf(device), baseAddress: base, allocLength: length };
    }
    return known === undefined ? hostMemory(address, byteLength) : this.#detect(address, byteLength, sysDevice);
  }

  /**
   * A dma-buf of memory. Queries the memory domains that support such device memory one after the other.
   * @returns a descriptor that belongs to the caller
   * @throws UcxError ERR_INVALID_PARAM, ERR_INVALID_ADDR like {@link query}; ERR_UNSUPPORTED, with all reasons, if no memory domain exports it
   */
  exportDmabuf(memory: AddressedMemory): DmabufExport {
    const address = checkRange(memory);
    const { byteLength, sysDevice } = memory;
    const { memoryType } = this.query(memory);
    if (memoryType === MemoryType.HOST) return this.#hostDmabufs.export(address, byteLength);
    const reasons: string[] = [];
    for (const md of this.#mds()) {
      const { name, detectMemoryTypes } = md.attributes;
      if (!hasMemoryType(detectMemoryTypes, memoryType)) continue;
      if (md.detectMemoryType(address, byteLength, sysDevice) === undefined) continue;
      try {
        return md.memExportDmabuf(address, byteLength, sysDevice);
      } catch (error) {
        if (!isUcxError(error)) throw error;
        reasons.push(`${name}: ${error.message}`);
      }
    }
    const why = reasons.join('; ') || 'not recognized by any memory domain';
    throw statusError(Status.UNSUPPORTED, `cannot export a dma-buf of ${memoryTypeName(memoryType)} memory (${why})`);
  }

  /**
   * Records a report that memory was allocated (before its address is used) or freed.
   * @throws UcxError ERR_INVALID_PARAM
   */
  take(report: TypeEvent): void {
    checkOptions(report, 'event', ['event', 'memoryType', 'address', 'byteLength', 'sysDevice']);
    const { event, memoryType, ...memory } = report;
    const address = checkRange(memory);
    if (event !== 'allocated' && event !== 'freed')
      throw invalidParam('event', "must be 'allocated' or 'freed'", event);
    const isForeign = Number.isInteger(memoryType) && memoryType > MemoryType.HOST && memoryType < MEMORY_TYPE_COUNT;
    if (!isForeign) throw invalidParam('memoryType', 'must be a memory type other than host', memoryType);
    const device = memory.sysDevice ?? NO_DEVICE;
    if (event === 'allocated') this.cache?.insert(device, address, memory.byteLength, memoryType);
    else this.cache?.remove(device, address, memory.byteLength);
  }

  /** Queries the memory domains one after the other. */
  #detect(address: bigint, byteLength: number, sysDevice: number | undefined): MemoryInfo {
    for (const md of this.#mds()) {
      if (md.attributes.detectMemoryTypes === 0) continue;
      const found = md.detectMemoryType(address, byteLength, sysDevice);
      if (found !== undefined) return found;
    }
    if (this.cache?.isComplete !== true) return hostMemory(address, byteLength);
    throw new UcxError({
      code: 'ERR_INVALID_ADDR',
      status: Status.INVALID_ADDR,
      message: `memory at 0x${address.toString(16)}, length ${byteLength} is not inside one allocation of one device`,
    });
  }
}

function hostMemory(address: bigint, byteLength: number): MemoryInfo {
  return { memoryType: MemoryType.HOST, sysDevice: undefined, baseAddress: address, allocLength: byteLength };
}

function deviceOf(device: number): number | undefined {
  return device === NO_DEVICE ? undefined : device;
}

const RANGE_FIELDS: readonly string[] = ['address', 'byteLength', 'sysDevice'];

/** Checks a range, and returns its address. */
function checkRange(memory: AddressedMemory): bigint {
  // Handles have additional fields, which are accepted.
  const isPlain = Object.getPrototypeOf(memory ?? 0) === Object.prototype;
  checkOptions(memory, 'memory', isPlain ? RANGE_FIELDS : undefined);
  const { address, byteLength, sysDevice } = memory;
  const isWhole = typeof address === 'bigint' || Number.isSafeInteger(address);
  if (!isWhole || address < 0 || address >= ADDRESS_END) {
    throw invalidParam('address', 'must be a non-negative safe integer or a bigint below 2^64', address);
  }
  const base = BigInt(address);
  if (!(Number.isSafeInteger(byteLength) && byteLength > 0 && base + BigInt(byteLength) <= ADDRESS_END)) {
    throw invalidParam('byteLength', 'must be a positive integer, and address + byteLength at most 2^64', byteLength);
  }
  if (sysDevice !== undefined && !(Number.isInteger(sysDevice) && sysDevice >= 0 && sysDevice < NO_DEVICE)) {
    throw invalidParam('sysDevice', 'must be a system device index', sysDevice);
  }
  return base;
}
