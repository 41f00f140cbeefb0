/**
 * The connections of one worker: made by the application or by a peer that connects, paired in the order in which both ends made them, and found by the
 * number that messages name.
 *
 * A number is not a proof: a message counts for a connection only if it came from an interface that the address of the peer names.
 *
 * The n-th endpoint that a worker makes to another is one connection with the n-th endpoint that the other makes back. The first of both sends a
 * request with its worker address; the other end replies when its worker makes progress, and has its half from then on, even if its application never
 * creates the endpoint. Simultaneous connect: each request also serves as the reply to the other.
 *
 * Connections that were agreed on by socket addresses (listener.ts) are outside of this numbering: the server makes its half and sends its number, and
 * the client's half attaches to it, as the first message between them.
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
import { tellMessageProtocols } from '../rma/explain.ts';
import { DeferredRequests, type Peer, type PeerRequest, Peers } from './peers.ts';

/** Connections of peers that this end has not asked for, at most; requests beyond it are refused. */
const UNCLAIMED_MAX = 4096;
/** Refusals that have not been sent yet, at most; beyond it peers are not told that they are refused. */
const REFUSALS_MAX = 1024;
/**
 * Connections that are closed before their peer has answered; beyond it the oldest is closed without a close message. Fewer than a posix interface has
 * rings for, so that they do not keep new connections out.
 */
export const LEAVING_MAX = 512;
const NO_BYTES = new Uint8Array(0);

/** The endpoints above the connections: what happens to them. */
export interface ConnectionEvents {
  /** Makes the endpoint of a connection. */
  adopt(connection: Connection, options: EndpointOptions): Endpoint;
  /** Called when a peer has made a connection. */
  onAccepted(): void;
  /** Called when a half that was accepted does not wait for its client any more. */
  onAttached(connection: Connection): void;
  /** Called when a connection is gone. */
  onDropped(connection: Connection): void;
  /** Called when a connection has ended because the peer closed it, or is gone. */
  onConnectionFailed(connection: Connection): void;
}

/** The connections. */
export class Connections {
  readonly #core: WorkerCore;
  readonly #events: ConnectionEvents;
  readonly #peers: Peers = new Peers();
  /** Connections that only peers have asked for. */
  #unclaimed = 0;
  /** Where a connection is listed, for closing. */
  readonly #homes: Map<Connection, { readonly peer: Peer; readonly number: number }> = new Map();
  /** Connections closed before the peer had answered, or had room: they wait for that, to send their close message. */
  readonly #leaving: Set<Connection> = new Set();
  /** Those of them that only need room for their close message. */
  readonly #draining: Set<Connection> = new Set();
  /** Halves that a client may attach to. */
  readonly #accepted: Set<Connection> = new Set();
  readonly #deferred: DeferredRequests;

  constructor(core: WorkerCore, events: ConnectionEvents) {
    this.#core = core;
    this.#events = events;
    this.#deferred = new DeferredRequests(core.context.clock);
  }

  /** All connections, also those that only the peer has asked for. */
  get all(): readonly Connection[] {
    return this.#core.table.all;
  }

  /** Workers that are remembered. */
  get knownPeers(): number {
    return this.#peers.size;
  }

  /** The connection that a message names in its first word, if the message came from its peer. */
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
        this.#sayFirst(connection, { to: NO_ENDPOINT, code: WireupCode.REQUEST, number });
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
   * The half of the server of a connection that a client has asked for by a socket address: it is established once the client has attached.
   * @throws UcxError ERR_ADDRESS_MALFORMED; ERR_UNREACHABLE, also where no transport carries messages
   */
  accept(packed: Uint8Array): Connection {
    const connection = this.#makeApart(unpackWorkerAddress(packed));
    this.#accepted.add(connection);
    return connection;
  }

