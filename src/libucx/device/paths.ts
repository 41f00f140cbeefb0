/** Selects the path of a put or get that accesses memory of a card. */

import type { ExplainedOperation } from '../../api/contract/endpoint.ts';
import type { Explanation } from '../../api/contract/explanation.ts';
import type { EngineEndpoint } from '../engine/engine.ts';
import { type LocalMemory, UcpMemory } from '../mem/memory-handle.ts';
import type { UcpRemoteKey } from '../mem/remote-key.ts';
import { isHost, isKnown } from '../request/local.ts';

/** The paths. */
export const DevicePath = {
  /** The transports of the node: both memories are on this machine. */
  NODE: 0,
  /** libucp alone: both memories are known to it. */
  DIRECT: 1,
  /** Local fragments: host memory is at the other end. */
  PIPELINE: 2,
  /** Messages to the owner of the card. */
  REMOTE: 3,
} as const;
export type DevicePath = (typeof DevicePath)[keyof typeof DevicePath];

/** Selects the path of a put or get. */
export function choosePath(
  endpoint: EngineEndpoint,
  operation: 'put' | 'get',
  local: LocalMemory,
  rkey: UcpRemoteKey,
): DevicePath {
  if (reachesByNode(endpoint, operation, local, rkey)) return DevicePath.NODE;
  if (rkey.handle !== 0 && isKnown(local)) return DevicePath.DIRECT;
  return rkey.exportId === 0 ? DevicePath.PIPELINE : DevicePath.REMOTE;
}

/** True if the transports of the node move any number of bytes between the memories. Computed once for a key and a kind of local memory. */
export function reachesByNode(
  endpoint: EngineEndpoint,
  operation: 'put' | 'get',
  local: LocalMemory,
  rkey: UcpRemoteKey,
): boolean {
  if (rkey.node === undefined) return false;
  const bit = (isHost(local) ? 1 : 2) << (operation === 'put' ? 0 : 2);
  if ((rkey.nodeAsked & bit) === 0) {
    rkey.nodeAsked |= bit;
    const chosen = explainByNode(endpoint, operation, local, rkey)?.chosen ?? [];
    if (chosen[0]?.bytesMin === 1 && chosen.at(-1)?.bytesMax === Number.POSITIVE_INFINITY) rkey.nodeReaches |= bit;
  }
  return (rkey.nodeReaches & bit) !== 0;
}

/** The explanation of the transports of the node; undefined if they do not reach the peer. */
export function explainByNode(
  endpoint: EngineEndpoint,
  operation: ExplainedOperation,
  local: LocalMemory,
  rkey: UcpRemoteKey,
): Explanation | undefined {
  if (rkey.node === undefined || endpoint.nodeEndpoint === undefined) return undefined;
  return endpoint.nodeEndpoint.explain(operation, local instanceof UcpMemory ? local.node : local, rkey.node);
}
