/**
 * A pending or requested UCP operation: the base class of all kinds. Pooled: after `free()` the object belongs to another operation. Its states are
 * those of queued.ts.
 */

import {
  type Request as ApiRequest,
  checkCallback,
  type RequestCallback,
  showRequests,
} from '../../../api/contract/request.ts';
import { Status } from '../../../ucs/type/status.ts';
import { THREAD_BOUND } from '../../../ucs/type/thread-bound.ts';
import type { Lane } from '../../lane/lanes.ts';
import type { LocalPiece } from '../../mem/memory-handle.ts';
import type { Connection } from '../connection.ts';
import { Queued, RequestState } from '../queued.ts';

/** The worker behind a request. */
export interface RequestOwner {
  /** A request that is observed has ended. */
  onObservedEnd(request: Request): void;
  freeRequest(request: Request): void;
  /** A callback of the application has thrown this. */
  onThrown(error: unknown): void;
  /** Ends a request that no transport or peer works on yet with CANCELED; false for others. */
  cancelRequest(request: Request): boolean;
}

/** Starts requests of one kind on their connection; returns like {@link Request.start}. */
export type Starter<R extends Request> = (request: R, connection: Connection) => Status;

/** Handles the answer of the peer to a request. */
export type ReplyHandler = (request: Request, status: Status, low: number, high: number) => void;

/** One side of a rendezvous, sender or receiver, as its request sees it: see rndv/. */
export interface RequestTransfer {
  readonly request: Request;
  /** Bytes of the message. */
  readonly byteLength: number;
  /** The peer has replied. */
  onReply(status: Status): void;
  /** The peer is gone. */
  onAbandoned(status: Status): void;
  /** The request has ended: releases the resources of the transfer. */
  onEnded(): void;
}

/** A request: the base of its kinds. */
export abstract class Request extends Queued implements ApiRequest {
  readonly thread: symbol = THREAD_BOUND;
  /** When it was started; -1 for one that is not observed. */
  startNs = -1;
  /** When it was found not to end in its call, in milliseconds of the coarse clock of its worker, for snapshots; -1 for one of a protocol itself. */
  startMs = -1;
  /** Its place in the list of all requests of the worker. */
  slot = -1;
  /** For the application. */
  userData: unknown = undefined;
  #callback: RequestCallback | undefined = undefined;

  connection: Connection | undefined = undefined;
  lane: Lane | undefined = undefined;
  replyHandler: ReplyHandler | undefined = undefined;
  /** Ends a request whose peer is gone; without it the request simply ends. */
  abandon: ((request: Request, status: Status) => void) | undefined = undefined;
  /** Releases the resources of the request besides its memory; runs when it ends, once. */
  release: (() => void) | undefined = undefined;
  /** Whether the program has cancelled it, in vain so far. */
  isCancelled = false;
  /** Its side of a rendezvous: see {@link joinRendezvous}. */
  transfer: RequestTransfer | undefined = undefined;

  byteLength = 0;
  /** Bytes that were passed to transports, or stored in the local memory. From the first one on, the request cannot be withdrawn. */
  done = 0;
  /** How its bytes are moved, such as `eager/short`, `rndv/get/zcopy` or `tag/recv`; a send names its operation before it. */
  protocolName = '';
  /** Transport and device that carried a message, if the peer moved the bytes and has reported them. */
  carriedBy: readonly string[] | undefined = undefined;
  /** The pool that it belongs to; undefined for a request of a protocol itself. */
  pool: { put(request: Request): boolean } | undefined = undefined;
  readonly #owner: RequestOwner;

  constructor(owner: RequestOwner) {
    super();
    this.#owner = owner;
  }

  get receivedBytes(): number {
    return 0;
  }

  get senderTag(): bigint {
    return 0n;
  }

  get atomicResult(): bigint {
    return 0n;
  }

  get callback(): RequestCallback | undefined {
    return this.#callback;
  }

  set callback(callback: RequestCallback | undefined) {
    checkCallback('callback', callback);
    this.#callback = callback;
  }

  /** Name of the transport that carries it, such as `gaudi_cpy`; undefined for a flush. */
  get transport(): string | undefined {
    return this.carriedBy?.[0] ?? this.lane?.iface.attributes.resource.transport;
  }

  /** Name of the device that carries it, such as `gaudi0`. */
  get device(): string | undefined {
    return this.carriedBy?.[1] ?? this.lane?.iface.attributes.resource.device;
  }

  /** Name of the protocol, such as `tag/eager/short`. */
  get protocol(): string {
    return this.protocolName;
  }

