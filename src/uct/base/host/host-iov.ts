/** The local side of zero copy: a list of parts of host memory, checked as a whole before any transfer. */

import { invalidParam } from '../../../ucs/type/error.ts';
import type { IovEntry } from '../../api/iface.ts';
import { isInBytes } from '../range.ts';
import { HostMemory } from './host-memory.ts';

/** An entry that has passed {@link checkIov}. */
export interface HostIovEntry extends IovEntry {
  readonly memory: HostMemory;
}

/** Maximum number of entries of a list. */
export const IOV_MAX = 16;

/**
 * Checks a list and returns its total bytes.
 * @throws UcxError ERR_INVALID_PARAM for too many entries, memory of another domain, released memory, and ranges outside
 */
export function checkIov(iov: readonly IovEntry[], mdName: string): number {
  if (iov.length > IOV_MAX) throw invalidParam('iov', `must have at most ${IOV_MAX} entries`, iov.length);
  let total = 0;
  for (let i = 0; i < iov.length; i++) {
    const { memory, offset, byteLength } = iov[i]!;
    if (!(memory instanceof HostMemory) || memory.mdName !== mdName) {
      throw invalidParam('iov', `must hold memory of memory domain ${mdName}`, memory?.mdName);
    }
    if (!memory.live || !isInBytes(offset, byteLength, memory.bytes)) {
      const place = `${byteLength} at ${offset}`;
      throw invalidParam('iov', `must lie inside live memory of ${memory.byteLength} bytes`, place);
    }
    total += byteLength;
  }
  return total;
}
