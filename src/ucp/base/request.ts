/**
 * A ucp operation that has not ended when its call returned, or that was asked for as a request. Pooled: after `free()` the object belongs
 * to another operation.
 */

import { MemoryType } from '../../ucs/memory/memory-type.ts';
import { joinBig } from '../../ucs/type/int64.ts';
import { Status } from '../../ucs/type/status.ts';
import { THREAD_BOUND } from '../../ucs/type/thread-bound.ts';
import type { Completion, IovEntry, UctEndpoint } from '../../uct/api/iface.ts';
import type { MdMemory, RemoteKey as UctRemoteKey } from '../../uct/api/memory.ts';
import { holdsBytes, hostBytes } from '../api/local-bytes.ts';
import type { Request as ApiRequest, RequestCallback } from '../api/request.ts';
import type { InboundWindow } from '../credit/inbound-window.ts';
import type { Lane } from '../lane/lane.ts';
import type { DistanceOf } from '../lane/lane-distance.ts';
import type { LocalPiece, MemoryHandle } from '../mem/memory-handle.ts';
import type { OperationRegistrar } from '../mem/memory-map.ts';
import type { RkeyCache } from '../mem/rkey-cache.ts';
import type { ProtocolInfo } from '../proto/protocol-info.ts';
import { OPERATION_NAMES, Operation, PROTOCOL_NAMES, Protocol } from '../proto/selection.ts';
import type { Rejection } from '../resources/resource-filter.ts';
import type { OutboundCredit } from './outbound-credit.ts';

/** An ended operation must not be kept from ending. */
const FORCE = { force: true } as const;

/** Stands in the list of a request that has none: an ended request must not keep memory alive. */
const NO_MEMORY: MdMemory = {
  mdName: '',
  memoryType: MemoryType.UNKNOWN,
  sysDevice: undefined,
  address: 0n,
  byteLength: 0,
  bytes: undefined,
  generation: 0,
  live: false,
};

/** How operations end whose memory may be the reason: others say more. */
const LOSES: ReadonlySet<Status> = new Set([Status.OK, Status.IO_ERROR, Status.INVALID_PARAM, Status.INVALID_ADDR]);

/** The one entry of a request's zero-copy list. */
class RequestEntry implements IovEntry {
  memory: MdMemory;
  offset = 0;
  byteLength = 0;

  constructor(memory: MdMemory) {
    this.memory = memory;
  }
}

/** The worker behind a request. */
export interface RequestOwner {
  /** A request that somebody looks on has ended. */
  onObservedEnd(request: Request): void;
  freeRequest(request: Request): void;
  /** Ends a request that no transport or peer works on yet with CANCELED; false for others. */
  cancelRequest(request: Request): boolean;
}

/** What a request does. */
export const RequestKind = { NONE: 0, RMA: 1, FLUSH: 2, MESSAGE: 3, RECEIVE: 4, CONNECT: 5 } as const;
export type RequestKind = (typeof RequestKind)[keyof typeof RequestKind];

/**
 * Starts a request, or starts it again after NO_RESOURCE.
 * @returns OK or a failure when it has ended, INPROGRESS when it will end by itself, NO_RESOURCE to be called again after progress
 */
export type Starter = (request: Request) => Status;

/** Takes the answer of the peer to a request. */
export type ReplyHandler = (request: Request, status: Status, low: number, high: number) => void;

