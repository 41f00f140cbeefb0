/** Connections that close: each is destroyed once everything that was posted on it has ended. Waiting for that is up to the interface. */

import { type Connection, MessageKind } from './connection.ts';

/** The closing connections of one interface. */
export class ClosingConnections {
  readonly #closing: Set<Connection> = new Set();
  readonly #destroy: (connection: Connection) => void;

  constructor(destroy: (connection: Connection) => void) {
    this.#destroy = destroy;
  }

  get size(): number {
    return this.#closing.size;
  }

  /** Sends the close message after everything posted, and lets all of it end. */
  start(connection: Connection): void {
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
  forget(connection: Connection): void {
    this.#closing.delete(connection);
  }
}
