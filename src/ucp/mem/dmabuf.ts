/**
 * Registers memory by its dma-buf. Foreign device memory is registered with the memory domains that accept dma-bufs; host memory behind a dma-buf is mapped,
 * and registered like other host memory. Device memory is also registered with memory domains that do not know the device, such as those of network cards: a
 * memory domain that knows the device exports a dma-buf, and the others register this. Memory that cannot be registered in this way is staged.
 */

import { fstatSync } from 'node:fs';
import type { MapParams } from '../../api/contract/memory.ts';
import type { Log } from '../../ucs/debug/log.ts';
import { hasMemoryType, type MemoryType, memoryTypeName } from '../../ucs/memory/memory-type.ts';
import { checkOptions } from '../../ucs/type/check-options.ts';
import { invalidParam, isUcxError, statusError } from '../../ucs/type/error.ts';
import { Status } from '../../ucs/type/status.ts';
import type { DmabufRange } from '../../uct/api/host-dmabufs.ts';
import type { MdMemory } from '../../uct/api/memory.ts';
import { type DmabufExport, type DmabufRegion, MdFlag, type MemoryDomain } from '../../uct/api/memory-domain.ts';
import type { OpenMd } from '../resources/resources.ts';
import type { MemoryTypes } from './memory-types.ts';

export type DmabufMapParams = Extract<MapParams, { readonly dmabuf: object }>;

/** The registrations of device memory. */
export interface DmabufParts {
  /** The registration with the memory domain whose device reaches the memory: it provides the address and device of the memory. */
  readonly first: MdMemory;
  /** The registrations, by memory domain index. */
  readonly parts: readonly (MdMemory | undefined)[];
  /** Why memory domains that could register the memory have not, by index. */
  readonly registrationErrors: ReadonlyMap<number, string>;
}

type DmabufDomain = MemoryDomain & Required<Pick<MemoryDomain, 'memRegDmabuf'>>;

interface DmabufHandler {
  readonly md: DmabufDomain;
  readonly index: number;
}

/**
 * Checks the range in the parameters of a dma-buf.
 * @throws UcxError ERR_INVALID_PARAM
 */
export function checkDmabuf({ dmabuf }: DmabufMapParams): DmabufRange {
  checkOptions(dmabuf, 'dmabuf', ['fd', 'offset', 'byteLength']);
  const { fd, offset = 0, byteLength } = dmabuf;
  if (!Number.isInteger(fd) || fd < 0 || fd >= 2 ** 31) {
    throw invalidParam('dmabuf.fd', 'must be a file descriptor', fd);
  }
  if (!isOpen(fd)) throw invalidParam('dmabuf.fd', 'must be an open file descriptor', fd);
  if (!Number.isSafeInteger(offset) || offset < 0) {
    throw invalidParam('dmabuf.offset', 'must be an integer of at least 0', offset);
  }
  if (!Number.isSafeInteger(byteLength) || byteLength <= 0) {
    throw invalidParam('dmabuf.byteLength', 'must be a positive integer', byteLength);
  }
  if (!Number.isSafeInteger(offset + byteLength)) {
    throw invalidParam(
      'dmabuf.byteLength',
      `must be less than 2^53 - ${offset}, because the offset is ${offset}`,
      byteLength,
    );
  }
  return { fd, offset, byteLength };
}

/**
 * Registers device memory with every memory domain that accepts its dma-buf. One of them must have the device that reaches it. If another fails, such as
 * that of a network card, the memory is staged for it.
 * @throws UcxError ERR_UNSUPPORTED if no memory domain accepts dma-bufs of the type; otherwise the error of the first memory domain whose device reaches
 * it
 */
export function registerDmabuf(
  mds: readonly OpenMd[],
  range: DmabufRange,
  { memoryType, sysDevice, access }: Pick<DmabufRegion, 'memoryType' | 'sysDevice' | 'access'>,
): DmabufParts {
  const parts: (MdMemory | undefined)[] = mds.map(() => undefined);
  const registrationErrors = new Map<number, string>();
  let first: MdMemory | undefined;
  let failure: unknown = noHandler(memoryType);
  try {
    for (const { md, index } of handlersOf(mds, memoryType)) {
      // Memory domains without a device for the memory get the address that the first registration has.
      const place = {
        address: first?.address ?? BigInt(range.offset),
        memoryType,
        sysDevice: first?.sysDevice ?? sysDevice,
        ...(access === undefined ? {} : { access }),
      };
      try {
        const part = md.memRegDmabuf({ ...range, ...place });
        parts[index] = part;
        if (accesses(md, memoryType)) first ??= part;
      } catch (error) {
        if (!isUcxError(error)) throw error;
        if (registrationErrors.size === 0) failure = error;
        registrationErrors.set(index, error.message);
      }
    }
    if (first === undefined) throw failure;
    return { first, parts, registrationErrors };
  } catch (error) {
    for (const [index, part] of parts.entries()) if (part !== undefined) mds[index]!.md.memDereg(part);
    throw error;
  }
}

