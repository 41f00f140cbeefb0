/**
 * The connections of one worker: made by the application or by a peer that connects, paired in the order in which both ends made them, and found by the
 * number that messages name.
 *
 * A number is not a proof: a message counts for a connection only if it came from an interface that the address of the peer names.
 *
 * The n-th endpoint that a worker makes to another and the n-th endpoint that the other makes back are the two halves of one connection. The first of both
 * sends a request with its worker address; the other end replies when its worker makes progress, and has its half from then on, even if its application
 * never creates the endpoint. Simultaneous connect: each request also serves as the reply to the other.
 *
 * Connections by socket address (sockets.ts) are not numbered: the server creates its half and sends its id, and the client's half attaches to it, which is
 * the first message between them.
 */

import type { Endpoint, EndpointOptions } from '../../api/contract/endpoint.ts';
import { readWireup, WIREUP_BYTES, WireupCode, type WireupFields, writeWireup } from '../../api/layout/control.ts';
import { NO_ENDPOINT, payloadOf } from '../../api/layout/frame.ts';
import { MessageId } from '../../api/layout/message.ts';
import { endpointConnect } from '../../ucs/debug/diagnostics.ts';
import { isUcxError, statusError, type UcxError } from '../../ucs/type/error.ts';
import { isFailure, isLackOfResources, Status } from '../../ucs/type/status.ts';
import type { AmFrame } from '../../uct/api/iface.ts';
import { Connection } from '../base/connection.ts';
import { changeOf } from '../base/peer-lanes.ts';
import type { WorkerCore } from '../base/worker-core.ts';
import { connectLanes, identitiesOf } from '../lane/lanes.ts';
import { unpackWorkerAddress, type WorkerAddress } from '../lane/worker-address.ts';
import { printMessageProtocols } from '../rma/explain.ts';
import { DeferredRequests, type Peer, type PeerRequest, Peers } from './peers.ts';

/** Maximum number of connections that only peers have requested; further requests are rejected. */
const UNCLAIMED_MAX = 4096;
/** Maximum number of unsent rejections; beyond it, peers are not notified of the rejection. */
const REJECTIONS_MAX = 1024;
/**
 * Maximum number of connections that are closed before their peer has replied; beyond it, the oldest is closed without a close message. Lower than the
 * number of rings of a posix interface, so that they do not block new connections.
 */
export const LEAVING_MAX = 512;
const NO_BYTES = new Uint8Array(0);

/** The endpoints above the connections. */
export interface ConnectionEvents {
  /** Creates the endpoint of a connection. */
  adopt(connection: Connection, options: EndpointOptions): Endpoint;
  /** Called when a peer has made a connection. */
  onAccepted(): void;
  /** Called when an accepted half no longer waits for its client. */
  onAttached(connection: Connection): void;
  /** Called when a connection was dropped. */
  onDropped(connection: Connection): void;
  /** Called when a connection has ended because the peer has closed it, failed or left. */
  onConnectionFailed(connection: Connection): void;
}

export class Connections {
  readonly #core: WorkerCore;
  readonly #events: ConnectionEvents;
  readonly #peers: Peers = new Peers();
  /** Number of connections that only peers have requested. */
  #unclaimed = 0;
  /** Where a connection is listed; needed to close it. */
  readonly #homes: Map<Connection, { readonly peer: Peer; readonly number: number }> = new Map();
  /** Connections that were closed before they could send their close message, because the peer had not replied or resources were missing. */
  readonly #leaving: Set<Connection> = new Set();
  /** Those of them that only need resources to send their close message. */
  readonly #draining: Set<Connection> = new Set();
  /** Halves to which a client may attach. */
  readonly #accepted: Set<Connection> = new Set();
  readonly #deferred: DeferredRequests;

  constructor(core: WorkerCore, events: ConnectionEvents) {
    this.#core = core;
    this.#events = events;
    this.#deferred = new DeferredRequests(core.context.clock);
  }

  /** All connections, including those that only the peer has requested. */
  get all(): readonly Connection[] {
    return this.#core.table.all;
  }

  /** Number of remembered workers. */
  get knownPeers(): number {
    return this.#peers.size;
  }

  /** The connection named in the first word of a message, if the message came from its peer. */
  of(frame: AmFrame): Connection | undefined {
    return this.#core.table.of(frame);
  }