/** What a request needs to know of the connection it runs on. */
export interface Connection {
  /** Names the connection towards the peer. */
  readonly id: number;
  /** What the peer calls it; NO_ENDPOINT until the connection stands. */
  readonly remoteId: number;
  readonly lanes: readonly Lane[];
  /** How far lanes are from device memory of this context. */
  readonly distanceOf: DistanceOf;
  /** Prints what is chosen; undefined where nobody wants to see it. */
  readonly protocolInfo: ProtocolInfo | undefined;
  /** What is no lane, and why. */
  readonly unreachable: readonly Rejection[];
  /** True for a connection of a worker to itself. */
  readonly isLoopback: boolean;
  /** What active messages go over; undefined where no lane has any. */
  readonly am: UctEndpoint | undefined;
  readonly amLane: Lane | undefined;
  /** Longest messages of that lane. */
  readonly amShortMax: number;
  readonly amBcopyMax: number;
  /** Bytes from which messages to this peer go by rendezvous; Infinity where only the length of a frame decides. */
  readonly rendezvousThreshold: number;
  /** See UCX_ZCOPY_THRESH; undefined where the estimates decide. */
  readonly zcopyThreshold: number | undefined;
  /** Requests that wait for the peer, by the number that the peer knows. */
  readonly waiting: ReadonlyMap<number, Request>;
  /** Keys that messages of the peer have brought. */
  readonly rkeys: RkeyCache;
  /** What may be sent without being asked, and what the peer may send. */
  readonly credit: OutboundCredit;
  readonly inbound: InboundWindow;
  /** True while requests wait for resources; later ones queue up behind them. */
  readonly hasPending: boolean;
  /** Why the connection has ended: OK while it has not. */
  readonly failure: Status;
  /** @throws UcxError ERR_UNREACHABLE where no lane carries messages */
  checkMessages(): void;
  /**
   * Sends a message of the protocol itself, now or when there is room.
   * @returns OK; or why it is dropped: the connection has ended, or the transport cannot send
   */
  post(messageId: number, header: Int32Array, payload?: Uint8Array): Status;
  /** Starts a request of the protocol itself, behind no request of the application. */
  run(request: Request): void;
  /** Gives a request a number by which the peer can answer it. */
  expect(request: Request): void;
  /** Gives a request that has a number another one: what the peer says to the old one is ignored. */
  renew(request: Request): void;
  /** The peer has nothing more to say to a request. */
  forget(request: Request): void;
  /** A failure of a lane that was found before its flush: the next flush reports it, once. OK for none. */
  takeFailure(): Status;
  /** Ends `flush` one count later if operations are on their way that only the peer can end; false when there are none. */
  awaitRemote(flush: Request): boolean;
}

/** A request. */
export class Request implements ApiRequest, Completion {
  readonly thread: symbol = THREAD_BOUND;
  /** INPROGRESS until it ends, then final. */
  status: Status = Status.OK;
  /** Operations of transports that have not ended, and their first failure: see Completion. */
  count = 0;
  failure: Status = Status.OK;
  kind: RequestKind = RequestKind.NONE;
  /** It counts among the sends of messages. */
  isSend = false;
  /** When it was started; -1 where nobody looks on. */
  startNs = -1;
  /** For the application. */
  userData: unknown = undefined;
  callback: RequestCallback | undefined = undefined;
  /** True while it waits for resources: it can be cancelled without a trace. */
  queued = false;
  /** What was thrown when the operation was started out of the queue; its status is then that of this error. */
  error: unknown = undefined;

  /** How it is started; set when it is described. */
  starter: Starter = notDescribed;
  replyHandler: ReplyHandler | undefined = undefined;
  connection: Connection | undefined = undefined;
  /** The request behind this one in a queue. */
  next: Request | undefined = undefined;
  /** Ends a request whose peer is gone; without it the request simply ends. */
  abandon: ((request: Request, status: Status) => void) | undefined = undefined;
  /** Gives back what the request holds beside its memory; runs when it ends, once. */
  release: (() => void) | undefined = undefined;
  /** Number by which the peer answers it: see Connection.expect. 0 for none. */
  requestId = 0;
  /** Only the peer can end it, and a flush waits for it. */
  isRemote = false;

  operation: Operation = Operation.PUT;
  lane: Lane | undefined = undefined;
  protocolIndex: Protocol = Protocol.SHORT;
  rkey: UctRemoteKey | undefined = undefined;
  remoteOffset = 0;
  /** Local bytes of a short operation. */
  bytes: Uint8Array | undefined = undefined;
  /** The mapped memory that `bytes` are of, where they are. */
  handle: MemoryHandle | undefined = undefined;
  localOffset = 0;
  byteLength = 0;
  /** Local memory of a zero-copy operation, as the list that transports take; made at the first such use. */
  iov: RequestEntry[] = [];
  /** Memory that was registered for this operation only. */
  registered: MdMemory | undefined = undefined;
  registrar: OperationRegistrar | undefined = undefined;
  /** Lanes that a flush covers. */
  lanes: readonly Lane[] = [];

  /** A message: its id, its header, and the local memory where it is not `bytes`. */
  messageId = 0;
  header: Int32Array | undefined = undefined;
  pieces: readonly LocalPiece[] | undefined = undefined;
  /** Bytes that have been sent or received. */
  done = 0;
  protocolName = '';
  /** Transport and device that carried a message, where the peer says so: it was the peer that moved the bytes. */
  carriedBy: readonly string[] | undefined = undefined;
  /** Tag and mask, as signed words. */
  tagLow = 0;
  tagHigh = 0;
  maskLow = 0;
  maskHigh = 0;
  /** Order in which receives were posted; 0 for one that is not posted. Its neighbours in the matching. */
  order = 0;
  matchPrevious: Request | undefined = undefined;
  matchNext: Request | undefined = undefined;
  /** Bytes of the message that was received. */
  receivedBytes = 0;
  /** Word before an atomic operation that has ended. */
  atomicResult = 0n;
  /** What a rendezvous or an atomic operation keeps for itself. */
  transfer: unknown = undefined;
  readonly #owner: RequestOwner;

