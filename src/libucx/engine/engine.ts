/** Interfaces of contexts and endpoints inside the libucx engine, and the records that its modules exchange. */

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

export interface EngineContext {
  readonly libucp: Libucp;
  readonly engine: Engine;
  readonly log: Log;
  readonly clock: Clock;
  readonly progressSpinNs: number;
  readonly requestsMax: number;
  readonly answerTimeoutNs: number;
  /** Bytes of a libucp request. */
  readonly requestBytes: number;
  /** Whether device addresses are passed to libucp. */
  readonly access: DeviceAccess;
  /** Host memory for staging device memory. */
  readonly fragments: FragmentPool<UcpMemory>;
  /** The native context with the transports of this machine. */
  readonly native: CopyingContext;
  /** Bits of UCP_FEATURE. */
  readonly features: number;
  readonly memory: MemoryMap;
  readonly configuration: UcpConfiguration;
  readonly handle: number;
  /** The system limit that prevents libucp from creating a worker; undefined if there is none. */
  readonly shortage: Error | undefined;
}

export interface EngineEndpoint extends ApiEndpoint, KeyOwner, RequestEndpoint {
  /** Number of device-memory operations in flight: a flush waits for them. */
  unconfirmed: number;
  /** Whether new operations wait for those before a fence. */
  isFenced: boolean;
  /** Called first on failure: the application does not have the endpoint yet while the connection is established. */
  onceFailed: ((status: Status) => void) | undefined;
  /** Called after a close by force. */
  onceDropped: (() => void) | undefined;
  /** The endpoint to the same peer over the native transports; undefined if they do not reach it. */
  readonly nativeEndpoint: ApiEndpoint | undefined;
  /** {@link nativeEndpoint} if it was created already. */
  readonly openNativeEndpoint: ApiEndpoint | undefined;
  /** Flushes only the operations passed to libucp. */
  flushUcp(params: RequestParams | undefined): Status | Request;
  /** Sends an internal message of the engine. @param data its payload, with checked arguments; undefined for none */
  sendOwn(
    id: number,
    header: Uint8Array | undefined,
    data: LocalRange<LocalMemory> | undefined,
    params: AmSendParams | undefined,
  ): Status | Request;
  /** Notifies the peer, if it uses this engine, that this end uses it too. */
  greet(): void;
  /** Handles a notice of the peer; called outside callbacks of C. */
  onNotice(notice: number): void;
  /** The peer closes its endpoint; called outside callbacks of C. */
  onLeft(): void;
  /** Starts a put or get by libucp, which knows both memories; the arguments are checked. */
  moveKnown(operation: Operation, move: Move, params: RequestParams | undefined): Status | Request;
  /** Starts a put or get of a checked list: checks only what may have changed since. @throws UcxError ERR_CLOSED, ERR_INVALID_PARAM */
  moveBlock(operation: Operation, block: ListBlock, params: RequestParams | undefined): Status | Request;
  /** Called when libucp has reported a failure. @param cause known cause, for the errors of its operations */
  onFailed(status: Status, closedByPeer?: boolean, cause?: unknown): void;
}

/** A block of a checked list, whose memory and key belong to this engine. */
export interface Block extends ListBlock {
  readonly local: LocalMemory;
  readonly rkey: UcpRemoteKey;
}

export interface RemoteTransfer extends Move {
  readonly operation: Operation;
  readonly endpoint: EngineEndpoint;
}

export type RemoteWord = Pick<RemoteRange<UcpRemoteKey>, 'rkey' | 'remoteOffset'>;

/** A list of puts or gets, and its notification. */
export interface ListPlan {
  readonly list: PlannedList;
  /** Indices of the blocks to move; undefined for all. */
  readonly selected: Int32Array | undefined;
  readonly notification: Uint8Array | undefined;
  /** Whether the list ends only when all bytes are in remote memory; always true with a notification. */
  readonly flushes: boolean;
  /** The AM id of the notification. */
  readonly notifyId: number;
  /** Sends the notifications of the endpoint in order. */
  readonly order: NotifyOrder;
}

/** Error handling of an endpoint, as requested and as libucp provides it. */
export interface EndpointHandling {
  readonly options: EndpointOptions;
  /** Whether libucp has peer error handling for it, and can close it by force. */
  readonly isWatched: boolean;
  /** Process of the peer, if it runs on this machine. */
  readonly process?: ProcessIdentity | undefined;
  /** Whether libucp created the endpoint for a peer, and frees it when the connection ends. Default false. */
  readonly isBorrowed?: boolean;
}
