/** The interface of active messages: ids, headers, eager messages and rendezvous messages. */

import { isBytes } from '../../ucs/memory/bytes.ts';
import { invalidParam, tooLong } from '../../ucs/type/error.ts';
import type { Status } from '../../ucs/type/status.ts';
import type { Endpoint } from './endpoint.ts';
import type { LocalBuffer, MessageBuffer } from './memory.ts';
import type { Request, RequestParams } from './request.ts';

/** Number of handler ids: valid ids are smaller. */
export const AM_IDS = 65_536;

/** Checks the id of an active message. @param argument its name in the error @throws UcxError ERR_INVALID_PARAM */
export function checkAmId(id: number, argument = 'id'): void {
  if (!isAmId(id)) throw invalidParam(argument, `must be an integer from 0 to ${AM_IDS - 1}`, id);
}

/** Whether a number is the id of an active message. */
export function isAmId(id: number): boolean {
  return Number.isInteger(id) && id >= 0 && id < AM_IDS;
}

/** Maximum header length, so that header and key fit into one message. */
export const AM_HEADER_BYTES_MAX = 4096;

/** Checks the header of an active message. @throws UcxError ERR_INVALID_PARAM */
export function checkAmHeader(header: Uint8Array): void {
  if (!isBytes(header)) throw invalidParam('header', 'must be a Uint8Array', header);
  if (header.byteLength <= AM_HEADER_BYTES_MAX) return;
  throw tooLong('header', 'header', header.byteLength, AM_HEADER_BYTES_MAX);
}

/** Options of receiving the data of a message. */
export interface MessageDataOptions {
  /** Cancels the receive: its promise rejects with an AbortError. */
  readonly signal?: AbortSignal | undefined;
}

/**
 * Properties of both kinds of messages. Their data is received once, by one of the methods. After the handler, only messages from {@link
 * AmMessageBase.retain} are valid: others throw ERR_INVALID_PARAM. An async handler must read what it needs before its first `await`.
 */
export interface AmMessageBase {
  /** Handler id. */
  readonly id: number;
  /** Bytes of the data, received or not. */
  readonly byteLength: number;
  /** The header: in a handler, a view that is valid during the call. */
  readonly header: Uint8Array;
  /**
   * The endpoint to the sender.
   * @throws UcxError ERR_UNREACHABLE if the sender, a program that uses libucp directly, did not request a reply endpoint
   */
  readonly replyEndpoint: Endpoint;

  /**
   * Receives the data into new memory. In a handler, call it before the handler returns; the promise may be awaited later.
   * @throws UcxError ERR_INVALID_PARAM on the second call; ERR_NO_MEMORY if the process has not enough memory; ERR_CANCELED if the sender has withdrawn the
   * message; the failure of the transfer; AbortError
   */
  bytes(options?: MessageDataOptions): Promise<Uint8Array>;

  /** The data as UTF-8 text; invalid UTF-8 becomes replacement characters. See {@link bytes}. */
  text(options?: MessageDataOptions): Promise<string>;

  /**
   * Receives the data into memory of any type, or a list of ranges.
   * @returns the number of bytes received
   * @throws UcxError ERR_INVALID_PARAM for memory that is too short; see {@link bytes}
   */
  into(local: MessageBuffer, options?: MessageDataOptions): Promise<number>;

  /**
   * The form of {@link into} without a promise (ucp_am_recv_data_nbx).
   * @throws UcxError ERR_INVALID_PARAM for memory that is too short, or on the second call
   */
  receiveNbx(local: LocalBuffer, offset: number, byteLength: number, params?: RequestParams): Status | Request;

  /** Keeps the message after its handler (UCP_AM_FLAG_PERSISTENT_DATA): returns a copy that belongs to the caller. */
  retain(): AmMessage;

  /** Discards the data of a retained message: the sender of a rendezvous waits until its data is received or discarded. Idempotent. */
  release(): void;
}

/** A message that arrived with its data. */
export interface EagerAmMessage extends AmMessageBase {
  /** False: the data has arrived. */
  readonly isRendezvous: false;
  /** The data: in a handler, a view that is valid during the call. */
  readonly data: Uint8Array;
}

/** A message whose data is still at the sender: because it is long, or because this worker had no memory for it. */
export interface RendezvousAmMessage extends AmMessageBase {
  /** True: the data has to be fetched. */
  readonly isRendezvous: true;
}

/** An active message. Its length and the memory of the receiver determine the kind: programs that read `data` must handle both. */
export type AmMessage = EagerAmMessage | RendezvousAmMessage;

/**
 * Handler of active messages, called inside `progress()`. It may send; for errors that it throws see Worker.progress. The object is reused for the next
 * message: after the handler, only the result of `retain()` is valid.
 */
export type AmCallback = (message: AmMessage) => void;

/** The active messages of one id, for `for await`. Messages are copies that belong to the loop. */
export interface MessageQueue extends AsyncIterableIterator<AmMessage, void, void>, AsyncDisposable {
  /** The queue itself. */
  [Symbol.asyncIterator](): this;

  /**
   * The next message; progress is driven while it is awaited.
   * @throws AbortError if the signal has fired
   */
  next(): Promise<IteratorResult<AmMessage, void>>;

  /** Closes the queue: later messages have no handler, and queued messages are discarded. */
  return(): Promise<IteratorResult<AmMessage, void>>;
}