  constructor(owner: RequestOwner) {
    this.#owner = owner;
  }

  /** Tag of the message that a receive has got. */
  get senderTag(): bigint {
    return joinBig(this.tagLow, this.tagHigh);
  }

  get isCompleted(): boolean {
    return this.status !== Status.INPROGRESS;
  }

  /** Name of the transport that carries it, such as `gaudi_cpy`; undefined for a flush. */
  get transport(): string | undefined {
    return this.carriedBy?.[0] ?? this.lane?.iface.attributes.resource.transport;
  }

  /** Name of the device that carries it, such as `gaudi0`. */
  get device(): string | undefined {
    return this.carriedBy?.[1] ?? this.lane?.iface.attributes.resource.device;
  }

  /** Name of the protocol, such as `put/zcopy`. */
  get protocol(): string {
    if (this.kind === RequestKind.FLUSH) return 'flush';
    if (this.protocolName !== '') return this.protocolName;
    return `${OPERATION_NAMES[this.operation]}/${PROTOCOL_NAMES[this.protocolIndex]}`;
  }

  /**
   * Gives the object back once the operation has ended.
   * @throws UcxError ERR_BUSY before that, ERR_INVALID_PARAM the second time
   */
  free(): void {
    this.#owner.freeRequest(this);
  }

  /**
   * Ends the operation with CANCELED if no transport works on it yet (ucp_request_cancel).
   * @returns false when it is too late: the request ends by itself
   */
  cancel(): boolean {
    return this.#owner.cancelRequest(this);
  }

  /** Makes the request a new operation in progress. */
  begin(kind: RequestKind): void {
    this.kind = kind;
    this.status = Status.INPROGRESS;
    this.count = 1;
    this.failure = Status.OK;
    this.startNs = -1;
    this.queued = false;
    this.error = undefined;
    this.userData = undefined;
    this.callback = undefined;
    this.replyHandler = undefined;
    this.abandon = undefined;
    this.carriedBy = undefined;
    this.protocolName = '';
    this.done = 0;
    this.receivedBytes = 0;
    this.requestId = 0;
    this.isRemote = false;
  }

  /** Points the zero-copy list at one piece of memory. */
  setEntry(memory: MdMemory, offset: number, byteLength: number): void {
    let entry = this.iov[0];
    if (entry === undefined) {
      entry = new RequestEntry(memory);
      this.iov.push(entry);
    }
    entry.memory = memory;
    entry.offset = offset;
    entry.byteLength = byteLength;
  }

  /** The peer will not answer any more. */
  onAbandoned(status: Status): void {
    if (this.abandon === undefined) this.end(status);
    else this.abandon(this, status);
  }

  /** Called by transports when the count has reached 0. */
  onComplete(): void {
    this.end(this.failure);
  }

  /** Ends the request, exactly once: with INVALID_ADDR where its memory was detached or shortened meanwhile, whatever has come of the bytes. */
  end(outcome: Status): void {
    const isLost = LOSES.has(outcome) && !this.#hasMemory();
    const status = isLost ? Status.INVALID_ADDR : outcome;
    this.status = status;
    if (isLost) this.error = undefined;
    this.queued = false;
    if (this.startNs >= 0) this.#owner.onObservedEnd(this);
    if (this.requestId !== 0) this.connection!.forget(this);
    if (this.registered !== undefined) {
      this.registrar!.memDereg(this.registered, FORCE);
      this.registered = undefined;
      this.registrar = undefined;
    }
    if (this.release !== undefined) {
      this.release();
      this.release = undefined;
    }
    this.bytes = undefined;
    this.handle = undefined;
    this.pieces = undefined;
    this.transfer = undefined;
    const entry = this.iov[0];
    if (entry !== undefined) entry.memory = NO_MEMORY;
    if (this.callback !== undefined) this.callback(this, status);
  }

  /** Whether the local memory is as long as it was when the operation was described. */
  #hasMemory(): boolean {
    const { bytes, pieces, iov, localOffset, byteLength } = this;
    if (bytes !== undefined) return holdsBytes(bytes, localOffset, byteLength);
    if (pieces !== undefined)
      return pieces.every((piece) => holdsBytes(hostBytes(piece.memory), piece.offset, piece.byteLength));
    const entry = iov[0];
    return (
      entry === undefined ||
      entry.memory === NO_MEMORY ||
      holdsBytes(entry.memory.bytes, entry.offset, entry.byteLength)
    );
  }
}

/** A request that nobody has described cannot be started. */
function notDescribed(): Status {
  return Status.INVALID_PARAM;
}
