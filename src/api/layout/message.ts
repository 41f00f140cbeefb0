/**
 * The ids of the messages of ucp, and their minimum lengths. Also the trace of messages (UCX_LOG_LEVEL=data): a line for each sent or received message,
 * without its contents.
 */

import { type Log, LogLevel } from '../../ucs/debug/log.ts';
import type { AmFrame } from '../../uct/api/iface.ts';
import { AM_BYTES, AM_RTS_BYTES, handlerIn } from './am.ts';
import { CLOSE_BYTES, CREDIT_BYTES, WIREUP_BYTES, WITHDRAW_BYTES } from './control.ts';
import { endpointOf } from './frame.ts';
import { ATP_BYTES, DATA_BYTES, REPLY_BYTES, RTR_BYTES } from './rendezvous.ts';
import { ATOMIC_BYTES, GET_READY_BYTES, RMA_BYTES } from './rma.ts';
import { STREAM_BYTES } from './stream.ts';
import { TAG_BYTES, TAG_RTS_BYTES, tagIn } from './tag.ts';

/** Ids of active messages. A change in their meaning requires a new version of the worker address. */
export const MessageId = {
  WIREUP: 0,
  TAG: 1,
  TAG_SYNC: 2,
  TAG_RTS: 3,
  RTR: 4,
  DATA: 5,
  REPLY: 6,
  AM: 7,
  AM_RTS: 8,
  STREAM: 9,
  PUT: 10,
  GET: 11,
  GET_READY: 12,
  ATOMIC: 13,
  CLOSE: 14,
  ATP: 15,
  CREDIT: 16,
  /** An AM whose puts have failed: it is not delivered, but uses its credit. */
  AM_VOID: 17,
  WITHDRAW: 18,
} as const;

/** Bytes of the header of each id: shorter messages are invalid. */
export const HEADER_BYTES: readonly number[] = [
  WIREUP_BYTES,
  TAG_BYTES,
  TAG_BYTES,
  TAG_RTS_BYTES,
  RTR_BYTES,
  DATA_BYTES,
  REPLY_BYTES,
  AM_BYTES,
  AM_RTS_BYTES,
  STREAM_BYTES,
  RMA_BYTES,
  RMA_BYTES,
  GET_READY_BYTES,
  ATOMIC_BYTES,
  CLOSE_BYTES,
  ATP_BYTES,
  CREDIT_BYTES,
  AM_BYTES,
  WITHDRAW_BYTES,
];

const NAMES = Object.fromEntries(Object.entries(MessageId).map(([name, id]) => [id, name]));

/** The trace of one worker. */
export class MessageTrace {
  readonly #log: Log;

  private constructor(log: Log) {
    this.#log = log;
  }

  /** A trace to this log; undefined if the log level disables it. */
  static create(log: Log): MessageTrace | undefined {
    return log.level < LogLevel.DATA ? undefined : new MessageTrace(log);
  }

  /** Called when a message was passed to the transport. */
  sent(connectionId: number, messageId: number, header: Int32Array, payloadBytes: number): void {
    this.#log.data(`TX: ${textOf(messageId, header, 0, header.byteLength + payloadBytes)} ep ${connectionId}`);
  }

  /** Called when a message has arrived; it may be malformed, or have an unknown endpoint. */
  received(messageId: number, frame: AmFrame): void {
    const { words, offset, byteLength } = frame;
    const isComplete = byteLength >= (HEADER_BYTES[messageId] ?? Number.POSITIVE_INFINITY);
    this.#log.data(
      isComplete
        ? `RX: ${textOf(messageId, words, offset >> 2, byteLength)} ep ${endpointOf(frame)}`
        : `RX: malformed message ${messageId} [length ${byteLength}]`,
    );
  }
}

/** Name, length and identifying field of a message. */
function textOf(messageId: number, words: Int32Array, at: number, byteLength: number): string {
  const text = `${NAMES[messageId]} [length ${byteLength}]`;
  switch (messageId) {
    case MessageId.TAG:
    case MessageId.TAG_SYNC:
    case MessageId.TAG_RTS:
      return `${text} tag 0x${tagIn(words, at).toString(16)}`;
    case MessageId.AM:
    case MessageId.AM_RTS:
      return `${text} am_id ${handlerIn(words, at)}`;
    default:
      return text;
  }
}
