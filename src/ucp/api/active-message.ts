/** Active messages as programs see them: ids, headers, and the two kinds of messages, those that are here and those whose data must be fetched. Types only, but for checks. */

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

/** Options of receiving the data of a message. */
export interface MessageDataOptions {
  /** Cancels the receive: its promise rejects with an AbortError. */
  readonly signal?: AbortSignal;
}

/** What both kinds of messages have. Their data is received once, by one of the methods. */
export interface AmMessageBase {
  /** Handler id. */
  readonly id: number;
  /** Bytes of the data, whether they are here or must be fetched. */
  readonly byteLength: number;
  /** The header: in a handler a view that is valid during the call. */
  readonly header: Uint8Array;
  /** The endpoint to the sender. @throws UcxError ERR_UNREACHABLE where a program of another language has not asked for answers */
  readonly replyEndpoint: Endpoint;

  /**
   * The data in memory of its own, wherever it is now. In a handler the call must be made before the handler returns; the promise may be awaited later.
   * @throws UcxError ERR_INVALID_PARAM the second time; ERR_NO_MEMORY when the process has no memory for so long a message; as the transfer ends;
   *   AbortError
   */
  bytes(options?: MessageDataOptions): Promise<Uint8Array>;

  /** The data as UTF-8 text; bytes that are no UTF-8 become replacement characters. See {@link bytes}. */
  text(options?: MessageDataOptions): Promise<string>;

  /**
   * Puts the data into memory of any type, or a list of pieces.
   * @returns the bytes received
   * @throws UcxError ERR_INVALID_PARAM for memory that is too short; see {@link bytes}
   */
  into(local: LocalBuffer, options?: MessageDataOptions): Promise<number>;

  /**
   * The form of {@link into} without a promise (ucp_am_recv_data_nbx).
   * @throws UcxError ERR_INVALID_PARAM for memory that is too short, or the second time
   */
  receiveNbx(local: LocalBuffer, localOffset: number, byteLength: number, params?: RequestParams): Status | Request;

  /** Keeps the message beyond its handler (UCP_AM_FLAG_PERSISTENT_DATA): a copy that belongs to the caller. */
  retain(): AmMessage;

  /** Gives up the data of a message that was kept: the sender of a rendezvous waits for that, or for the data to be received. Idempotent. */
  release(): void;
}

/** A message that has come with its data. */
export interface EagerAmMessage extends AmMessageBase {
  /** False: the data is here. */
  readonly isRendezvous: false;
  /** The data where it lies: in a handler a view that is valid during the call. */
  readonly data: Uint8Array;
}

/** A message whose data is still with the sender: a long one, or one that this worker had no memory for. */
export interface RendezvousAmMessage extends AmMessageBase {
  /** True: the data must be fetched. */
  readonly isRendezvous: true;
}

/** An active message. The length decides the kind, and so does the memory of the receiver: programs that take `data` must handle both. */
export type AmMessage = EagerAmMessage | RendezvousAmMessage;

/**
 * Takes active messages, inside `progress()`. It must not throw; it may send. The object is used again for the next message: after the handler only what
 * `retain()` returned is left.
 */
export type AmCallback = (message: AmMessage) => void;

/** The active messages of one id, for `for await`. Messages are copies that belong to the loop. */
export interface MessageQueue extends AsyncIterableIterator<AmMessage, void, void>, AsyncDisposable {
  /** The queue itself. */
  [Symbol.asyncIterator](): this;

  /**
   * The next message; progress is driven while it is awaited.
   * @throws AbortError when the signal has fired
   */
  next(): Promise<IteratorResult<AmMessage, void>>;

  /** Leaves the loop: later messages find no handler, and what was not taken is given up. */
  return(): Promise<IteratorResult<AmMessage, void>>;
}
