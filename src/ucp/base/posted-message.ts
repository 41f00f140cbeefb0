/** Messages of the protocols themselves that wait for room at their transport. Messages of the application are in message-request.ts. */

import { isLackOfResources, Status } from '../../ucs/type/status.ts';
import { sendMessage } from './message-packer.ts';
import { type Connection, Request, type RequestOwner } from './request/request.ts';

/** A message of a protocol itself that waits for room. */
export class PostedMessage extends Request {
  readonly messageId: number;
  readonly #to: Connection;
  readonly #header: Int32Array;
  readonly #payload: Uint8Array | undefined;

  /** Copies header and payload. */
  constructor(owner: RequestOwner, to: Connection, messageId: number, header: Int32Array, payload?: Uint8Array) {
    super(owner);
    this.begin(to, undefined);
    this.#to = to;
    this.messageId = messageId;
    this.#header = header.slice();
    this.#payload = payload?.slice();
  }

  start(): Status {
    const status = sendMessage(
      this.#to,
      this.messageId,
      this.#header,
      this.#payload,
      0,
      this.#payload?.byteLength ?? 0,
    );
    // The caller has returned and cannot be told of a failure: a message that lacks memory or descriptors is sent again.
    return isLackOfResources(status) ? Status.NO_RESOURCE : status;
  }
}