  /** Bytes that it has moved, once it has ended. */
  get movedBytes(): number {
    return this.byteLength;
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

  /**
   * Ends the operation with CANCELED if no transport or peer works on it yet.
   * @returns false when it is too late: the request ends by itself
   */
  withdraw(): boolean {
    if (!this.takeBack()) return false;
    this.end(Status.CANCELED);
    return true;
  }

  /** Takes the request back from where it waits; false when it is too late. */
  protected takeBack(): boolean {
    // A flush that a lane has already accepted ends by itself, and a message that was sent in part is completed.
    if (!this.queued || this.count > 1 || this.done > 0) return false;
    return this.connection?.unqueue(this) === true;
  }

  /** Makes the request a new operation in progress. */
  begin(connection: Connection | undefined, lane: Lane | undefined): void {
    this.beginQueued();
    this.startNs = -1;
    this.startMs = -1;
    this.userData = undefined;
    this.callback = undefined;
    this.connection = connection;
    this.lane = lane;
    this.replyHandler = undefined;
    this.abandon = undefined;
    this.isCancelled = false;
    this.byteLength = 0;
    this.done = 0;
    this.protocolName = '';
    this.carriedBy = undefined;
  }

  /** Makes the request one side of a rendezvous, until it ends. */
  joinRendezvous(transfer: RequestTransfer): void {
    this.transfer = transfer;
    this.replyHandler = tellReply;
    this.abandon = tellAbandoned;
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

  /** Ends the request, exactly once: with INVALID_ADDR if its memory was detached or shortened meanwhile, even if the bytes have been moved. */
  end(outcome: Status): void {
    const isLost = mayBeLost(outcome) && !this.holdsMemory();
    const status = isLost ? Status.INVALID_ADDR : outcome;
    this.status = status;
    this.state = RequestState.ENDED;
    if (isLost) this.error = undefined;
    if (this.startNs >= 0) this.#owner.onObservedEnd(this);
    if (this.requestId !== 0) this.connection?.forget(this);
    if (this.release !== undefined) {
      this.release();
      this.release = undefined;
    }
    if (this.transfer !== undefined) {
      this.transfer.onEnded();
      this.transfer = undefined;
    }
    this.dropMemory();
    this.runCallback(status);
  }

  /** Calls the callback of the application, whose error does not concern the caller. */
  runCallback(status: Status): void {
    const callback = this.#callback;
    if (callback === undefined) return;
    try {
      callback(this, status);
    } catch (error) {
      this.#owner.onThrown(error);
    }
  }

  /** Whether the local memory is as long as it was when the operation began. */
  protected holdsMemory(): boolean {
    return true;
  }

  /** Drops the references to the local memory: an ended request must not keep it alive. */
  protected dropMemory(): void {}
}

function tellReply({ transfer }: Request, status: Status): void {
  transfer?.onReply(status);
}

function tellAbandoned({ transfer }: Request, status: Status): void {
  transfer?.onAbandoned(status);
}

/** Whether an operation with this outcome may have lost its memory: other failures are more specific. */
function mayBeLost(outcome: Status): boolean {
  switch (outcome) {
    case Status.OK:
    case Status.IO_ERROR:
    case Status.INVALID_PARAM:
    case Status.INVALID_ADDR:
      return true;
    default:
      return false;
  }
}

const NO_FLUSHES: readonly FlushRequest[] = [];

/** A flush or a fence. */
export class FlushRequest extends Request {
  starter: () => Status = notInitialized;
  /** Lanes that it covers and that have not taken it yet. */
  lanes: readonly Lane[] = [];
  /** Called when a list before it has ended. */
  onList: () => void = notInitialized;
  /** The flushes of the connections that it consists of. */
  parts: readonly FlushRequest[] = NO_FLUSHES;

  override get isFlush(): boolean {
    return true;
  }

  override get protocol(): string {
    return 'flush';
  }

  override get movedBytes(): number {
    return 0;
  }

  override begin(connection: Connection | undefined, lane: Lane | undefined): void {
    super.begin(connection, lane);
    this.onList = notInitialized;
    this.parts = NO_FLUSHES;
  }

  /**
   * Ends the wait for resources, for the peer and for lists; the lanes that it was given to end it by themselves.
   * @returns whether it has ended with CANCELED: one that has failed before ends with its failure
   */
  cancelWait(): boolean {
    const { connection, count, failure } = this;
    // A part that ends completes one count.
    const ended = this.parts.filter((part) => !part.isCompleted && part.cancelWait()).length;
    if (connection === undefined) return failure === Status.OK && ended > 0 && ended === count;
    const held = this.queued && connection.unqueue(this) ? 1 : 0;
    const waits = held + connection.stopAwaiting(this) + connection.notifications.stopAwaiting(this.onList);
    for (let i = 0; i < waits; i++) this.complete(Status.CANCELED);
    return failure === Status.OK && waits > 0 && waits === count;
  }

  override withdraw(): boolean {
    return this.cancelWait() || super.withdraw();
  }

  start(): Status {
    return this.starter();
  }
}

/** An attempt to connect by a socket address. */
export class ConnectRequest extends Request {
  starter: () => Status = notInitialized;
  /** Cancels the attempt; false if it has ended. */
  canceller: () => boolean = cannotCancel;

  protected override takeBack(): boolean {
    return this.canceller();
  }

  start(): Status {
    return this.starter();
  }
}

showRequests(Request);

/** The memory of an operation that does not name several pieces. */
export const NO_PIECES: readonly LocalPiece[] = [];

/** The canceller of a request that its protocol cannot take back. */
export function cannotCancel(): boolean {
  return false;
}

/** The starter of a request that was not initialized. */
export function notInitialized(): Status {
  return Status.INVALID_PARAM;
}

/** The request that a message of a peer names; undefined if it does not wait for the peer any more. */
export function waitingRequest(connection: Connection | undefined, id: number): Request | undefined {
  const waiting = connection?.waiting.get(id);
  return waiting instanceof Request ? waiting : undefined;
}
