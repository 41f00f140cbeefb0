/**
 * A UCP operation that has not ended when its call returns, or for which the caller wants a request: the base class of all kinds. Pooled: after `free()` the
 * object belongs to another operation. See queued.ts for the states.
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
  /** Called when an observed request has ended. */
  onObservedEnd(request: Request): void;
  freeRequest(request: Request): void;
  /** Called with an error that a callback of the application has thrown. */
  onThrown(error: unknown): void;
  /** Ends a request with CANCELED if no transport or peer works on it yet; false otherwise. */
  cancelRequest(request: Request): boolean;
}

/** Starts requests of one kind on their connection; returns like {@link Request.start}. */
export type Starter<R extends Request> = (request: R, connection: Connection) => Status;

/** Handles the reply of the peer to a request. */
export type ReplyHandler = (request: Request, status: Status, low: number, high: number) => void;

/** One side of a rendezvous, sender or receiver: see rndv/. */
export interface RequestTransfer {
  readonly request: Request;
  /** Bytes of the message. */
  readonly byteLength: number;
  /** Called when the peer has replied. */
  onReply(status: Status): void;
  /** Called when the peer has failed or left. */
  onAbandoned(status: Status): void;
  /** Called when the request has ended: releases the resources of the transfer. */
  onEnded(): void;
}

/** Base class of all requests. */
export abstract class Request extends Queued implements ApiRequest {
  readonly thread: symbol = THREAD_BOUND;
  /** Start time; -1 if it is not observed. */
  startNs = -1;
  /** Time at which the request did not end in its call, in milliseconds of the worker's coarse clock, for snapshots; -1 for a protocol request. */
  startMs = -1;
  /** Its index in the list of all requests of the worker. */
  slot = -1;
  /** Free for use by the application. */
  userData: unknown = undefined;
  #callback: RequestCallback | undefined = undefined;

  connection: Connection | undefined = undefined;
  lane: Lane | undefined = undefined;
  replyHandler: ReplyHandler | undefined = undefined;
  /** Ends a request whose peer has failed; if undefined, the request simply ends. */
  abandon: ((request: Request, status: Status) => void) | undefined = undefined;
  /** Releases the resources of the request besides its memory; called once, when the request ends. */
  release: (() => void) | undefined = undefined;
  /** True if the program has tried to cancel the request and it was too late. */
  isCancelled = false;
  /** The rendezvous that the request belongs to: see {@link joinRendezvous}. */
  transfer: RequestTransfer | undefined = undefined;

  byteLength = 0;
  /** Bytes passed to transports, or stored in local memory. Once it is above 0, the request cannot be withdrawn. */
  done = 0;
  /** The protocol, such as `eager/short`, `rndv/get/zcopy` or `tag/recv`; sends put the name of their operation before it. */
  protocolName = '';
  /** Transport and device that carried a message, if the peer moved the bytes and reported them. */
  carriedBy: readonly string[] | undefined = undefined;
  /** The pool that the request belongs to; undefined for a protocol request. */
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

  /** Bytes moved, once it has ended. */
  get movedBytes(): number {
    return this.byteLength;
  }

  /**
   * Returns the object to its pool once the operation has ended.
   * @throws UcxError ERR_BUSY before that, ERR_INVALID_PARAM the second time
   */
  free(): void {
    this.#owner.freeRequest(this);
  }

  /**
   * Ends the operation with CANCELED if no transport works on it yet (ucp_request_cancel).
   * @returns false if it is too late: the request then ends as usual
   */
  cancel(): boolean {
    return this.#owner.cancelRequest(this);
  }

  /**
   * Ends the operation with CANCELED if no transport or peer works on it yet.
   * @returns false if it is too late: the request then ends as usual
   */
  withdraw(): boolean {
    if (!this.takeBack()) return false;
    this.end(Status.CANCELED);
    return true;
  }

  /** Removes the request from the queue or protocol in which it waits; false if it is too late. */
  protected takeBack(): boolean {
    // A flush that a lane has already accepted, and a message that was sent in part, have to complete.
    if (!this.queued || this.count > 1 || this.done > 0) return false;
    return this.connection?.unqueue(this) === true;
  }

  /** Resets the object for a new operation in progress. */
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

  /** Attaches the request to one side of a rendezvous, until it ends. */
  joinRendezvous(transfer: RequestTransfer): void {
    this.transfer = transfer;
    this.replyHandler = tellReply;
    this.abandon = tellAbandoned;
  }

  /** Called when no reply of the peer will come any more. */
  onAbandoned(status: Status): void {
    if (this.abandon === undefined) this.end(status);
    else this.abandon(this, status);
  }

  /** Called by transports when the count has reached 0. */
  onComplete(): void {
    this.end(this.failure);
  }

  /** Ends the request, exactly once. The status becomes INVALID_ADDR if its memory was detached or shortened in the meantime, even if the bytes were moved. */
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

  /** Calls the application's callback; an error that it throws is reported to the owner and not to the caller. */
  runCallback(status: Status): void {
    const callback = this.#callback;
    if (callback === undefined) return;
    try {
      callback(this, status);
    } catch (error) {
      this.#owner.onThrown(error);
    }
  }

  /** True if the local memory is still as long as when the operation began. */
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

/** True for outcomes that lost memory may explain; other failures are more specific. */
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
  /** Lanes that the flush covers and has not started yet. */
  lanes: readonly Lane[] = [];
  /** Called when an earlier list has ended. */
  onList: () => void = notInitialized;
  /** The flushes of connections that make up a flush of several. */
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
   * Cancels the wait for resources, for the peer and for lists. Lanes that have started the flush still have to end it.
   * @returns true if it has ended with CANCELED; a flush that failed before ends with its failure
   */
  cancelWait(): boolean {
    const { connection, count, failure } = this;
    // The end of a part completes one count.
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

/** The empty list of an operation on contiguous memory. */
export const NO_PIECES: readonly LocalPiece[] = [];

/** The canceller of a request that cannot be withdrawn. */
export function cannotCancel(): boolean {
  return false;
}

/** The starter of a request that was not initialized. */
export function notInitialized(): Status {
  return Status.INVALID_PARAM;
}

/** The request that a message of a peer names; undefined if it no longer waits for the peer. */
export function waitingRequest(connection: Connection | undefined, id: number): Request | undefined {
  const waiting = connection?.waiting.get(id);
  return waiting instanceof Request ? waiting : undefined;
}
