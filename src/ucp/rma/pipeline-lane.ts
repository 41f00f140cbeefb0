/**
 * The lane that writes the windows of a rendezvous whose memory no lane reaches directly, for explanations and estimates. The rendezvous itself decides by
 * the keys that it receives.
 */

import { hasMemoryType, MemoryType } from '../../ucs/memory/memory-type.ts';
import { MdFlag } from '../../uct/api/memory-domain.ts';
import type { Connection } from '../base/request/request.ts';
import { laneDistance } from '../lane/lane-distance.ts';
import { HOST_PLACE } from '../mem/memory-handle.ts';
import type { RemoteKey } from '../mem/remote-key.ts';
import {
  type Candidate,
  type MemoryPlace,
  movesLong,
  Operation,
  type Plan,
  selectProtocols,
} from '../proto/selection.ts';
import type { OpenMd } from '../resources/resources.ts';

/** The lane for windows to the memory of a key, and their cost; undefined if messages carry them. See {@link pipelinePlan}. */
export function pipelineLane(
  connection: Pick<Connection, 'lanes' | 'distanceOf'>,
  rkey: Pick<RemoteKey, 'memoryType' | 'parts'>,
  local: MemoryPlace,
): Candidate | undefined {
  const best = pipelinePlan(connection, rkey, local).steps.at(-1)?.candidate;
  return movesLong(best) ? best : undefined;
}

/**
 * The plan for windows to the memory of a key.
 * @param local place of the bytes: memory other than host memory goes through fragments
 */
export function pipelinePlan(
  { lanes, distanceOf }: Pick<Connection, 'lanes' | 'distanceOf'>,
  rkey: Pick<RemoteKey, 'memoryType' | 'parts'>,
  local: MemoryPlace,
): Plan {
  const isRemoteHost = rkey.memoryType === MemoryType.HOST;
  const isLocalHost = local.memoryType === MemoryType.HOST;
  const capabilities = lanes.map(({ iface, md }) => ({
    attributes: iface.attributes,
    distance: laneDistance(distanceOf, { iface }, local.sysDevice),
    hasRemoteKey: isRemoteHost ? rkey.parts[md.index] !== undefined : hasFragments(md),
    hasLocalMemory: isLocalHost || hasFragments(md),
    registerCost: undefined,
  }));
  return selectProtocols(Operation.PUT, HOST_PLACE, HOST_PLACE, capabilities);
}

/** Whether a memory domain has a part of the fragments: it registers host memory, or allocates what peers map. */
function hasFragments({ md: { attributes } }: OpenMd): boolean {
  const { flags, allocateMemoryTypes, registerMemoryTypes } = attributes;
  const types = (flags & MdFlag.RKEY_PTR) === 0 ? registerMemoryTypes : allocateMemoryTypes;
  return hasMemoryType(types, MemoryType.HOST);
}
