/** The length from which a receiver reads a tagged message from the memory of the sender, if UCX_RNDV_THRESH does not set one. It sends nothing. */

import { IfaceFlag } from '../../uct/api/iface.ts';
import { MemAccess } from '../../uct/api/memory-domain.ts';
import type { Connection } from '../base/request/request.ts';
import { hasKeyPart, type LocalMemory, MemoryHandle } from '../mem/memory-handle.ts';
import { isReadScheme, type RendezvousScheme } from '../resources/config.ts';

/**
 * From this length on, one copy between the processors, with an offer and a reply, takes less time than two copies through a ring, in which each cache
 * line crosses between the processors twice (docs/BENCHMARKS.md).
 */
export const READ_BYTES = 32_768;

/** The part of the context that is used here. */
export interface ReadContext {
  readonly scheme: RendezvousScheme;
  /** The mapped memory that contains host bytes. */
  handleOf(bytes: Uint8Array): MemoryHandle | undefined;
}

/** The length in bytes from which tagged messages from this memory are sent by rendezvous; Infinity if only the length of a frame decides. */
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