  /**
   * The half of the client: attaches to the half of the server with that number. Throws like {@link accept}.
   * @param windowBytes bytes that the server accepts before it asks for them
   */
  attach(packed: Uint8Array, remoteId: number, windowBytes: number): Connection {
    const connection = this.#makeApart(unpackWorkerAddress(packed));
    connection.remoteId = remoteId;
    connection.credit.open(windowBytes);
    this.#sayFirst(connection, { to: remoteId, code: WireupCode.ATTACH, number: 0 });
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

  /** The peer has closed a connection. */
  onClose(frame: AmFrame): void {
    const connection = this.of(frame);
    if (connection === undefined) return;
    connection.endedByPeer();
    const home = this.#homes.get(connection);
    const isUnasked = home?.peer.passive.get(home.number) === connection;
    if (isUnasked || this.#leaving.has(connection)) this.close(connection);
    else this.#events.onConnectionFailed(connection);
  }

  /** Sends the close message and closes a connection; if the peer has not answered yet, when it answers. No request waits on it any more. */
  close(connection: Connection): void {
    // The peer may have ended a connection that carried only answers, while its endpoint was being closed.
    if (this.#core.table.byId(connection.id) !== connection) return;
    connection.sendClose();
    // A failed peer does not answer; a client that attaches later is notified then.
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

  /** Closes connections that have sent their close message, and retries requests of peers that this process had no descriptors for. */
  progress(): void {
    for (const connection of this.#draining) {
      if (connection.isDrained) this.drop(connection);
    }
    for (const request of this.#deferred.takeDue()) this.#serve(request);
  }

  /** True while a closed connection has a message for its peer, or a peer waits for the half of its connection here. */
  get hasPending(): boolean {
    return this.#leaving.size > 0 || this.#deferred.count > 0;
  }

  /** Whether a connection is closed here, and waits to tell the peer. */
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
        // Its half is gone: the next one that is made here meets the next one there.
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
    // The half of a server that did not hear from its client in time: the client does not know that yet.
    const address = this.#addressIn(frame);
    if (connection === undefined && address !== undefined) this.#refuse(address, remoteId);
  }

  #onRequest(frame: AmFrame, { from: remoteId, number, windowBytes }: WireupFields): void {
    const address = this.#addressIn(frame);
    if (address === undefined) return;
    const isIgnored = !this.#serve({ packed: addressIn(frame), address, number, remoteId, windowBytes });
    if (isIgnored) frame.reject?.();
  }

  /** @returns false for a request that is not answered, because the peer cannot be reached */
  #serve(request: PeerRequest): boolean {
    const { packed, address, number, remoteId, windowBytes } = request;
    const known = this.#peers.find(packed);
    const own = known?.own.get(number) ?? known?.passive.get(number);
    if (own !== undefined) {
      this.#established(own, remoteId, windowBytes);
      // The peer takes this worker for another one, by a wrong address, and counts its connections from the start.
      if (own.remoteId !== remoteId) this.#refuse(address, remoteId);
      return true;
    }
    if (this.#unclaimed + this.#deferred.count >= UNCLAIMED_MAX) {
      this.#warn(`${UNCLAIMED_MAX} connections of peers wait to be used`);
      this.#refuse(address, remoteId);
      return true;
    }
    const connection = this.#accept(address);
    const refusal = connection instanceof Connection ? this.#answer(connection, request, known) : connection;
    if (refusal === undefined) return true;
    if (isLackOfResources(refusal.status)) {
      this.#core.warnings.warn(`a request to connect waits: ${refusal.message}`);
      this.#deferred.add(request);
      return true;
    }
    this.#warn(refusal.message);
    return false;
  }

  /** Answers a peer that asks to connect, and lists its connection; or drops the connection and returns why it cannot answer. */
  #answer(connection: Connection, request: PeerRequest, known: Peer | undefined): UcxError | undefined {
    const { packed, number, remoteId, windowBytes } = request;
    const status = this.#say(connection, { to: remoteId, code: WireupCode.REPLY, number });
    if (isFailure(status)) {
      this.drop(connection);
      return statusError(status, 'the answer cannot be sent');
    }
    this.#events.onAccepted();
    const peer = known ?? this.#peers.get(packed, number);
    peer.passive.set(number, connection);
    this.#unclaimed += 1;
    this.#homes.set(connection, { peer, number });
    this.#established(connection, remoteId, windowBytes);
    return undefined;
  }

  /** The address in a message of the worker that has it; undefined for any other, which is ignored. */
  #addressIn(frame: AmFrame): WorkerAddress | undefined {
    try {
      const address = unpackWorkerAddress(addressIn(frame));
      if (identitiesOf(this.#core.openIfaces, address.entries).includes(frame.source)) return address;
      this.#warn('it names the address of another worker');
    } catch (error) {
      if (!isUcxError(error)) throw error;
      this.#warn(error.message);
    }
    return undefined;
  }

  /** Tells a peer that its half of a connection has no counterpart. */
  #refuse(address: WorkerAddress, remoteId: number): void {
    if (this.#draining.size >= REFUSALS_MAX) return;
    const connection = this.#accept(address);
    if (!(connection instanceof Connection)) return;
    connection.remoteId = remoteId;
    this.close(connection);
  }

  #warn(why: string): void {
    this.#core.warnings.warn(`a request to connect is ignored: ${why}`);
  }

  #onReply(frame: AmFrame, { from: remoteId, windowBytes }: WireupFields): void {
    const connection = this.of(frame);
    // A half that was accepted may be attached to only by its client.
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

  /** The half here of a connection that a peer asks for; or why there is none. */
  #accept(address: WorkerAddress): Connection | UcxError {
    try {
      const connection = this.#make(address);
      if (connection.am !== undefined) return connection;
      this.drop(connection);
      return statusError(Status.UNREACHABLE, 'no transport carries messages back');
    } catch (error) {
      if (!isUcxError(error)) throw error;
      return error;
    }
  }

