/** The parts of the engine over libucp as they see each other: a context, its workers, their endpoints. Types only. */

import type { NativeCallback, ScratchBlock } from '../../sys/index.ts';
import type { PromiseTier } from '../../ucp/api/awaited/promise-tier.ts';
import type { Endpoint as ApiEndpoint, EndpointOptions } from '../../ucp/api/endpoint.ts';
import type { Engine } from '../../ucp/api/engine.ts';
import type { ReceivedMessage } from '../../ucp/api/received-message.ts';
import type { AmSendParams, Request, RequestParams } from '../../ucp/api/request.ts';
import type { WordOperation } from '../../ucp/api/word-operation.ts';
import type { CopyingContext, CopyingWorker } from '../../ucp/staging/device-copier.ts';
import type { FragmentPool } from '../../ucp/staging/fragment-pool.ts';
import type { Log } from '../../ucs/debug/log.ts';
import type { Clock } from '../../ucs/sys/clock.ts';
import type { Status } from '../../ucs/type/status.ts';
import type { LibucpFunctions } from '../c/functions.ts';
import type { Libucp } from '../c/library.ts';
import type { UcpConfiguration } from '../c/ucp-configuration.ts';
import type { DeviceAccess } from '../mem/device-access.ts';
import type { LocalBuffer, LocalMemory, UcpMemory } from '../mem/memory-handle.ts';
import type { MemoryMap } from '../mem/memory-map.ts';
import type { KeyOwner, UcpRemoteKey } from '../mem/remote-key.ts';
import type { Arrivals } from '../request/arrivals.ts';
import type { Buffers } from '../request/buffers.ts';
import type { UcpRequest } from '../request/request.ts';
import type { Requests } from '../request/requests.ts';
import type { Teardown } from './teardown.ts';

/** The context of a worker. */
export interface EngineContext {
  readonly libucp: Libucp;
  readonly engine: Engine;
  readonly log: Log;
  readonly clock: Clock;
  readonly progressSpinNs: number;
  readonly requestsMax: number;
  /** Whether libucp is given addresses of cards. */
  readonly access: DeviceAccess;
  /** Host memory through which that of cards goes. */
  readonly fragments: FragmentPool<UcpMemory>;
  /** The transports of this library on this machine. */
  readonly node: CopyingContext;
  /** Bits of the features that it has (UCP_FEATURE). */
  readonly features: number;
  readonly memory: MemoryMap;
  readonly configuration: UcpConfiguration;
  /** The handle of libucp. */
  readonly handle: number;
  forget(worker: object): void;
  /** A worker of libucp could not be destroyed; its context cannot be either. */
  onWorkerLeaked(): void;
}

/** An endpoint of a worker. */
export interface EngineEndpoint extends ApiEndpoint, KeyOwner {
  /** Operations on memory of cards that are in flight: a flush waits for them. */
  unconfirmed: number;
  /** Operations wait for those before a fence. */
  isFenced: boolean;
  /** Called first if it fails: while it connects, the application does not know the endpoint. */
  onceFailed: ((status: Status) => void) | undefined;
  /** Runs when it has been closed by force. */
  onceDropped: (() => void) | undefined;
  /** The endpoint to the same peer over the transports of the node; undefined where they do not reach it. */
  readonly nodeEndpoint: ApiEndpoint | undefined;
  /** {@link nodeEndpoint} has been asked for, and is there. */
  readonly hasNodeEndpoint: boolean;
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

/** Bytes of a message or a stream that lie in memory of this program. */
export interface ArrivedBytes {
  readonly source: Uint8Array;
  readonly dataOffset: number;
  readonly byteLength: number;
  isReceived: boolean;
}

/** A put or get, as it was asked for. */
export interface RemoteTransfer {
  readonly isPut: boolean;
  readonly endpoint: EngineEndpoint;
  readonly local: LocalMemory;
  readonly localOffset: number;
  readonly byteLength: number;
  readonly rkey: UcpRemoteKey;
  readonly remoteOffset: number;
}

/** What moves memory of cards, and what only the node's transports reach. */
export interface DeviceOperations {
  /** Starts a put or get. */
  transfer(transfer: RemoteTransfer, params: RequestParams | undefined): Status | Request;
  atomic(
    endpoint: EngineEndpoint,
    call: WordOperation,
    rkey: UcpRemoteKey,
    remoteOffset: number,
    params: RequestParams | undefined,
  ): Status | Request;
  /** Flushes what is in flight, libucp and the node's transports. */
  flush(endpoint: EngineEndpoint, params: RequestParams | undefined): Status | Request;
  /** As {@link flush} for all endpoints of the worker. */
  flushAll(params: RequestParams | undefined): Status | Request;
  /**
   * Orders what was started on the endpoint before against what is started after.
   * @param isAlone the fence covers operations of libucp too, because libucp was not called
   */
  fence(endpoint: EngineEndpoint, isAlone: boolean): void;
  /** Starts an operation when the barrier of its endpoint has ended. */
  defer(
    endpoint: EngineEndpoint,
    protocol: string,
    begin: (params: RequestParams) => Status | Request,
    params: RequestParams | undefined,
  ): Status | Request;
  /** The endpoint is closed, or has failed: what waits for its peer ends with a status. */
  endpointGone(endpoint: EngineEndpoint, status: Status): void;
  /** Puts bytes that have arrived into local memory. */
  copyOut(
    arrived: ArrivedBytes,
    local: LocalBuffer,
    localOffset: number,
    params: RequestParams | undefined,
  ): Status | Request;
}

/** What the streams of one worker share. */
export interface StreamTracker {
  /** Where libucp writes how many bytes there are. */
  readonly length: ScratchBlock;
  /** Takes over what arrives in a stream from now on. */
  add(stream: object): void;
  /** Leaves a stream alone. */
  remove(stream: object): void;
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
  readonly streams: StreamTracker;
  readonly teardown: Teardown;
  readonly devices: DeviceOperations;
  /** The worker of the node's transports. */
  readonly node: CopyingWorker;
  /** Called by libucp when an endpoint fails. */
  readonly errorCallback: NativeCallback;
  /** For the header of the message that is sent now. */
  readonly headers: ScratchBlock;
  /** Memory for headers, until the next call: what is in use now belongs to a request. */
  takeHeader(): ScratchBlock;
  /** Makes the endpoint of a handle of libucp, and takes it into the tracker. */
  adopt(handle: number, nodeAddress: Uint8Array, handling: EndpointHandling): EngineEndpoint;
  /** An endpoint over the transports of the node; undefined where these do not reach the worker with the address. */
  nodeEndpoint(address: Uint8Array): ApiEndpoint | undefined;
  forgetEndpoint(endpoint: EngineEndpoint): void;
  /** Receives the data of an active message. */
  receiveData(
    message: ReceivedMessage,
    local: LocalBuffer,
    localOffset: number,
    byteLength: number,
    params: RequestParams | undefined,
  ): Status | Request;
  fence(): void;
  /** Flushes what libucp has been given alone. */
  flushUcp(params: RequestParams | undefined): Status | Request;
}

/** What happens when the peer of an endpoint is gone, as asked for and as libucp does it. */
export interface EndpointHandling {
  readonly options: EndpointOptions;
  /** libucp looks after the peer, and can drop it by force. */
  readonly isWatched: boolean;
}
