/** The connections of one interface: by peer, in its event sets, with their heartbeats, and those that wait until their socket is writable. */

import { EventAlarm } from '../../../sys/index.ts';
import { identityText } from '../../base/iface.ts';
import type { Session } from '../secure/session.ts';
import type { TcpShared } from '../shared.ts';
import { Heartbeats, ReadySet, Room } from '../sockets.ts';
import { ConnectionReports, TcpConnection } from './connection.ts';
import { INTERVALS } from './liveness.ts';

const NS_PER_MS = 1e6;

export class ConnectionTable {
  readonly shared: TcpShared;
  readonly reports: ConnectionReports;
  /** Sockets of links: polled by progress only. */
  readonly ready: ReadySet = new ReadySet();
  /** The listening socket, sockets before the hello, and blocked sockets of links: the event loop also serves them, so that peers do not wait for progress. */
  readonly making: ReadySet = new ReadySet();
  #makingAlarm: EventAlarm | undefined = undefined;
  /** The link for new endpoints, by the id of the peer. */
  readonly #links: Map<string, TcpConnection> = new Map();
  /** All links that are not down. */
  readonly #all: Set<TcpConnection> = new Set();
  readonly #heartbeats: Heartbeats;
  readonly #heartbeatMs: number;

  /**
   * @param connect requests a connected socket for a link
   * @param onDown called when a link has left the table, before its descriptor is closed
   */
  constructor(
    shared: TcpShared,
    connect: (link: TcpConnection) => void,
    onDown: (link: TcpConnection, reason: string) => void,
  ) {
    this.shared = shared;
    this.reports = new ConnectionReports(connect, (link, reason) => {
      this.#remove(link);
      onDown(link, reason);
    });
    this.#heartbeatMs = Math.ceil(shared.peerTimeoutMs / INTERVALS);
    this.#heartbeats = new Heartbeats(shared.clock, this.#heartbeatMs * NS_PER_MS, () => this.#heartbeat());
  }

  /** Number of links that are not down. */
  get size(): number {
    return this.#all.size;
  }

  /** The link to a peer that new endpoints use; undefined if there is none. */
  find(peerId: Uint8Array): TcpConnection | undefined {
    return this.#links.get(identityText(peerId));
  }

  /** A new link, which does not belong to the table until it is added or attached. */
  create(peerId: Uint8Array): TcpConnection {
    return new TcpConnection(this.shared, this.reports, peerId);
  }

  /** Makes new endpoints use this link. */
  add(link: TcpConnection): void {
    this.#links.set(link.identity, link);
    this.#all.add(link);
  }

  /** Gives a link its connected socket. */
  attach(link: TcpConnection, fd: number, peerBytesMax: number, session: Session | undefined): void {
    this.#all.add(link);
    link.attach(fd, peerBytesMax, session);
    this.ready.add(link);
    link.room = new Room(fd, this.making, () => link.sendReported());
    link.heartbeat(this.#heartbeatMs);
    this.#heartbeats.start();
    // Operations that waited for the connection can start.
    this.shared.sleeper.wake();
  }

  /** Reserves the descriptor with which the event loop establishes connections. Throws SyscallError EMFILE. */
  reserveAlarm(): void {
    this.#makingAlarm ??= new EventAlarm(this.making.fd, () => {
      this.making.poll();
      this.#makingAlarm?.arm();
    });
  }

  /** Lets the event loop establish connections. */
  watchMaking(): void {
    this.#makingAlarm?.arm();
  }

  /** Polls all sockets; returns the number of events. */
  poll(): number {
    const { ready, making } = this;
    let count = making.size > 0 ? making.poll() : 0;
    const { hot, blocked } = this.reports;
    // The hot link is polled in every call: its readiness does not have to be checked.
    if (ready.size > (hot === undefined ? 0 : 1)) count += ready.poll();
    for (const link of blocked) {
      if (link.hasMore) count += link.progress(1);
      // A single one stays in the set: V8 allocates a set again after it became empty.
      if (link.hasMore || (link.isUp && blocked.size === 1)) continue;
      blocked.delete(link);
      // A sleep may have watched the socket for writability, which would end every later sleep once it is writable.
      if (link.isUp) ready.update(link);
    }
    return count;
  }

  /** Sends acknowledgements, and watches blocked sockets for writability. False if a link has failed, which progress has to end. */
  prepareSleep(): boolean {
    for (const link of this.reports.blocked) {
      link.acknowledge();
      if (link.isBroken) return false;
      if (link.isUp) this.ready.update(link);
    }
    return true;
  }

  /** Ends all links. */
  closeLinks(): void {
    this.#heartbeats.close();
    for (const link of this.#all) link.close();
  }

  /** Releases the descriptors. */
  close(): void {
    this.#makingAlarm?.close();
    this.ready.close();
    this.making.close();
  }

  #remove(link: TcpConnection): void {
    const { reports } = this;
    this.ready.remove(link);
    link.room?.close();
    reports.blocked.delete(link);
    this.#all.delete(link);
    if (reports.hot === link) reports.hot = undefined;
    if (this.#links.get(link.identity) === link) this.#links.delete(link.identity);
  }

  #heartbeat(): boolean {
    for (const link of this.#all) link.heartbeat(this.#heartbeatMs);
    return this.#all.size > 0;
  }
}
