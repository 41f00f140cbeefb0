/**
 * CREDIT messages: how the receiver returns credit, and how a stream without credit gets on all the same. One message waits for room at a time; what is owed
 * when it goes out goes with it.
 */

import { highOf } from '../../ucs/int64.ts';
import { Status } from '../../ucs/status.ts';
import { MessageId, NO_ENDPOINT } from '../core/message.ts';
import { sendMessage } from '../core/message-packer.ts';
import { type Connection, Request, RequestKind, type RequestOwner } from '../core/request.ts';
import type { InboundWindow } from './inbound-window.ts';

/** What a CREDIT message says. */
export const CreditCode = {
  /** So much has become free, and the window is so large. */
  RETURN: 0,
  /** The same, and the receiver holds what the rest was for: it comes back when the application asks for messages. */
  HELD: 1,
  /** The sender has bytes for the stream, and no credit that it may hope for. */
  STREAM_WAITS: 2,
  /** The receiver asks for one message of the stream, which needs no credit. */
  STREAM_TAKE: 3,
} as const;

const CREDIT_WORDS = 6;
const HEADER = new Int32Array(CREDIT_WORDS);

/** Tells the peer of one connection what it is owed. */
export class CreditTeller {
  readonly #connection: Connection;
  readonly #owner: RequestOwner;
  #window: InboundWindow | undefined;
  #message: Request | undefined;

  constructor(connection: Connection, owner: RequestOwner) {
    this.#connection = connection;
    this.#owner = owner;
  }

  /** Sends what is owed, now or when there is room; false on a connection that does not stand. */
  tell(window: InboundWindow): boolean {
    const connection = this.#connection;
    if (connection.failure !== Status.OK || connection.remoteId === NO_ENDPOINT) return false;
    this.#window = window;
    this.#message ??= new Request(this.#owner);
    const message = this.#message;
    if (message.queued) return true;
    message.begin(RequestKind.MESSAGE);
    message.connection = connection;
    message.starter = this.#send;
    connection.run(message);
    return true;
  }

  readonly #send = (): Status => {
    const window = this.#window!;
    const { owed, windowBytes } = window;
    HEADER[0] = this.#connection.remoteId;
    HEADER[1] = window.isHeld ? CreditCode.HELD : CreditCode.RETURN;
    HEADER[2] = owed | 0;
    HEADER[3] = highOf(owed);
    HEADER[4] = windowBytes | 0;
    HEADER[5] = highOf(windowBytes);
    const status = sendMessage(this.#connection, MessageId.CREDIT, HEADER, CREDIT_WORDS, undefined, 0, 0);
    if (status === Status.OK) window.told();
    return status;
  };
}

/** Says something about the stream of a connection. */
export function postStreamCredit(connection: Connection, code: number): void {
  HEADER.fill(0);
  HEADER[0] = connection.remoteId;
  HEADER[1] = code;
  connection.post(MessageId.CREDIT, HEADER, CREDIT_WORDS);
}
