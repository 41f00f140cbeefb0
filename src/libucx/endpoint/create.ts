/** Creates endpoints of libucp: to a worker address, to a listener, for an accepted client; with or without peer error handling. */

import type { EndpointOptions } from '../../api/contract/endpoint.ts';
import { allocateScratch, type ProcessIdentity, type ScratchBlock } from '../../sys/index.ts';
import { endpointConnect } from '../../ucs/debug/diagnostics.ts';
import { checkStatus } from '../../ucs/type/error.ts';
import { Status } from '../../ucs/type/status.ts';
import { UCP_EP_PARAM_FIELD, UCP_EP_PARAMS, UCP_ERR_HANDLING_MODE } from '../c/abi.ts';
import { Fields, OutValue } from '../c/fields.ts';
import { requireDescriptors } from '../c/limits.ts';
import { withoutTransports } from '../c/worker-address.ts';
import type { EndpointHandling, EngineEndpoint } from '../engine/engine.ts';
import type { AddressFields } from '../mem/remote-key.ts';
import { Endpoint } from './endpoint.ts';
import type { EndpointParts } from './message-endpoint.ts';
import type { UnprovenPeers } from './unproven-peers.ts';

/** Makes the endpoint of a libucp handle, and registers it. */
function adopt(parts: EndpointParts, handle: number, nativeAddress: Uint8Array, handling: EndpointHandling): Endpoint {
  const endpoint = new Endpoint(parts, handle, nativeAddress, handling);
  parts.endpoints.add(endpoint);
  if (handling.isWatched && handling.process !== undefined) parts.ended.watch(endpoint, handling.process);
  if (endpointConnect.hasSubscribers) endpointConnect.publish({ transports: endpoint.transports, status: Status.OK });
  return endpoint;
}

/** The endpoint of a libucp handle; created and registered if the peer initiated it. */
export function endpointOf(parts: EndpointParts, handle: number): EngineEndpoint {
  const handling = { options: {}, isWatched: false, isBorrowed: true };
  return parts.endpoints.get(handle) ?? adopt(parts, handle, new Uint8Array(0), handling);
}

/** Zero bytes after an address: libucp may read past its end, because it does not know the length. */
const ADDRESS_PADDING = 64;

/**
 * Connects to a worker address.
 * @throws UcxError ERR_UNREACHABLE and other errors of ucp_ep_create
 */
export function connectToAddress(
  parts: EndpointParts,
  { ucx, native, location }: AddressFields,
  options: EndpointOptions,
): EngineEndpoint {
  using address = allocateScratch(ucx.byteLength + ADDRESS_PADDING);
  address.u8.set(ucx);
  const process = location.isNear ? location.process : undefined;
  return createEndpoint(parts, { nativeAddress: native.slice(), process }, options, addressSetter(address));
}

/**
 * Connects to a worker of a program that does not use this library. With error handling, it uses only transports on which such a program can reply: by
 * default, UCX does not detect the end of a peer over shared memory.
 * @param ucx the address packed by libucp
 * @throws UcxError ERR_UNREACHABLE and other errors of ucp_ep_create
 */
export function connectToForeign(
  parts: EndpointParts & { readonly unproven: UnprovenPeers },
  ucx: Uint8Array,
  options: EndpointOptions,
): EngineEndpoint {
  const { ownDetection } = parts.core.context.configuration;
  using whole = allocateScratch(ucx.byteLength + ADDRESS_PADDING);
  using answered = allocateScratch(ucx.byteLength + ADDRESS_PADDING);
  whole.u8.set(ucx);
  answered.u8.set(withoutTransports(ucx, ownDetection) ?? ucx);
  const setPeer = { peer: addressSetter(answered), none: addressSetter(whole) };
  const endpoint = createEndpoint(parts, UNKNOWN_PEER, options, setPeer);
  parts.unproven.expect(endpoint);
  return endpoint;
}

function addressSetter(address: ScratchBlock): SetPeer {
  return (params) => {
    params.setU64('address', address.address);
    return UCP_EP_PARAM_FIELD.REMOTE_ADDRESS;
  };
}

/** Sets the fields that identify the peer, and returns their mask bits. */
type SetPeer = (params: Fields<typeof UCP_EP_PARAMS.at>) => number;

/** Information about a peer from an address of this engine. */
export interface KnownPeer {
  /** Address for the native transports; empty if unknown. */
  readonly nativeAddress: Uint8Array;
  /** Process of the peer, if it runs on this machine. */
  readonly process: ProcessIdentity | undefined;
}

/** A peer without an address of this engine. */
export const UNKNOWN_PEER: KnownPeer = { nativeAddress: new Uint8Array(0), process: undefined };

/**
 * Creates an endpoint. Without `errorHandling` it has peer error handling, unless no transport of libucp to the peer supports it.
 * @param setPeer sets the peer; may differ by error handling mode
 */
export function createEndpoint(
  parts: EndpointParts,
  { nativeAddress, process }: KnownPeer,
  options: EndpointOptions,
  setPeer: SetPeer | Readonly<Record<'peer' | 'none', SetPeer>>,
): EngineEndpoint {
  requireDescriptors('ucp_ep_create');
  const { functions, handle } = parts.core;
  using params = new Fields(UCP_EP_PARAMS);
  using ep = new OutValue();
  const { ERR_HANDLING_MODE, ERR_HANDLER } = UCP_EP_PARAM_FIELD;
  params.setU64('err_handler.cb', parts.endpoints.errorCallback.address);
  const setPeerAs = typeof setPeer === 'function' ? { peer: setPeer, none: setPeer } : setPeer;
  const createAs = (mode: 'peer' | 'none'): Status => {
    params.setU64('field_mask', setPeerAs[mode](params) | ERR_HANDLING_MODE | ERR_HANDLER);
    params.setU32('err_mode', mode === 'peer' ? UCP_ERR_HANDLING_MODE.PEER : UCP_ERR_HANDLING_MODE.NONE);
    return functions.ucp_ep_create(handle, params.address, ep.address);
  };
  const { errorHandling } = options;
  let isWatched = errorHandling !== 'none';
  let status = createAs(isWatched ? 'peer' : 'none');
  if (status === Status.UNREACHABLE && errorHandling === undefined) {
    parts.core.context.log.debug(
      'no libucp transport to this peer supports peer error handling: its failure will not be detected',
    );
    isWatched = false;
    status = createAs('none');
  }
  checkStatus(status, 'ucp_ep_create');
  return adopt(parts, ep.value, nativeAddress, { options, isWatched, process });
}
