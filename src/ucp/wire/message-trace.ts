/** Trace of messages (UCX_LOG_LEVEL=data): a line for each message that is sent or received; undefined when disabled. Never their contents. */

import { type Log, LogLevel } from '../../ucs/debug/log.ts';
import type { AmFrame } from '../../uct/api/iface.ts';
import { handlerIn } from './am.ts';
import { endpointOf } from './frame.ts';
import { HEADER_BYTES, MessageId } from './message.ts';
import { tagIn } from './tag.ts';

const NAMES = Object.fromEntries(Object.entries(MessageId).map(([name, id]) => [id, name]));

/** The trace of one worker. */
export class MessageTrace {
  readonly #log: Log;

  private constructor(log: Log) {
    this.#log = log;
  }

  /** A trace to this log; undefined if the log does not take it. */
  static create(log: Log): MessageTrace | undefined {
    return log.level < LogLevel.DATA ? undefined : new MessageTrace(log);
  }

  /** A message was given to the transport. */
  sent(connectionId: number, messageId: number, header: Int32Array, payloadBytes: number): void {
    this.#log.data(`TX: ${textOf(messageId, header, 0, header.byteLength + payloadBytes)} ep ${connectionId}`);
  }

  /** A message arrived; it may be malformed, or name no endpoint. */
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

/** Name, length and the field that says what the message is for. */
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
