/**
 * Registers foreign device memory by its dma-buf, with the memory domains that accept dma-bufs. Host memory behind a dma-buf is mapped, and registered
 * like other host memory. Registers device memory with memory domains that do not know the device, such as those of network cards: by a dma-buf from a
 * memory domain that knows it. Memory that cannot be registered in this way is staged.
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

/** Parameters of memMap for a dma-buf. */
export type DmabufMapParams = Extract<MapParams, { readonly dmabuf: object }>;

/** Device memory that was registered. */
export interface DmabufParts {
  /** The part of the memory domain whose device reaches the memory: its address and device are those of the memory. */
  readonly first: MdMemory;
  /** The parts, by the index of the memory domain. */
  readonly parts: readonly (MdMemory | undefined)[];
  /** Why memory domains that could have a part have none, by their index. */
  readonly refusals: ReadonlyMap<number, string>;
}

/** A memory domain that registers dma-bufs. */
type DmabufDomain = MemoryDomain & Required<Pick<MemoryDomain, 'memRegDmabuf'>>;

interface DmabufHandler {
  readonly md: DmabufDomain;
  readonly index: number;
}

/**
 * The range that params name.
 * @throws UcxError ERR_INVALID_PARAM
 */
export function checkDmabuf({ dmabuf }: DmabufMapParams): DmabufRange {
  checkOptions(dmabuf, 'dmabuf', ['fd', 'offset', 'byteLength']);
  const { fd, offset = 0, byteLength } = dmabuf;
  if (!Number.isInteger(fd) || fd < 0 || fd >= 2 ** 31) {
    throw invalidParam('dmabuf.fd', 'must be a file descriptor', fd);
  }
  if (!isOpen(fd)) throw invalidParam('dmabuf.fd', 'must be an open descriptor', fd);
  if (!Number.isSafeInteger(offset) || offset < 0) {
    throw invalidParam('dmabuf.offset', 'must be an integer of at least 0', offset);
  }
  if (!Number.isSafeInteger(byteLength) || byteLength <= 0) {
    throw invalidParam('dmabuf.byteLength', 'must be a positive integer', byteLength);
  }
  if (!Number.isSafeInteger(offset + byteLength)) {
    throw invalidParam('dmabuf.byteLength', `plus offset ${offset} must stay below 2^53`, byteLength);
  }
  return { fd, offset, byteLength };
}

/**
 * Registers device memory with every memory domain that takes its dma-buf. One of them must have the device that reaches it; a refusal by others, as those of
 * network cards, is no failure: the memory is staged for them.
 * @throws UcxError ERR_UNSUPPORTED where no memory domain takes dma-bufs of the type; else the refusal of the first that does
 */
export function registerDmabuf(
  mds: readonly OpenMd[],
  range: DmabufRange,
  { memoryType, sysDevice, access }: Pick<DmabufRegion, 'memoryType' | 'sysDevice' | 'access'>,
): DmabufParts {
  const parts: (MdMemory | undefined)[] = mds.map(() => undefined);
  const refusals = new Map<number, string>();
  let first: MdMemory | undefined;
  let failure: unknown = noHandler(memoryType);
  try {
    for (const { md, index } of handlersOf(mds, memoryType)) {
      // Memory domains without a device for the memory get the address that the first one has given it.
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
        if (refusals.size === 0) failure = error;
        refusals.set(index, error.message);
      }
    }
    if (first === undefined) throw failure;
    return { first, parts, refusals };
  } catch (error) {
    for (const [index, part] of parts.entries()) if (part !== undefined) mds[index]!.md.memDereg(part);
    throw error;
  }
}

/** The memory domains that accept dma-bufs of a type; first those that detect memory of the type, because they provide the address for the others. */
function handlersOf(mds: readonly OpenMd[], memoryType: MemoryType): readonly DmabufHandler[] {
  const takes = mds.flatMap(({ md, index }) => (registersDmabufs(md, memoryType) ? [{ md, index }] : []));
  const rankOf = ({ md }: DmabufHandler): number => {
    if (hasMemoryType(md.attributes.detectMemoryTypes, memoryType)) return 0;
    return accesses(md, memoryType) ? 1 : 2;
  };
  return takes.sort((a, b) => rankOf(a) - rankOf(b));
}

/** Whether a memory domain registers memory of a type by its dma-buf. */
function registersDmabufs(md: MemoryDomain, memoryType: MemoryType): md is DmabufDomain {
  const { flags, registerDmabufMemoryTypes = 0 } = md.attributes;
  const registers = (flags & MdFlag.REG_DMABUF) !== 0 && md.memRegDmabuf !== undefined;
  return registers && hasMemoryType(registerDmabufMemoryTypes, memoryType);
}

function accesses({ attributes }: MemoryDomain, memoryType: MemoryType): boolean {
  return hasMemoryType(attributes.accessMemoryTypes, memoryType);
}

function noHandler(memoryType: MemoryType): unknown {
  const why = 'no open memory domain takes it: upstream habanalabs drivers import no dma-bufs, the vendor’s does';
  return statusError(Status.UNSUPPORTED, `map a dma-buf of ${memoryTypeName(memoryType)} memory (${why})`);
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

/** The registrations, and the reasons of memory domains without one; by the index of the memory domain. */
export interface DmabufRegistrations {
  readonly parts: ReadonlyMap<number, MdMemory>;
  readonly refusals: ReadonlyMap<number, string>;
}

/** Registers allocated memory with all memory domains that accept it only by a dma-buf. One export serves all of them. */
export function registerByDmabuf(
  mds: readonly OpenMd[],
  { types, log }: { readonly types: MemoryTypes; readonly log: Log },
  memory: MdMemory,
  access: number,
): DmabufRegistrations {
  const parts = new Map<number, MdMemory>();
  const refusals = new Map<number, string>();
  const { address, byteLength, memoryType, sysDevice } = memory;
  const place = { address, byteLength, memoryType, sysDevice, access };
  let exported: DmabufExport | undefined;
  let refusal: string | undefined;
  try {
    for (const { index, md } of mds) {
      if (!takesDmabuf(md, memory)) continue;
      try {
        if (refusal === undefined)
          exported ??= types.exportDmabuf({ address, byteLength, ...(sysDevice === undefined ? {} : { sysDevice }) });
        if (exported !== undefined) parts.set(index, md.memRegDmabuf({ ...place, ...exported }));
      } catch (error) {
        if (!isUcxError(error)) throw error;
        // The export has failed: it is not tried again for the other memory domains.
        if (exported === undefined) refusal = error.message;
        else refusals.set(index, error.message);
      }
      if (refusal !== undefined) refusals.set(index, refusal);
    }
  } finally {
    exported?.close();
  }
  logRefusals(mds, log, address, refusals);
  return { parts, refusals };
}

/** Logs the memory domains for which memory is staged, and why. */
export function logRefusals(
  mds: readonly OpenMd[],
  log: Log,
  address: bigint,
  refusals: DmabufRegistrations['refusals'],
): void {
  for (const [index, reason] of refusals) {
    const { name } = mds[index]!.md.attributes;
    log.debug(`memory at 0x${address.toString(16)} has no handle of ${name}, and is staged for it: ${reason}`);
  }
}

function takesDmabuf(md: MemoryDomain, { memoryType }: MdMemory): md is DmabufDomain {
  const { flags, registerMemoryTypes } = md.attributes;
  const isDirect = (flags & MdFlag.REG) !== 0 && hasMemoryType(registerMemoryTypes, memoryType);
  return registersDmabufs(md, memoryType) && !isDirect;
}
