/** The part of one memory domain in a remote key. */

import type { Log } from '../../ucs/debug/log.ts';
import { isUcxError } from '../../ucs/type/error.ts';
import type { MdMemory } from '../../uct/api/memory.ts';
import type { MemoryDomain } from '../../uct/api/memory-domain.ts';
import type { RkeyPart } from './rkey-bytes.ts';

/**
 * Packs the part. A memory domain that cannot publish keys now, for lack of space in /dev/shm or of descriptors, is left out: peers use the others.
 * @returns undefined where it is left out
 */
export function packPart(md: MemoryDomain, memory: MdMemory, log: Log | undefined): RkeyPart | undefined {
  const { name, rkeyPackedBytes } = md.attributes;
  const key = new Uint8Array(rkeyPackedBytes);
  try {
    md.mkeyPack(memory, key, 0);
  } catch (error) {
    if (!isUcxError(error) || !error.code.startsWith('ERR_SYSCALL_')) throw error;
    log?.warn(`a remote key has no part for ${name}: ${error.message}`);
    return undefined;
  }
  return { name, key };
}
