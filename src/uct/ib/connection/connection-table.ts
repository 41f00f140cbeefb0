/**
 * The connections of one interface: by queue pair; closing ones, each destroyed when its last work request has completed; failed ones; and those that have
 * credits to return to their peers. FC_WND_SIZE is the window of one connection.
 */

import { Status } from '../../../ucs/type/status.ts';
import type { IbShared } from '../shared.ts';
import { type ConnectionName, ConnectionReports, IbConnection, MessageKind } from './connection.ts';

export class ConnectionTable {
  readonly shared: IbShared;
  readonly reports: ConnectionReports;
  /** Connections that have failed and are not destroyed. */
  readonly failed: IbConnection[] = [];
  readonly #connections: Map<number, IbConnection> = new Map();
  readonly #closing: Set<IbConnection> = new Set();
  /** Connections with credits for their peers that had no free slot to send them. */
  readonly #creditors: Set<IbConnection> = new Set();
  readonly #onDestroy: (connection: IbConnection) => void;

  /**
   * @param onFailed called once when a connection has failed
   * @param onDestroy called before a connection is destroyed
   */
  constructor(
    shared: IbShared,
    onFailed: (connection: IbConnection, status: Status) => void,
    onDestroy: (connection: IbConnection) => void,
  ) {
    this.shared = shared;
    this.#onDestroy = onDestroy;
    this.reports = new ConnectionReports((connection, status) => {
      this.failed.push(connection);
      shared.sleeper.wake();
      onFailed(connection, status);
    });
  }

  /** Number of closing connections. */
  get closing(): number {
    return this.#closing.size;
  }

  /** A new connection, which does not belong to the table until it is added. @throws SyscallError */
  create(name: ConnectionName): IbConnection {
    return new IbConnection(this.shared, this.reports, name);
  }

  add(connection: IbConnection): void {
    this.#connections.set(connection.qp.qpNum, connection);
  }

  find(qpNum: number): IbConnection | undefined {
    return this.#connections.get(qpNum);
  }

  /** Sends the close message after all posted work requests, and lets all of them end. */
  startClose(connection: IbConnection): void {
    if (connection.isClosing || connection.isDestroyed) return;
    connection.isClosing = true;
    connection.uncork();
    connection.sendControl(MessageKind.CLOSE, 0);
    if (connection.isBusy) this.#closing.add(connection);
  }

  startCloseAll(): void {
    for (const connection of this.#connections.values()) this.startClose(connection);
  }

  /** Destroys the closing connections whose work requests have all ended. */
  progressClosing(): void {
    if (this.#closing.size === 0) return;
    for (const connection of this.#closing) if (!connection.isBusy) this.destroy(connection);
  }

  /** Returns the credits for the messages of a connection that were delivered, at once or when there is a free slot. */
  returnCredits(connection: IbConnection): void {
    const isDone = connection.isDestroyed || connection.failure !== Status.OK || connection.isClosing;
    if (!isDone && !connection.sendControl(MessageKind.CREDIT, connection.delivered)) {
      this.#creditors.add(connection);
      return;
    }
    connection.delivered = 0;
    this.#creditors.delete(connection);
  }

  /** Returns the credits for which there was no free slot. */
  progressCredits(): void {
    if (this.#creditors.size > 0) for (const connection of this.#creditors) this.returnCredits(connection);
  }

  /** Fails all connections. */
  failAll(status: Status): void {
    for (const connection of this.#connections.values()) connection.fail(status);
  }

  destroy(connection: IbConnection): void {
    this.#closing.delete(connection);
    this.#creditors.delete(connection);
    this.#onDestroy(connection);
    this.#connections.delete(connection.qp.qpNum);
    connection.destroy();
  }

  destroyAll(): void {
    for (const connection of [...this.#connections.values()]) this.destroy(connection);
  }
}
