/** From which length the receiver of a tagged message reads it out of the sender's memory, where UCX_RNDV_THRESH leaves it to this engine. It sends nothing. */

import { IfaceFlag } from '../../uct/api/iface.ts';
import { MemAccess } from '../../uct/api/memory-domain.ts';
import { hasKeyPart, type LocalMemory, MemoryHandle } from '../mem/memory-handle.ts';
import { isReadScheme, type RendezvousScheme } from '../resources/config.ts';
import type { Connection } from './request/request.ts';

/**
 * From here on one copy between the processors with an offer and a reply takes less time than two copies through a ring, where each line crosses between
 * the processors twice (docs/BENCHMARKS.md).
 */
export const READ_BYTES = 32_768;

/** What is asked of the context. */
export interface ReadContext {
  readonly scheme: RendezvousScheme;
  /** The mapped memory that host bytes are of. */
  handleOf(bytes: Uint8Array): MemoryHandle | undefined;
}

/** The length in bytes from which tagged messages out of this memory go by rendezvous: Infinity where only the length of a frame decides. */
export function rendezvousFrom(context: ReadContext, connection: Connection, memory: LocalMemory): number {
  const { rendezvousThreshold, lanes } = connection;
  if (rendezvousThreshold !== Number.POSITIVE_INFINITY || !isReadScheme(context.scheme)) return rendezvousThreshold;
  const handle = memory instanceof MemoryHandle ? memory : context.handleOf(memory);
  // Memory that is not mapped would be registered for each message, which costs more than the copy.
  if (handle === undefined || (handle.access & MemAccess.REMOTE_GET) === 0) return rendezvousThreshold;
  const isReached = lanes.some(
    ({ iface, md }) => (iface.attributes.flags & IfaceFlag.CPU_ACCESS) !== 0 && hasKeyPart(handle, md.index),
  );
  return isReached ? READ_BYTES : rendezvousThreshold;
}
