/** Creates endpoints of libucp: to a worker address, to a listener, to an accepted client; with or without peer error handling. */

import type { EndpointOptions } from '../../api/contract/endpoint.ts';
import { allocateScratch, type ScratchBlock } from '../../sys/index.ts';
import { checkStatus } from '../../ucs/type/error.ts';
import { Status } from '../../ucs/type/status.ts';
import { UCP_EP_PARAM_FIELD, UCP_EP_PARAMS, UCP_ERR_HANDLING_MODE } from '../c/abi.ts';
import { requireDescriptors } from '../c/descriptors.ts';
import { Fields, OutValue } from '../c/fields.ts';
import { withoutTransports } from '../c/worker-address.ts';
import type { EngineEndpoint } from '../engine/engine.ts';
import type { EndpointWorker } from './endpoint-worker.ts';
import type { UnprovenPeers } from './unproven-peers.ts';

/** Zeros after an address: libucp reads it without its length. */
const ADDRESS_PADDING = 64;

/**
 * Connects to a worker.
 * @param ucx the address packed by libucp
 * @param nodeAddress address for the transports of the node
 * @throws UcxError ERR_UNREACHABLE and others of ucp_ep_create
 */
export function connectToAddress(
  worker: EndpointWorker,
  ucx: Uint8Array,
  nodeAddress: Uint8Array,
  options: EndpointOptions,
): EngineEndpoint {
  using address = allocateScratch(ucx.byteLength + ADDRESS_PADDING);
  address.u8.set(ucx);
  return createEndpoint(worker, nodeAddress.slice(), options, addressSetter(address));
}

/**
 * Connects to a worker of a program that does not use this library. With error handling it uses only transports on which such a program can answer: UCX does
 * not detect the end of a peer over shared memory by default.
 * @param ucx the address packed by libucp
 * @throws UcxError ERR_UNREACHABLE and others of ucp_ep_create
 */
export function connectToForeign(
  worker: EndpointWorker & { readonly unproven: UnprovenPeers },
  ucx: Uint8Array,
  options: EndpointOptions,
): EngineEndpoint {
  const { ownDetection } = worker.context.configuration;
  using whole = allocateScratch(ucx.byteLength + ADDRESS_PADDING);
  using answered = allocateScratch(ucx.byteLength + ADDRESS_PADDING);
  whole.u8.set(ucx);
  answered.u8.set(withoutTransports(ucx, ownDetection) ?? ucx);
  const setPeer = { peer: addressSetter(answered), none: addressSetter(whole) };
  const endpoint = createEndpoint(worker, new Uint8Array(0), options, setPeer);
  worker.unproven.expect(endpoint);
  return endpoint;
}

function addressSetter(address: ScratchBlock): SetPeer {
  return (params) => {
    params.setU64('address', address.address);
    return UCP_EP_PARAM_FIELD.REMOTE_ADDRESS;
  };
}

/** Sets the members that identify the peer, and returns their bits. */
type SetPeer = (params: Fields<typeof UCP_EP_PARAMS.at>) => number;

/**
 * Creates an endpoint. By default it has peer error handling, unless libucp has no transport with it.
 * @param setPeer the peer, also by error handling
 */
export function createEndpoint(
  worker: EndpointWorker,
  nodeAddress: Uint8Array,
  options: EndpointOptions,
  setPeer: SetPeer | Readonly<Record<'peer' | 'none', SetPeer>>,
): EngineEndpoint {
  requireDescriptors('ucp_ep_create');
  using params = new Fields(UCP_EP_PARAMS);
  using ep = new OutValue();
  const { ERR_HANDLING_MODE, ERR_HANDLER } = UCP_EP_PARAM_FIELD;
  params.setU64('err_handler.cb', worker.endpoints.errorCallback.address);
  const setPeerAs = typeof setPeer === 'function' ? { peer: setPeer, none: setPeer } : setPeer;
  const createAs = (mode: 'peer' | 'none'): Status => {
    params.setU64('field_mask', setPeerAs[mode](params) | ERR_HANDLING_MODE | ERR_HANDLER);
    params.setU32('err_mode', mode === 'peer' ? UCP_ERR_HANDLING_MODE.PEER : UCP_ERR_HANDLING_MODE.NONE);
    return worker.functions.ucp_ep_create(worker.handle, params.address, ep.address);
  };
  const { errorHandling } = options;
  let isWatched = errorHandling !== 'none';
  let status = createAs(isWatched ? 'peer' : 'none');
  if (status === Status.UNREACHABLE && errorHandling === undefined) {
    worker.context.log.debug(
      'no transport of libucp that reaches the peer tells of its failure: it is not looked after',
    );
    isWatched = false;
    status = createAs('none');
  }
  checkStatus(status, 'ucp_ep_create');
  return worker.endpoints.adopt(ep.value, nodeAddress, { options, isWatched });
}
