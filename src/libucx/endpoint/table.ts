/**
 * The endpoints of one worker, by their handles of libucp, and their failures, which libucp reports inside its calls. It creates no handles. Creates
 * endpoints of libucp: to a worker address, to a listener, to an accepted client; with or without peer error handling.
 */

import type { EndpointOptions } from '../../api/contract/endpoint.ts';
import { allocateScratch, NativeCallback, type ProcessIdentity, type ScratchBlock } from '../../sys/index.ts';
import { endpointConnect, endpointFail } from '../../ucs/debug/diagnostics.ts';
import { checkStatus } from '../../ucs/type/error.ts';
import { Status } from '../../ucs/type/status.ts';
import { UCP_EP_PARAM_FIELD, UCP_EP_PARAMS, UCP_ERR_HANDLING_MODE } from '../c/abi.ts';
import { Fields, OutValue } from '../c/fields.ts';
import { requireDescriptors } from '../c/limits.ts';
import { withoutTransports } from '../c/worker-address.ts';
import type { EndpointHandling, EngineEndpoint } from '../engine/engine.ts';
import type { AddressFields } from '../mem/remote-key.ts';
import type { Senders } from '../request/arrivals.ts';
import { TRANSPORT } from '../request/request.ts';
import { Endpoint } from './endpoint.ts';
import type { EndpointRegistry, EndpointWorker } from './endpoint-worker.ts';
import type { UnprovenPeers } from './unproven-peers.ts';

/** The endpoints. */
export class EndpointTable implements EndpointRegistry, Senders {
  readonly errorCallback: NativeCallback;
  readonly #worker: EndpointWorker;
  readonly #endpoints: Map<number, Endpoint> = new Map();
  /** Endpoints that libucp has reported as failed, during a call of C. */
  #failed: [Endpoint, Status, boolean][] = [];
  /** Notices of the peers of endpoints, during a call of C. */
  #notices: [Endpoint, number][] = [];

  constructor(worker: EndpointWorker) {
    this.#worker = worker;
    this.errorCallback = new NativeCallback({
      result: 'void',
      parameters: ['uint64_t', 'uint64_t', 'int8_t'],
      call: (_argument: number, ep: number, status: Status) => this.#noteFailure(ep, status, false),
    });
  }

  get all(): readonly Endpoint[] {
    return [...this.#endpoints.values()];
  }

  get size(): number {
    return this.#endpoints.size;
  }

  /** Whether there is work for {@link progress}. */
  get isDue(): boolean {
    return this.#failed.length > 0 || this.#notices.length > 0;
  }

  adopt(handle: number, nodeAddress: Uint8Array, handling: EndpointHandling): Endpoint {
    const endpoint = new Endpoint(this.#worker, handle, nodeAddress, handling);
    this.#endpoints.set(handle, endpoint);
    if (handling.isWatched && handling.process !== undefined) this.#worker.ended.watch(endpoint, handling.process);
    if (endpointConnect.hasSubscribers) endpointConnect.publish({ transports: endpoint.transports, status: Status.OK });
    return endpoint;
  }

  forget(endpoint: EngineEndpoint): void {
    this.#worker.ended.forget(endpoint);
    // Its handle may be that of another peer by now.
    if (this.#endpoints.get(endpoint.handle) === endpoint) this.#endpoints.delete(endpoint.handle);
  }

  /** The endpoint of a handle of libucp; one that the peer has initiated is registered. */
  endpointOf(handle: number): Endpoint {
    const handling = { options: {}, isWatched: false, isBorrowed: true };
    return this.#endpoints.get(handle) ?? this.adopt(handle, new Uint8Array(0), handling);
  }

  left(ep: number): void {
    this.#noteFailure(ep, Status.CONNECTION_RESET, true);
  }

  noticed(ep: number, notice: number): void {
    const endpoint = this.#endpoints.get(ep);
    if (endpoint !== undefined) this.#notices.push([endpoint, notice]);
  }

  /** Reports notices and failures to their endpoints. */
  progress(): number {
    let count = 0;
    for (let noticed = this.#notices.shift(); noticed !== undefined; noticed = this.#notices.shift()) {
      const [endpoint, notice] = noticed;
      endpoint.onNotice(notice);
      count += 1;
    }
    for (let failed = this.#failed.shift(); failed !== undefined; failed = this.#failed.shift()) {
      const [endpoint, status, closedByPeer] = failed;
      if (closedByPeer) endpoint.onLeft();
      else endpoint.onFailed(status);
      // The lanes of a failed endpoint are not queried.
      if (endpointFail.hasSubscribers) endpointFail.publish({ transports: [TRANSPORT], status });
      count += 1;
    }
    return count;
  }

  /** Releases the callback, which libucp does not call any more. */
  close(): void {
    this.errorCallback.close();
  }

  /** Records a failure during a call of C: progress reports it afterwards. */
  #noteFailure(ep: number, status: Status, closedByPeer: boolean): void {
    const endpoint = this.#endpoints.get(ep);
    this.#worker.requests.endpointLost();
    if (endpoint === undefined) return;
    this.#failed.push([endpoint, status, closedByPeer]);
    // The next peer may get the same handle, before this call of C returns.
    if (endpoint.isBorrowed) this.forget(endpoint);
  }
}

/** Zeros after an address: libucp reads it without its length. */
const ADDRESS_PADDING = 64;

/**
 * Connects to a worker.
 * @throws UcxError ERR_UNREACHABLE and others of ucp_ep_create
 */
export function connectToAddress(
  worker: EndpointWorker,
  { ucx, node, place }: AddressFields,
  options: EndpointOptions,
): EngineEndpoint {
  using address = allocateScratch(ucx.byteLength + ADDRESS_PADDING);
  address.u8.set(ucx);
  const process = place.isNear ? place.process : undefined;
  return createEndpoint(worker, { nodeAddress: node.slice(), process }, options, addressSetter(address));
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
  const endpoint = createEndpoint(worker, UNKNOWN_PEER, options, setPeer);
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

/** What an address of this engine tells about a peer. */
export interface KnownPeer {
  /** Address for the transports of the node; empty if it is unknown. */
  readonly nodeAddress: Uint8Array;
  /** Its process, if it runs on this machine. */
  readonly process: ProcessIdentity | undefined;
}

/** A peer without an address of this engine. */
export const UNKNOWN_PEER: KnownPeer = { nodeAddress: new Uint8Array(0), process: undefined };

/**
 * Creates an endpoint. By default it has peer error handling, unless libucp has no transport with it.
 * @param setPeer the peer, also by error handling
 */
export function createEndpoint(
  worker: EndpointWorker,
  { nodeAddress, process }: KnownPeer,
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
  return worker.endpoints.adopt(ep.value, nodeAddress, { options, isWatched, process });
}