  #make(address: WorkerAddress): Connection {
    const { openIfaces, activity, context, table } = this.#core;
    table.checkRoom();
    const lanes = connectLanes(openIfaces, address.entries, activity, context.resources.rejections);
    const connection = new Connection(this.#core, table.takeId(), lanes);
    connection.sources = identitiesOf(openIfaces, address.entries);
    connection.peerWorkerId = Buffer.from(address.id).toString('latin1');
    connection.peerName = address.name;
    connection.isPeerManual = address.isManual;
    table.add(connection);
    if (endpointConnect.hasSubscribers && this.#core.observation.isTold)
      endpointConnect.publish(changeOf(connection, Status.OK));
    if (connection.protocolInfo !== undefined) tellMessageProtocols(context, connection, connection.protocolInfo);
    return connection;
  }

  /**
   * Sends the first wire-up message of a connection, which cannot exist without it.
   * @throws UcxError by the status of a transport that cannot; the connection is dropped then
   */
  /** The first message has the address of this worker. */
  #sayFirst(connection: Connection, said: Said): void {
    const status = this.#say(connection, said, this.#core.packedAddress);
    if (!isFailure(status)) return;
    this.drop(connection);
    throw statusError(status, 'connect: the first message cannot be sent');
  }

  #say(connection: Connection, { to, code, number }: Said, payload?: Uint8Array): Status {
    const { id: from, inbound } = connection;
    const header = writeWireup(to, { code, from, number, windowBytes: inbound.windowBytes });
    return connection.post(MessageId.WIREUP, header, payload);
  }
}

/** A message of wire-up: what it says, to which connection of the peer, about which connection between the two workers. */
interface Said {
  readonly to: number;
  readonly code: number;
  readonly number: number;
}

/** The worker address in a message of wire-up; nothing in one without. */
function addressIn(frame: AmFrame): Uint8Array {
  return payloadOf(frame, WIREUP_BYTES) ?? NO_BYTES;
}

function sameId(left: Uint8Array, right: Uint8Array): boolean {
  return left.every((byte, i) => byte === right[i]);
}
