/** Path selection for puts and gets that access device memory. */

import type { ExplainedOperation } from '../../api/contract/endpoint.ts';
import type { Explanation } from '../../api/contract/explanation.ts';
import type { EngineEndpoint } from '../engine/engine.ts';
import { type LocalMemory, UcpMemory } from '../mem/memory-handle.ts';
import type { UcpRemoteKey } from '../mem/remote-key.ts';
import { isHost, isKnown } from '../request/local.ts';

export const DevicePath = {
  /** The native transports: both memories are on this machine. */
  NATIVE: 0,
  /** libucp alone: it can access both memories. */
  DIRECT: 1,
  /** Local fragments: the device memory is local, the remote memory is host memory. */
  PIPELINE: 2,
  /** Messages to the owner of the remote device memory. */
  REMOTE: 3,
} as const;
export type DevicePath = (typeof DevicePath)[keyof typeof DevicePath];

export function choosePath(
  endpoint: EngineEndpoint,
  operation: 'put' | 'get',
  local: LocalMemory,
  rkey: UcpRemoteKey,
): DevicePath {
  if (reachesByNative(endpoint, operation, local, rkey)) return DevicePath.NATIVE;
  if (rkey.handle !== 0 && isKnown(local)) return DevicePath.DIRECT;
  return rkey.exportId === 0 ? DevicePath.PIPELINE : DevicePath.REMOTE;
}

/** True if the native transports move any number of bytes between the memories. Cached per key and kind of local memory. */
export function reachesByNative(
  endpoint: EngineEndpoint,
  operation: 'put' | 'get',
  local: LocalMemory,
  rkey: UcpRemoteKey,
): boolean {
  if (rkey.native === undefined) return false;
  const bit = (isHost(local) ? 1 : 2) << (operation === 'put' ? 0 : 2);
  if ((rkey.nativeQueried & bit) === 0) {
    rkey.nativeQueried |= bit;
    const chosen = explainByNative(endpoint, operation, local, rkey)?.chosen ?? [];
    if (chosen[0]?.bytesMin === 1 && chosen.at(-1)?.bytesMax === Number.POSITIVE_INFINITY) rkey.nativeSupported |= bit;
  }
  return (rkey.nativeSupported & bit) !== 0;
}

/** The explanation of the native transports; undefined if they do not reach the peer. */
export function explainByNative(
  endpoint: EngineEndpoint,
  operation: ExplainedOperation,
  local: LocalMemory,
  rkey: UcpRemoteKey,
): Explanation | undefined {
  if (rkey.native === undefined || endpoint.nativeEndpoint === undefined) return undefined;
  return endpoint.nativeEndpoint.explain(
    operation,
    local instanceof UcpMemory ? local.nativeHandle : local,
    rkey.native,
  );
}