  /**
   * The next connection to a worker.
   * @throws UcxError ERR_ADDRESS_MALFORMED, ERR_UNREACHABLE
   */
  connect(packed: Uint8Array): Connection {
    const address = unpackWorkerAddress(packed);
    if (sameId(address.id, this.#core.workerId)) return this.#loopback(address);
    const peer = this.#peers.get(packed);
    const number = peer.next;
    const passive = peer.passive.get(number);
    if (passive !== undefined) {
      peer.next += 1;
      this.#unclaimed -= 1;
      peer.passive.delete(number);
      peer.own.set(number, passive);
      return passive;
    }
    let connection: Connection;
    try {
      connection = this.#make(address);
      if (connection.am !== undefined) {
        this.#sendFirst(connection, { to: NO_ENDPOINT, code: WireupCode.REQUEST, number });
      }
    } catch (error) {
      this.#peers.release(peer);
      throw error;
    }
    peer.next += 1;
    peer.own.set(number, connection);
    this.#homes.set(connection, { peer, number });
    return connection;
  }

  /**
   * Creates the server's half of a connection that a client has requested by a socket address: it is established once the client has attached.
   * @throws UcxError ERR_ADDRESS_MALFORMED; ERR_UNREACHABLE, also if no transport carries messages
   */
  accept(packed: Uint8Array): Connection {
    const connection = this.#makeApart(unpackWorkerAddress(packed));
    this.#accepted.add(connection);
    return connection;
  }

  /**
   * Creates the client's half, which attaches to the server's half with that id. Throws like {@link accept}.
   * @param windowBytes bytes that the server accepts before it requests them
   */
  attach(packed: Uint8Array, remoteId: number, windowBytes: number): Connection {
    const connection = this.#makeApart(unpackWorkerAddress(packed));
    connection.remoteId = remoteId;
    connection.credit.open(windowBytes);
    this.#sendFirst(connection, { to: remoteId, code: WireupCode.ATTACH, number: 0 });
    return connection;
  }

  /** Handles a wire-up message of another worker. */
  onMessage(frame: AmFrame): void {
    const wireup = readWireup(frame);
    const { code, from } = wireup;
    if (from <= NO_ENDPOINT) return;
    if (code === WireupCode.REPLY) this.#onReply(frame, wireup);
    else if (code === WireupCode.ATTACH) this.#onAttach(frame, wireup);
    else if (code === WireupCode.REQUEST) this.#onRequest(frame, wireup);
  }

  /** Handles the close message of a peer. */
  onClose(frame: AmFrame): void {
    const connection = this.of(frame);
    if (connection === undefined) return;
    connection.endedByPeer();
    const home = this.#homes.get(connection);
    const isUnasked = home?.peer.passive.get(home.number) === connection;
    if (isUnasked || this.#leaving.has(connection)) this.close(connection);
    else this.#events.onConnectionFailed(connection);
  }

  /** Sends the close message and closes a connection; if the peer has not replied yet, once it replies. No request waits on the connection any more. */
  close(connection: Connection): void {
    // A connection that carried only replies may have been ended by the peer while its endpoint was being closed.
    if (this.#core.table.byId(connection.id) !== connection) return;
    connection.sendClose();
    // A failed peer does not reply. If it is a client that attaches later, it is notified then.
    const isGone = connection.failure !== Status.OK && connection.am?.check() !== Status.OK;
    const isAwaited = !isGone && !this.#accepted.has(connection);
    if (!isAwaited || (!connection.isClosePending && connection.isDrained)) {
      this.drop(connection);
      return;
    }
    this.#leaving.add(connection);
    if (!connection.isClosePending) this.#draining.add(connection);
    const [oldest] = this.#leaving;
    if (oldest !== undefined && this.#leaving.size > LEAVING_MAX) this.drop(oldest);
  }

  /** Closes connections that have sent their close message, and retries peer requests for which this process lacked descriptors. */
  progress(): void {
    for (const connection of this.#draining) {
      if (connection.isDrained) this.drop(connection);
    }
    for (const request of this.#deferred.takeDue()) this.#serve(request);
  }

  /** True while a closed connection has a message for its peer, or a peer waits for its connection. */
  get hasPending(): boolean {
    return this.#leaving.size > 0 || this.#deferred.count > 0;
  }

  /** True if a connection is closed here and has not notified the peer yet. */
  leaves(connection: Connection): boolean {
    return this.#leaving.has(connection);
  }

  /** Closes a connection without a close message. */
  drop(connection: Connection): void {
    this.#leaving.delete(connection);
    this.#draining.delete(connection);
    if (this.#accepted.delete(connection)) this.#events.onAttached(connection);
    const home = this.#homes.get(connection);
    if (home !== undefined) {
      const { peer, number } = home;
      if (peer.own.get(number) === connection) peer.own.delete(number);
      if (peer.passive.get(number) === connection) {
        peer.passive.delete(number);
        this.#unclaimed -= 1;
        // This half is closed: the next connection made here must pair with the next one of the peer.
        if (peer.next === number) peer.next += 1;
      }
      this.#homes.delete(connection);
      this.#peers.release(peer);
    }
    this.#core.table.remove(connection);
    connection.close();
    this.#events.onDropped(connection);
  }

  #loopback(address: WorkerAddress): Connection {
    const connection = this.#make(address);
    connection.remoteId = connection.id;
    connection.credit.open(connection.inbound.windowBytes);
    connection.isLoopback = true;
    return connection;
  }

  #makeApart(address: WorkerAddress): Connection {
    const connection = this.#make(address);
    try {
      connection.messageLane();
    } catch (error) {
      this.drop(connection);
      throw error;
    }
    connection.isLoopback = sameId(address.id, this.#core.workerId);
    return connection;
  }

  #onAttach(frame: AmFrame, { from: remoteId, windowBytes }: WireupFields): void {
    const connection = this.of(frame);
    if (connection !== undefined && this.#accepted.delete(connection)) {
      this.#events.onAttached(connection);
      this.#established(connection, remoteId, windowBytes);
      return;
    }
    // The server's half was closed because its client was late. The client does not know that yet.
    const address = this.#addressIn(frame);
    if (connection === undefined && address !== undefined) this.#reject(address, remoteId);
  }

  #onRequest(frame: AmFrame, { from: remoteId, number, windowBytes }: WireupFields): void {
    const address = this.#addressIn(frame);
    if (address === undefined) return;
    const isIgnored = !this.#serve({ packed: addressIn(frame), address, number, remoteId, windowBytes });
    if (isIgnored) frame.reject?.();
  }

  /** @returns false for a request without a reply, because the peer cannot be reached */
  #serve(request: PeerRequest): boolean {
    const { packed, address, number, remoteId, windowBytes } = request;
    const known = this.#peers.find(packed);
    const own = known?.own.get(number) ?? known?.passive.get(number);
    if (own !== undefined) {
      this.#established(own, remoteId, windowBytes);
      // The peer has mistaken this worker for another one, by a wrong address, and counts its connections from 0.
      if (own.remoteId !== remoteId) this.#reject(address, remoteId);
      return true;
    }
    if (this.#unclaimed + this.#deferred.count >= UNCLAIMED_MAX) {
      this.#core.warnings.warn(
        `connection request rejected: ${UNCLAIMED_MAX} connections of peers have no endpoint here; call worker.endpoint() with the addresses of these peers`,
      );
      this.#reject(address, remoteId);
      return true;
    }
    const connection = this.#accept(address);
    const failure = connection instanceof Connection ? this.#reply(connection, request, known) : connection;
    if (failure === undefined) return true;
    if (isLackOfResources(failure.status)) {
      this.#core.warnings.warn(`connection request deferred: ${failure.message}`);
      this.#deferred.add(request);
      return true;
    }
    this.#warn(failure.message);
    return false;
  }

  /** Replies to a peer that requests a connection, and lists the connection; if that fails, drops the connection and returns the reason. */
  #reply(connection: Connection, request: PeerRequest, known: Peer | undefined): UcxError | undefined {
    const { packed, number, remoteId, windowBytes } = request;
    const status = this.#send(connection, { to: remoteId, code: WireupCode.REPLY, number });
    if (isFailure(status)) {
      this.drop(connection);
      return statusError(status, 'cannot send the reply');
    }
    this.#events.onAccepted();
    const peer = known ?? this.#peers.get(packed, number);
    peer.passive.set(number, connection);
    this.#unclaimed += 1;
    this.#homes.set(connection, { peer, number });
    this.#established(connection, remoteId, windowBytes);
    return undefined;
  }

  /** The address in a message, if it is that of the sender; otherwise undefined, and the message is ignored. */
  #addressIn(frame: AmFrame): WorkerAddress | undefined {
    try {
      const address = unpackWorkerAddress(addressIn(frame));
      if (identitiesOf(this.#core.openIfaces, address.entries).includes(frame.source)) return address;
      this.#warn('it contains the address of another worker');
    } catch (error) {
      if (!isUcxError(error)) throw error;
      this.#warn(error.message);
    }
    return undefined;
  }

  /** Notifies a peer that its half of a connection has no counterpart. */
  #reject(address: WorkerAddress, remoteId: number): void {
    if (this.#draining.size >= REJECTIONS_MAX) return;
    const connection = this.#accept(address);
    if (!(connection instanceof Connection)) return;
    connection.remoteId = remoteId;
    this.close(connection);
  }

  #warn(why: string): void {
    this.#core.warnings.warn(`connection request ignored: ${why}`);
  }

  #onReply(frame: AmFrame, { from: remoteId, windowBytes }: WireupFields): void {
    const connection = this.of(frame);
    // Only its client may attach to an accepted half.
    if (connection !== undefined && !this.#accepted.has(connection)) {
      this.#established(connection, remoteId, windowBytes);
    }
  }

