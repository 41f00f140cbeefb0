/** What the parts of the engine over libucp know of each other: a context, its workers, their endpoints. Types only. */

import type { NativeCallback, ScratchBlock } from '../sys/index.ts';
import type { PromiseTier } from '../ucp/api/awaited/promise-tier.ts';
import type { Context as ApiContext, Engine } from '../ucp/api/context.ts';
import type { Endpoint as ApiEndpoint, EndpointOptions } from '../ucp/api/endpoint.ts';
import type { AmSendParams, Request, RequestParams } from '../ucp/api/request.ts';
import type { WordOperation } from '../ucp/api/word-operation.ts';
import type { Worker as ApiWorker } from '../ucp/api/worker.ts';
import type { Clock } from '../ucs/clock.ts';
import type { Log } from '../ucs/log.ts';
import type { Status } from '../ucs/status.ts';
import type { Arrivals } from './arrivals.ts';
import type { Buffers } from './buffers.ts';
import type { LibucpFunctions } from './functions.ts';
import type { Libucp } from './library.ts';
import type { LocalMemory } from './memory-handle.ts';
import type { MemoryMap } from './memory-map.ts';
import type { KeyOwner, UcpRemoteKey } from './remote-key.ts';
import type { UcpRequest } from './request.ts';
import type { Requests } from './requests.ts';
import type { UcpConfiguration } from './ucp-configuration.ts';

/** The context of a worker. */
export interface EngineContext {
  readonly libucp: Libucp;
  readonly engine: Engine;
  readonly log: Log;
  readonly clock: Clock;
  readonly progressSpinNs: number;
  readonly fragmentBytes: number;
  readonly fragmentCount: number;
  /** The transports of this library on this machine. */
  readonly node: ApiContext;
  readonly memory: MemoryMap;
  readonly configuration: UcpConfiguration;
  /** The handle of libucp. */
  readonly handle: number;
  forget(worker: object): void;
}

/** An endpoint of a worker. */
export interface EngineEndpoint extends ApiEndpoint, KeyOwner {
  /** Operations on memory of cards of the peer that it has not confirmed: a flush waits for them. */
  unconfirmed: number;
  /** Hears of the failure first: while a connection is being made, the application does not know of the endpoint. */
  onceFailed: ((status: Status) => void) | undefined;
  /** The endpoint to the same peer over the transports of the node; undefined where they do not reach it. */
  readonly nodeEndpoint: ApiEndpoint | undefined;
  /** Flushes what libucp has been given alone. */
  flushUcp(params: RequestParams | undefined): Status | Request;
  /** Sends a message that has been described; also for the engine's own. */
  sendMessage(
    request: UcpRequest,
    id: number,
    header: Uint8Array | undefined,
    params: AmSendParams | undefined,
  ): Status | Request;
  /** libucp has reported a failure. */
  onFailed(status: Status): void;
}

/** What moves memory of cards, and what only the node's transports reach. */
export interface DeviceOperations {
  put(
    endpoint: EngineEndpoint,
    local: LocalMemory,
    localOffset: number,
    byteLength: number,
    rkey: UcpRemoteKey,
    remoteOffset: number,
    params: RequestParams | undefined,
  ): Status | Request;
  get(
    endpoint: EngineEndpoint,
    local: LocalMemory,
    localOffset: number,
    byteLength: number,
    rkey: UcpRemoteKey,
    remoteOffset: number,
    params: RequestParams | undefined,
  ): Status | Request;
  atomic(
    endpoint: EngineEndpoint,
    call: WordOperation,
    rkey: UcpRemoteKey,
    remoteOffset: number,
    params: RequestParams | undefined,
  ): Status | Request;
  /** Flushes libucp, the node's transports and what the peer has not confirmed. */
  flush(endpoint: EngineEndpoint, params: RequestParams | undefined): Status | Request;
  /** The endpoint is gone: what waits for its peer ends. */
  endpointClosed(endpoint: EngineEndpoint): void;
}

/** The worker of an endpoint. */
export interface EngineWorker {
  readonly context: EngineContext;
  readonly functions: LibucpFunctions;
  /** The handle of libucp. */
  readonly handle: number;
  readonly requests: Requests;
  readonly buffers: Buffers;
  readonly promises: PromiseTier;
  readonly arrivals: Arrivals;
  readonly devices: DeviceOperations;
  /** The worker of the node's transports. */
  readonly node: ApiWorker;
  /** Hears of failed endpoints. */
  readonly errorCallback: NativeCallback;
  /** For the header of the message that is sent now. */
  readonly headers: ScratchBlock;
  /** Memory for headers, until the next call: what is in use now belongs to a request. */
  lendHeader(): ScratchBlock;
  /** Makes the endpoint of a handle of libucp, and takes it into the books. */
  adopt(handle: number, nodeAddress: Uint8Array, handling: EndpointHandling): EngineEndpoint;
  /** An endpoint over the transports of the node; undefined where these do not reach the worker with the address. */
  nodeEndpoint(address: Uint8Array): ApiEndpoint | undefined;
  forgetEndpoint(endpoint: EngineEndpoint): void;
  /** Gives a request back as soon as it has ended. */
  freeEventually(request: Request): void;
  fence(): void;
}

/** What happens when the peer of an endpoint is gone, as asked for and as libucp does it. */
export interface EndpointHandling {
  readonly options: EndpointOptions;
  /** libucp looks after the peer, and can drop it by force. */
  readonly isWatched: boolean;
}
