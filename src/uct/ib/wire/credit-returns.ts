/** Returns credits to the peers of an interface, for messages that were delivered. The window is that of the connection (FC_WND_SIZE). */

import { Status } from '../../../ucs/type/status.ts';
import { type Connection, MessageKind } from './connection.ts';

/** The credits of one interface. */
export class CreditReturns {
  /** Connections with credits for their peers that had no room to send them. */
  readonly #waiting: Set<Connection> = new Set();

  /** Returns the credits for the messages of a connection that were delivered, at once or when there is room. */
  send(connection: Connection): void {
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
  forget(connection: Connection): void {
    this.#waiting.delete(connection);
  }
}
