/**
 * Registers device memory with memory domains that do not know the device, such as those of network cards: by a dma-buf from a memory domain that knows
 * it. Memory that cannot be registered in this way is staged; that is no failure.
 */

import type { Log } from '../../ucs/debug/log.ts';
import { hasMemoryType } from '../../ucs/memory/memory-type.ts';
import { isUcxError } from '../../ucs/type/error.ts';
import type { MdMemory } from '../../uct/api/memory.ts';
import { type DmabufExport, MdFlag, type MemoryDomain } from '../../uct/api/memory-domain.ts';
import type { OpenMd } from '../resources/resources.ts';
import { type DmabufDomain, registersDmabufs } from './dmabuf-mapping.ts';
import type { MemoryTypes } from './memory-types.ts';

/** The registrations, and the reasons of memory domains without one; by the index of the memory domain. */
export interface DmabufRegistrations {
  readonly parts: ReadonlyMap<number, MdMemory>;
  readonly refusals: ReadonlyMap<number, string>;
}

/** Registers allocated memory with all memory domains that accept it only by a dma-buf. One export serves all of them. */
export function registerByDmabuf(
  mds: readonly OpenMd[],
  types: MemoryTypes,
  log: Log,
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