/** The memory domains that accept dma-bufs of a type. Those that detect memory of the type come first, because they provide the address for the others. */
function handlersOf(mds: readonly OpenMd[], memoryType: MemoryType): readonly DmabufHandler[] {
  const takes = mds.flatMap(({ md, index }) => (registersDmabufs(md, memoryType) ? [{ md, index }] : []));
  const rankOf = ({ md }: DmabufHandler): number => {
    if (hasMemoryType(md.attributes.detectMemoryTypes, memoryType)) return 0;
    return accesses(md, memoryType) ? 1 : 2;
  };
  return takes.sort((a, b) => rankOf(a) - rankOf(b));
}

/** True if a memory domain registers memory of a type by its dma-buf. */
function registersDmabufs(md: MemoryDomain, memoryType: MemoryType): md is DmabufDomain {
  const { flags, registerDmabufMemoryTypes = 0 } = md.attributes;
  const registers = (flags & MdFlag.REG_DMABUF) !== 0 && md.memRegDmabuf !== undefined;
  return registers && hasMemoryType(registerDmabufMemoryTypes, memoryType);
}

function accesses({ attributes }: MemoryDomain, memoryType: MemoryType): boolean {
  return hasMemoryType(attributes.accessMemoryTypes, memoryType);
}

function noHandler(memoryType: MemoryType): unknown {
  const why =
    'no open memory domain accepts it: importing a dma-buf needs the habanalabs driver of the vendor, not the upstream one';
  return statusError(Status.UNSUPPORTED, `cannot map a dma-buf of ${memoryTypeName(memoryType)} memory (${why})`);
}

function isOpen(fd: number): boolean {
  try {
    fstatSync(fd);
    return true;
  } catch (error) {
    if (error instanceof Error && 'code' in error && error.code === 'EBADF') return false;
    throw error;
  }
}

/** Registrations, and the reasons of memory domains without one; by memory domain index. */
export interface DmabufRegistrations {
  readonly parts: ReadonlyMap<number, MdMemory>;
  readonly registrationErrors: ReadonlyMap<number, string>;
}

/** Registers allocated memory with all memory domains that accept it only by a dma-buf. One export serves all of them. */
export function registerByDmabuf(
  mds: readonly OpenMd[],
  { types, log }: { readonly types: MemoryTypes; readonly log: Log },
  memory: MdMemory,
  access: number,
): DmabufRegistrations {
  const parts = new Map<number, MdMemory>();
  const registrationErrors = new Map<number, string>();
  const { address, byteLength, memoryType, sysDevice } = memory;
  const place = { address, byteLength, memoryType, sysDevice, access };
  let exported: DmabufExport | undefined;
  let exportError: string | undefined;
  try {
    for (const { index, md } of mds) {
      if (!takesDmabuf(md, memory)) continue;
      try {
        if (exportError === undefined)
          exported ??= types.exportDmabuf({ address, byteLength, ...(sysDevice === undefined ? {} : { sysDevice }) });
        if (exported !== undefined) parts.set(index, md.memRegDmabuf({ ...place, ...exported }));
      } catch (error) {
        if (!isUcxError(error)) throw error;
        // The export has failed: do not repeat it for the other memory domains.
        if (exported === undefined) exportError = error.message;
        else registrationErrors.set(index, error.message);
      }
      if (exportError !== undefined) registrationErrors.set(index, exportError);
    }
  } finally {
    exported?.close();
  }
  logUnregistered(mds, log, address, registrationErrors);
  return { parts, registrationErrors };
}

/** Logs the memory domains for which memory is staged, with the reasons. */
export function logUnregistered(
  mds: readonly OpenMd[],
  log: Log,
  address: bigint,
  registrationErrors: DmabufRegistrations['registrationErrors'],
): void {
  for (const [index, reason] of registrationErrors) {
    const { name } = mds[index]!.md.attributes;
    log.debug(`cannot register memory at 0x${address.toString(16)} with ${name}, it is staged: ${reason}`);
  }
}

function takesDmabuf(md: MemoryDomain, { memoryType }: MdMemory): md is DmabufDomain {
  const { flags, registerMemoryTypes } = md.attributes;
  const isDirect = (flags & MdFlag.REG) !== 0 && hasMemoryType(registerMemoryTypes, memoryType);
  return registersDmabufs(md, memoryType) && !isDirect;
}
