/**
 * Connections that close: each is destroyed once everything that was posted on it has ended. Waiting for that is up to the interface. Returns credits
 * to the peers of an interface, for messages that were delivered. The window is that of the connection (FC_WND_SIZE).
 */

import { Status } from '../../../ucs/type/status.ts';
import { type IbConnection, MessageKind } from './connection.ts';

/** The closing connections of one interface. */
export class ClosingConnections {
  readonly #closing: Set<IbConnection> = new Set();
  readonly #destroy: (connection: IbConnection) => void;

  constructor(destroy: (connection: IbConnection) => void) {
    this.#destroy = destroy;
  }

  get size(): number {
    return this.#closing.size;
  }

  /** Sends the close message after everything posted, and lets all of it end. */
  start(connection: IbConnection): void {
    if (connection.isClosing || connection.isDestroyed) return;
    connection.isClosing = true;
    connection.uncork();
    connection.sendControl(MessageKind.CLOSE, 0);
    if (connection.isBusy) this.#closing.add(connection);
  }

  /** Destroys those on which everything has ended. */
  progress(): void {
    for (const connection of this.#closing) if (!connection.isBusy) this.#destroy(connection);
  }

  /** The connection is destroyed. */
  forget(connection: IbConnection): void {
    this.#closing.delete(connection);
  }
}

/** The credits of one interface. */
export class CreditReturns {
  /** Connections with credits for their peers that had no room to send them. */
  readonly #waiting: Set<IbConnection> = new Set();

  /** Returns the credits for the messages of a connection that were delivered, at once or when there is room. */
  send(connection: IbConnection): void {
    const isDone = connection.isDestroyed || connection.failure !== Status.OK || connection.isClosing;
    if (!isDone && !connection.sendControl(MessageKind.CREDIT, connection.delivered)) {
      this.#waiting.add(connection);
      return;
    }
    connection.delivered = 0;
    this.#waiting.delete(connection);
  }

  /** Sends what had no room. */
  progress(): void {
    if (this.#waiting.size > 0) for (const connection of this.#waiting) this.send(connection);
  }

  /** The connection is destroyed. */
  forget(connection: IbConnection): void {
    this.#waiting.delete(connection);
  }
}
