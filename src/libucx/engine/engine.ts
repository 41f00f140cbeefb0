/** The interfaces of context and endpoint inside the engine over libucp, and the records that its parts pass to each other. */

import type { Endpoint as ApiEndpoint, EndpointOptions } from '../../api/contract/endpoint.ts';
import type { Engine } from '../../api/contract/explanation.ts';
import type { AmSendParams, Request, RequestParams } from '../../api/contract/request.ts';
import type { ListBlock, PlannedList } from '../../api/list/list.ts';
import type { NotifyOrder } from '../../api/list/notify-order.ts';
import type { LocalRange } from '../../api/memory/local.ts';
import type { RemoteRange } from '../../api/memory/owned.ts';
import type { Operation } from '../../api/operation/call.ts';
import type { CopyingContext } from '../../api/staging/device-copier.ts';
import type { FragmentPool } from '../../api/staging/fragment-pool.ts';
import type { ProcessIdentity } from '../../sys/index.ts';
import type { Log } from '../../ucs/debug/log.ts';
import type { Clock } from '../../ucs/sys/clock.ts';
import type { Status } from '../../ucs/type/status.ts';
import type { Libucp } from '../c/library.ts';
import type { UcpConfiguration } from '../c/ucp-configuration.ts';
import type { DeviceAccess, LocalMemory, UcpMemory } from '../mem/memory-handle.ts';
import type { MemoryMap } from '../mem/memory-map.ts';
import type { KeyOwner, Move, UcpRemoteKey } from '../mem/remote-key.ts';
import type { RequestEndpoint } from '../request/request.ts';

/** The context of a worker. */
export interface EngineContext {
  readonly libucp: Libucp;
  readonly engine: Engine;
  readonly log: Log;
  readonly clock: Clock;
  readonly progressSpinNs: number;
  readonly requestsMax: number;
  readonly answerTimeoutNs: number;
  /** Bytes of a request of libucp. */
  readonly requestBytes: number;
  /** Whether addresses of cards are passed to libucp. */
  readonly access: DeviceAccess;
  /** Host memory for staging memory of cards. */
  readonly fragments: FragmentPool<UcpMemory>;
  /** The native context with the transports of this machine. */
  readonly node: CopyingContext;
  /** Bits of its features (UCP_FEATURE). */
  readonly features: number;
  readonly memory: MemoryMap;
  readonly configuration: UcpConfiguration;
  /** The handle of libucp. */
  readonly handle: number;
  /** What libucp needs that is missing on this machine: the cause if it cannot create a worker. */
  readonly shortage: Error | undefined;
}

/** An endpoint of a worker. */
export interface EngineEndpoint extends ApiEndpoint, KeyOwner, RequestEndpoint {
  /** Number of operations on memory of cards in flight: a flush waits for them. */
  unconfirmed: number;
  /** Whether operations wait for those before a fence. */
  isFenced: boolean;
  /** Called first on failure: during connection establishment, the application does not have the endpoint yet. */
  onceFailed: ((status: Status) => void) | undefined;
  /** Called when it has been closed by force. */
  onceDropped: (() => void) | undefined;
  /** The endpoint to the same peer over the transports of the node; undefined if they do not reach it. */
  readonly nodeEndpoint: ApiEndpoint | undefined;
  /** {@link nodeEndpoint}, once it has been created. */
  readonly openNodeEndpoint: ApiEndpoint | undefined;
  /** Flushes only the operations given to libucp. */
  flushUcp(params: RequestParams | undefined): Status | Request;
  /** Sends a message of the engine itself. @param data its payload, with checked arguments; undefined for none */
  sendOwn(
    id: number,
    header: Uint8Array | undefined,
    data: LocalRange<LocalMemory> | undefined,
    params: AmSendParams | undefined,
  ): Status | Request;
  /** Tells a peer of this engine, by a message, that this end is of it too. */
  greet(): void;
  /** The peer has sent a notice; called outside the calls of C. */
  onNotice(notice: number): void;
  /** The peer closes its endpoint; called outside the calls of C. */
  onLeft(): void;
  /** Starts a put or get by libucp, to which both memories are known; its arguments are checked. */
  moveKnown(operation: Operation, move: Move, params: RequestParams | undefined): Status | Request;
  /** Starts a put or get of a checked list: only what may have changed since is checked. @throws UcxError ERR_CLOSED, ERR_INVALID_PARAM */
  moveBlock(operation: Operation, block: ListBlock, params: RequestParams | undefined): Status | Request;
  /** Called when libucp has reported a failure. @param cause what is known about it, for the errors of its operations */
  onFailed(status: Status, closedByPeer?: boolean, cause?: unknown): void;
}

/** A block of a checked list: of memory and a key of this engine. */
export interface Block extends ListBlock {
  readonly local: LocalMemory;
  readonly rkey: UcpRemoteKey;
}

/** The arguments of a put or get. */
export interface RemoteTransfer extends Move {
  readonly operation: Operation;
  readonly endpoint: EngineEndpoint;
}

/** A word of remote memory. */
export type RemoteWord = Pick<RemoteRange<UcpRemoteKey>, 'rkey' | 'remoteOffset'>;

/** A list of puts or gets, and the notification of its end. */
export interface ListPlan {
  readonly list: PlannedList;
  /** Numbers of the blocks; undefined for all. */
  readonly selected: Int32Array | undefined;
  readonly notification: Uint8Array | undefined;
  /** Whether it ends only when all bytes are in remote memory: always before a notification. */
  readonly flushes: boolean;
  /** The AM id of the notification. */
  readonly notifyId: number;
  /** Notifications of the endpoint. */
  readonly order: NotifyOrder;
}

/** Error handling of an endpoint, as requested and as libucp provides it. */
export interface EndpointHandling {
  readonly options: EndpointOptions;
  /** Whether libucp has peer error handling for it, and can drop it by force. */
  readonly isWatched: boolean;
  /** The process of the peer, if it runs on this machine. */
  readonly process?: ProcessIdentity | undefined;
  /** Whether libucp has made it for a peer, and frees it when the peer goes. Default false. */
  readonly isBorrowed?: boolean;
}
