/**
 * A received active message as its handler sees it: header and data where they lie, valid during the call unless the handler takes them. How the
 * data of a long message is fetched is decided by the engine.
 */

import { invalidParam } from '../../ucs/type/error.ts';
import type { Status } from '../../ucs/type/status.ts';
import type { Endpoint } from './endpoint.ts';
import type { LocalBuffer } from './memory.ts';
import type { Request, RequestParams } from './request.ts';

/** Handler ids are below this. */
export const AM_IDS = 65_536;

/** Checks the id of an active message. @throws UcxError ERR_INVALID_PARAM */
export function checkAmId(id: number): void {
  if (!Number.isInteger(id) || id < 0 || id >= AM_IDS) {
    throw invalidParam('id', `must be an integer from 0 to ${AM_IDS - 1}`, id);
  }
}

/** Longest header, so that header and key fit into one message. */
export const AM_HEADER_BYTES_MAX = 4096;

/** What a message needs of the engine that received it; `S` and `W` as in {@link AmMessage}. */
export interface MessageOwner<S extends object = object, W extends object = object> {
  /** The endpoint to the sender. */
  endpointTo(sender: S): Endpoint;
  /** Gives up the data of a rendezvous: tells the sender that it is not wanted. */
  releaseData(message: AmMessage<S, W>): void;
  /** A message has left the queue that it was put into. Without it, queues take memory that the engine does not count. */
  messageTaken?(message: AmMessage<S, W>): void;
  receiveData(
    message: AmMessage<S, W>,
    local: LocalBuffer,
    localOffset: number,
    byteLength: number,
    params: RequestParams | undefined,
  ): Status | Request;
  awaitData(message: AmMessage<S, W>, local: LocalBuffer, signal: AbortSignal | undefined): Promise<number>;
}

/**
 * An active message. The object is used again for the next message: after the handler only what {@link retain} returned is left. For the engine, `S` is the
 * connection to the sender, and `W` what the data of a rendezvous is fetched by.
 */
export class AmMessage<S extends object = object, W extends object = object> {
  /** Handler id. */
  id = 0;
  /** The connection that it came by; for the engine. */
  sender: S | undefined = undefined;
  /** Memory that holds header and data. */
  source: Uint8Array = new Uint8Array(0);
  /** First byte of the header in `source`. */
  headerOffset = 0;
  /** Length of the header in bytes. */
  headerLength = 0;
  /** First byte of the data in `source`. */
  dataOffset = 0;
  /** Bytes of the data, whether they are here or must be received. */
  byteLength = 0;
  /** Set while the data is still with the sender: what the engine fetches it by. */
  waiting: W | undefined = undefined;
  /** True when the handler has taken over the fetching of the data. */
  isTaken = false;
  /** True for the object that handlers see; false for one that was retained. */
  isView = true;
  /** What it takes of the sender's credit; for the engine. */
  cost = 0;
  /** It waits in a queue of the library: its memory counts until it is taken. */
  isQueued = false;
  readonly #owner: MessageOwner<S, W>;

  constructor(owner: MessageOwner<S, W>) {
    this.#owner = owner;
  }

  /** True for a message whose data must be fetched with {@link receive}: a long one, or one that this worker had no memory for. */
  get isRendezvous(): boolean {
    return this.waiting !== undefined;
  }

  /** The header: a view that is valid during the call. */
  get header(): Uint8Array {
    return this.source.subarray(this.headerOffset, this.headerOffset + this.headerLength);
  }

  /** The data: a view that is valid during the call; undefined for a rendezvous. */
  get data(): Uint8Array | undefined {
    if (this.waiting !== undefined) return undefined;
    return this.source.subarray(this.dataOffset, this.dataOffset + this.byteLength);
  }

  /** The endpoint to the sender. */
  get replyEndpoint(): Endpoint {
    return this.#owner.endpointTo(this.sender!);
  }

  /** Keeps the message beyond the handler (UCP_AM_FLAG_PERSISTENT_DATA): a copy that belongs to the caller. */
  retain(): AmMessage<S, W> {
    const copy = new AmMessage<S, W>(this.#owner);
    copy.isView = false;
    copy.id = this.id;
    copy.sender = this.sender;
    copy.headerLength = this.headerLength;
    copy.dataOffset = this.headerLength;
    copy.byteLength = this.byteLength;
    copy.waiting = this.waiting;
    copy.cost = this.cost;
    const dataLength = this.waiting === undefined ? this.byteLength : 0;
    copy.source = new Uint8Array(this.headerLength + dataLength);
    copy.source.set(this.header);
    copy.source.set(this.source.subarray(this.dataOffset, this.dataOffset + dataLength), this.headerLength);
    this.isTaken = true;
    return copy;
  }

  /** Like {@link retain}, for a queue of the library: {@link leaveQueue} follows. */
  enqueue(): AmMessage<S, W> {
    const copy = this.retain();
    copy.isQueued = true;
    this.isQueued = true;
    return copy;
  }

  /** The application takes the message out of the queue, or the queue is closed. */
  leaveQueue(): void {
    this.isQueued = false;
    this.#owner.messageTaken?.(this);
  }

  /**
   * Puts the data into local memory (ucp_am_recv_data_nbx), once.
   * @throws UcxError ERR_INVALID_PARAM for memory that is too short, or the second time
   */
  receiveNbx(local: LocalBuffer, localOffset: number, byteLength: number, params?: RequestParams): Status | Request {
    this.#checkFirst();
    return this.#owner.receiveData(this, local, localOffset, byteLength, params);
  }

  /** The awaited form of {@link receiveNbx}; resolves with the bytes received. */
  receive(local: LocalBuffer, options: { readonly signal?: AbortSignal } = {}): Promise<number> {
    this.#checkFirst();
    // The operation may have to wait, and this object holds another message by then.
    const kept = this.isView ? this.retain() : this;
    this.isReceived = true;
    return this.#owner.awaitData(kept, local, options.signal);
  }

  /** Gives up a message that {@link retain} has kept: the sender of a rendezvous waits for that, or for its data to be received. */
  release(): void {
    if (this.isReceived) return;
    this.isReceived = true;
    if (this.waiting !== undefined) this.#owner.releaseData(this);
  }

  #checkFirst(): void {
    if (this.isReceived) throw invalidParam('message', 'must be received once', this.id);
  }

  /** True after the data was received. */
  isReceived = false;
}

/** Takes active messages, inside `progress()`. It must not throw; it may send. */
export type AmCallback = (message: AmMessage) => void;
