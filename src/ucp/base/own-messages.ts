/**
 * Protocol messages that wait for resources: queued ones, and the single CREDIT message of a connection, which returns all credit that is free at the time
 * of sending.
 */

import { CreditCode, writeCredit } from '../../api/layout/control.ts';
import { MessageId } from '../../api/layout/message.ts';
import { isLackOfResources, Status } from '../../ucs/type/status.ts';
import type { InboundWindow } from '../credit/credit.ts';
import { sendMessage } from './message-packer.ts';
import type { PeerLanes } from './peer-lanes.ts';
import { OwnMessage } from './queued.ts';

/** The fields of a protocol message. */
export interface Posted {
  readonly messageId: number;
  readonly header: Int32Array;
  readonly payload: Uint8Array | undefined;
}

/** A queued protocol message. */
export class PostedMessage extends OwnMessage {
  readonly messageId: number;
  readonly #to: PeerLanes;
  readonly #header: Int32Array;
  readonly #payload: Uint8Array | undefined;

  /** Copies header and payload. */
  constructor(to: PeerLanes, { messageId, header, payload }: Posted) {
    super();
    this.#to = to;
    this.messageId = messageId;
    this.#header = header.slice();
    this.#payload = payload?.slice();
    this.beginQueued();
  }

  start(): Status {
    const payload = this.#payload;
    const status = sendMessage(this.#to, this.messageId, this.#header, payload, 0, payload?.byteLength ?? 0);
    // The caller has returned, so it cannot handle a failure: a message that lacks memory or descriptors is retried.
    return isLackOfResources(status) ? Status.NO_RESOURCE : status;
  }
}

/** The message that returns credit. */
export class CreditMessage extends OwnMessage {
  readonly #to: PeerLanes;
  readonly #window: InboundWindow;

  constructor(to: PeerLanes, window: InboundWindow) {
    super();
    this.#to = to;
    this.#window = window;
  }

  /** Reuses the object for a new message; the previous one has ended. */
  begin(): void {
    this.beginQueued();
  }

  start(): Status {
    const window = this.#window;
    const { returnable, windowBytes } = window;
    const code = window.isHeld ? CreditCode.HELD : CreditCode.RETURN;
    const header = writeCredit(this.#to.remoteId, code, returnable, windowBytes);
    const status = sendMessage(this.#to, MessageId.CREDIT, header, undefined, 0, 0);
    if (status === Status.OK) window.updateSent();
    return status;
  }
}