  #established(connection: Connection, remoteId: number, windowBytes: number): void {
    if (connection.remoteId !== NO_ENDPOINT) return;
    connection.remoteId = remoteId;
    connection.credit.open(windowBytes);
    if (this.#leaving.has(connection)) this.close(connection);
    else if (connection.failure !== Status.OK) connection.sendClose();
  }

  /** Creates the local half of a connection that a peer requests; returns the reason if it cannot. */
  #accept(address: WorkerAddress): Connection | UcxError {
    try {
      const connection = this.#make(address);
      if (connection.am !== undefined) return connection;
      this.drop(connection);
      return statusError(Status.UNREACHABLE, 'no transport can carry replies');
    } catch (error) {
      if (!isUcxError(error)) throw error;
      return error;
    }
  }

  #make(address: WorkerAddress): Connection {
    const { openIfaces, activity, context, table } = this.#core;
    table.checkFreeSlot();
    const lanes = connectLanes(openIfaces, address.entries, activity, context.resources.rejections);
    const connection = new Connection(this.#core, table.takeId(), lanes);
    connection.sources = identitiesOf(openIfaces, address.entries);
    connection.peerWorkerId = Buffer.from(address.id).toString('latin1');
    connection.peerName = address.name;
    connection.isPeerManual = address.isManual;
    table.add(connection);
    if (endpointConnect.hasSubscribers && this.#core.observation.isTold)
      endpointConnect.publish(changeOf(connection, Status.OK));
    if (connection.protocolInfo !== undefined) printMessageProtocols(context, connection, connection.protocolInfo);
    return connection;
  }

  /**
   * Sends the first wire-up message of a connection, with the address of this worker.
   * @throws UcxError if a transport cannot send it; then the connection is dropped
   */
  /** Sends the first wire-up message, which contains the address of this worker. Drops the connection and throws if it cannot be sent. */
  #sendFirst(connection: Connection, message: WireupMessage): void {
    const status = this.#send(connection, message, this.#core.packedAddress);
    if (!isFailure(status)) return;
    this.drop(connection);
    throw statusError(status, 'connect: cannot send the first message');
  }

  #send(connection: Connection, { to, code, number }: WireupMessage, payload?: Uint8Array): Status {
    const { id: from, inbound } = connection;
    const header = writeWireup(to, { code, from, number, windowBytes: inbound.windowBytes });
    return connection.post(MessageId.WIREUP, header, payload);
  }
}

/** A wire-up message: its code, the id of the peer's half, and the number of the connection between the two workers. */
interface WireupMessage {
  readonly to: number;
  readonly code: number;
  readonly number: number;
}

/** The worker address in a wire-up message; empty if it has none. */
function addressIn(frame: AmFrame): Uint8Array {
  return payloadOf(frame, WIREUP_BYTES) ?? NO_BYTES;
}

function sameId(left: Uint8Array, right: Uint8Array): boolean {
  return left.every((byte, i) => byte === right[i]);
}
