/**
 * Which lane writes the windows of a rendezvous whose memory no lane reaches by itself: for explanations and estimates. The rendezvous itself looks at the
 * keys that it gets.
 */

import { hasMemoryType, MemoryType } from '../../ucs/memory-type.ts';
import { MdFlag } from '../../uct/api/memory-domain.ts';
import type { Lane } from '../core/lane.ts';
import type { OpenMd } from '../core/resources.ts';
import { HOST_PLACE } from '../mem/memory-handle.ts';
import type { RemoteKey } from '../mem/remote-key.ts';
import { type Candidate, Operation, Protocol, selectProtocols } from '../proto/selection.ts';

/**
 * The lane for windows to the memory of a key, and what they cost on it; undefined where they go in messages.
 * @param isLocalHost whether the bytes are in host memory, and not in fragments
 */
export function pipelineLane(
  lanes: readonly Lane[],
  rkey: Pick<RemoteKey, 'memoryType' | 'parts'>,
  isLocalHost: boolean,
): Candidate | undefined {
  const isRemoteHost = rkey.memoryType === MemoryType.HOST;
  const capabilities = lanes.map(({ iface, md }) => ({
    attributes: iface.attributes,
    hasRemoteKey: isRemoteHost ? rkey.parts[md.index] !== undefined : hasFragments(md),
    hasLocalMemory: isLocalHost || hasFragments(md),
    registerCost: undefined,
  }));
  const { steps } = selectProtocols(Operation.PUT, HOST_PLACE, HOST_PLACE, capabilities);
  const best = steps.at(-1)?.candidate;
  return best?.protocol === Protocol.ZCOPY ? best : undefined;
}

/** Whether a memory domain has a part of the fragments: it registers host memory, or allocates what peers map. */
function hasFragments({ md: { attributes } }: OpenMd): boolean {
  const { flags, allocateMemoryTypes, registerMemoryTypes } = attributes;
  const types = (flags & MdFlag.RKEY_PTR) === 0 ? registerMemoryTypes : allocateMemoryTypes;
  return hasMemoryType(types, MemoryType.HOST);
}
