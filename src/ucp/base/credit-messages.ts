/**
 * Sends CREDIT messages, by which a receiver returns credit and a stream without credit can continue, and counts messages that lack credit. At most one of them waits for room; it returns
 * all credit that is free when it is sent.
 */

import { CreditCode, writeCredit } from '../../api/layout/control.ts';
import { NO_ENDPOINT } from '../../api/layout/frame.ts';
import { MessageId } from '../../api/layout/message.ts';
import { Status } from '../../ucs/type/status.ts';
import type { InboundWindow, OutboundCredit } from '../credit/credit.ts';
import { sendMessage } from './message-packer.ts';
import { WorkerCounter, type WorkerCounters } from './observation.ts';
import { SendRequest } from './request/operation-requests.ts';
import type { Connection, RequestOwner } from './request/request.ts';

/** Returns credit to the peer of one connection. */
export class CreditTeller {
  readonly #connection: Connection;
  readonly #owner: RequestOwner;
  #message: SendRequest | undefined;
  #starter: (() => Status) | undefined;

  constructor(connection: Connection, owner: RequestOwner) {
    this.#connection = connection;
    this.#owner = owner;
  }

  /** Returns the free credit, now or when there is room; false on a connection that is not established. */
  tell(window: InboundWindow): boolean {
    const connection = this.#connection;
    if (connection.failure !== Status.OK || connection.remoteId === NO_ENDPOINT) return false;
    this.#message ??= new SendRequest(this.#owner);
    const message = this.#message;
    if (message.queued) return true;
    message.begin(connection, undefined);
    this.#starter ??= () => this.#send(window);
    message.starter = this.#starter;
    connection.run(message);
    return true;
  }

  #send(window: InboundWindow): Status {
    const { returnable, windowBytes } = window;
    const code = window.isHeld ? CreditCode.HELD : CreditCode.RETURN;
    const message = writeCredit(this.#connection.remoteId, code, returnable, windowBytes);
    const status = sendMessage(this.#connection, MessageId.CREDIT, message, undefined, 0, 0);
    if (status === Status.OK) window.updateSent();
    return status;
  }
}

/** Sends a CREDIT message about the stream of a connection. */
export function postStreamCredit(connection: Connection, code: number): void {
  connection.post(MessageId.CREDIT, writeCredit(connection.remoteId, code, 0, 0));
}

/**
 * Counts a message that lacks credit.
 * @returns true if it is to be offered by rendezvous; false if it waits, because credit arrives as soon as the receiver makes progress
 */
export function lacksCredit(credit: OutboundCredit, cost: number, counters: WorkerCounters): boolean {
  if (credit.isFirstLack()) counters.count(WorkerCounter.TX_NO_CREDIT);
  const isOffered = credit.isLongFor(cost);
  if (isOffered) counters.count(WorkerCounter.TX_NO_CREDIT_RNDV);
  return isOffered;
}
