/**
 * The connections of one worker: made by the application or by a peer that connects, paired in the order in which both ends made them, and found by
 * the number that messages name. It moves no data.
 *
 * The n-th endpoint that a worker makes to another is one connection with the n-th endpoint that the other makes back. Whoever is first asks with
 * its worker address; the other end answers when its worker makes progress, and has its half from then on, whether the application there asks for it
 * or not. Two ends that ask at the same time answer each other by their questions.
 *
 * Connections that were agreed on by socket addresses (listener.ts) are outside of this numbering: the server makes its half and tells its number, and the
 * client's half attaches to it, as the first message between them.
 */

import { endpointConnect } from '../../ucs/diagnostics.ts';
import { isUcxError, statusError } from '../../ucs/error.ts';
import type { Log } from '../../ucs/log.ts';
import { Status } from '../../ucs/status.ts';
import type { AmFrame } from '../../uct/api/iface.ts';
import { type ExplainContext, tellMessageProtocols } from '../core/explain-transfer.ts';
import type { Activity } from '../core/lane.ts';
import { MessageId, NO_ENDPOINT, WireupCode } from '../core/message.ts';
import { type ConnectionOwner, changeOf, PeerConnection } from '../core/peer-connection.ts';
import type { Rejection } from '../core/resource-filter.ts';
import { connectLanes, type OpenIface } from './lanes.ts';
import { unpackWorkerAddress, type WorkerAddress } from './worker-address.ts';

/** Connections of one worker at most. */
export const CONNECTIONS_MAX = 65_535;
/** Connections of peers that nobody here has asked for, at most; requests beyond it are ignored with a warning. */
const UNCLAIMED_MAX = 4096;
const SLOT_BITS = 16;
const SLOT_MASK = 0xffff;
const GENERATION_MASK = 0x7fff;

const WIREUP_WORDS = 4;
const HEADER = new Int32Array(WIREUP_WORDS);

/** One other worker. */
interface Peer {
  /** Number of the next connection that this end makes. */
  next: number;
  /** Connections that this end made, by number, and those that the peer made and nobody here asked for yet. */
  readonly own: Map<number, PeerConnection>;
  readonly passive: Map<number, PeerConnection>;
}

/** What the connections need of their worker. */
export interface ConnectionsOwner extends ConnectionOwner {
  readonly context: ExplainContext & { readonly resources: { readonly rejections: readonly Rejection[] } };
  readonly openIfaces: readonly OpenIface[];
  readonly activity: Activity;
  readonly packedAddress: Uint8Array;
  readonly workerId: Uint8Array;
  readonly log: Log;
  /** A peer has made a connection. */
  onAccepted(): void;
  /** A connection is gone. */
  onDropped(connection: PeerConnection): void;
  /** A connection has ended because the peer closed it, or is gone. */
  onConnectionFailed(connection: PeerConnection): void;
}

/** The connections. */
export class Connections {
  readonly #owner: ConnectionsOwner;
  /** By the slot in their id; slot 0 is nobody. */
  readonly #slots: (PeerConnection | undefined)[] = [undefined];
  readonly #freeSlots: number[] = [];
  /** In the upper bits of ids: a late message does not reach the next connection of its slot. */
  #generation = 0;
  readonly #peers: Map<string, Peer> = new Map();
  /** Where a connection is listed, for closing. */
  readonly #homes: Map<PeerConnection, { readonly peer: Peer; readonly number: number }> = new Map();
  /** Closed before the peer had answered: they wait for the answer, to take leave. */
  readonly #leaving: Set<PeerConnection> = new Set();
  /** Halves that a client may attach to, with the id of its worker. */
  readonly #accepted: Map<PeerConnection, Uint8Array> = new Map();

  constructor(owner: ConnectionsOwner) {
    this.#owner = owner;
  }

  /** All connections, also those that only the peer has asked for. */
  get all(): readonly PeerConnection[] {
    return this.#slots.filter((connection) => connection !== undefined);
  }

  /** Connections that only peers have asked for. */
  get #unclaimed(): number {
    let count = 0;
    for (const { passive } of this.#peers.values()) count += passive.size;
    return count;
  }

  byId(id: number): PeerConnection | undefined {
    const connection = this.#slots[id & SLOT_MASK];
    return connection !== undefined && connection.id === id ? connection : undefined;
  }

  /**
   * The next connection to a worker.
   * @throws UcxError ERR_ADDRESS_MALFORMED, ERR_UNREACHABLE
   */
  connect(packed: Uint8Array): PeerConnection {
    const address = unpackWorkerAddress(packed);
    if (sameId(address.id, this.#owner.workerId)) return this.#loopback(address);
    const peer = this.#peerOf(address.id);
    const number = peer.next;
    const passive = peer.passive.get(number);
    if (passive !== undefined) {
      peer.next += 1;
      peer.passive.delete(number);
      peer.own.set(number, passive);
      return passive;
    }
    const connection = this.#make(address);
    peer.next += 1;
    peer.own.set(number, connection);
    this.#homes.set(connection, { peer, number });
    if (connection.am !== undefined) {
      this.#say(connection, NO_ENDPOINT, WireupCode.REQUEST, number, this.#owner.packedAddress);
    }
    return connection;
  }

  /**
   * The half of the server of a connection that a client has asked for by a socket address: it stands once the client has attached.
   * @throws UcxError ERR_ADDRESS_MALFORMED; ERR_UNREACHABLE, also where no transport carries messages
   */
  accept(packed: Uint8Array): PeerConnection {
    const address = unpackWorkerAddress(packed);
    const connection = this.#makeApart(address);
    this.#accepted.set(connection, address.id);
    return connection;
  }

  /** The half of the client: attaches to the half of the server with that number. Throws like {@link accept}. */
  attach(packed: Uint8Array, remoteId: number): PeerConnection {
    const connection = this.#makeApart(unpackWorkerAddress(packed));
    connection.remoteId = remoteId;
    this.#say(connection, remoteId, WireupCode.ATTACH, 0, this.#owner.workerId);
    return connection;
  }

  /** A message of another worker's connections. */
  onMessage({ words, bytes, offset, byteLength }: AmFrame): void {
    const at = offset >> 2;
    const code = words[at + 1]!;
    const remoteId = words[at + 2]!;
    if (remoteId <= NO_ENDPOINT) return;
    const to = words[at]!;
    if (code === WireupCode.REPLY) this.#onReply(to, remoteId);
    else if (code === WireupCode.ATTACH) {
      const start = offset + WIREUP_WORDS * 4;
      this.#onAttach(bytes.subarray(start, offset + byteLength), to, remoteId);
    } else if (code === WireupCode.REQUEST) {
      const start = offset + WIREUP_WORDS * 4;
      this.#onRequest(bytes.slice(start, offset + byteLength), words[at + 3]!, remoteId);
    }
  }

  /** The peer has closed a connection. */
  onClose({ words, offset }: AmFrame): void {
    const connection = this.byId(words[offset >> 2]!);
    if (connection === undefined) return;
    connection.fail(Status.CONNECTION_RESET);
    const home = this.#homes.get(connection);
    const isUnasked = home?.peer.passive.get(home.number) === connection;
    if (isUnasked || this.#leaving.has(connection)) this.close(connection);
    else this.#owner.onConnectionFailed(connection);
  }

  /** Takes leave of the peer and closes a connection. Nothing waits on it any more. */
  close(connection: PeerConnection): void {
    const waitsForReply =
      connection.am !== undefined && connection.remoteId === NO_ENDPOINT && connection.failure === Status.OK;
    if (waitsForReply && !this.#leaving.has(connection)) {
      this.#leaving.add(connection);
      return;
    }
    // A loopback with one half only would tell itself.
    const hasPeer = !connection.isLoopback || connection.remoteId !== connection.id;
    if (connection.am !== undefined && hasPeer && connection.failure === Status.OK) {
      HEADER[0] = connection.remoteId;
      HEADER[1] = 0;
      connection.post(MessageId.CLOSE, HEADER, 2);
    }
    if (connection.isDrained || connection.failure !== Status.OK) this.drop(connection);
    else this.#leaving.add(connection);
  }

  /** Closes what was waiting to take leave and has done so; called now and then by progress. */
  finishLeaving(): void {
    for (const connection of this.#leaving) {
      if (connection.remoteId !== NO_ENDPOINT && connection.isDrained) this.drop(connection);
    }
  }

  /** True while a closed connection has something to say to its peer. */
  get isLeaving(): boolean {
    return this.#leaving.size > 0;
  }

  /** Closes a connection without a word. */
  drop(connection: PeerConnection): void {
    this.#leaving.delete(connection);
    this.#accepted.delete(connection);
    const home = this.#homes.get(connection);
    if (home !== undefined) {
      const { peer, number } = home;
      if (peer.own.get(number) === connection) peer.own.delete(number);
      if (peer.passive.get(number) === connection) {
        peer.passive.delete(number);
        // Its half is gone: the next one that is made here meets the next one there.
        if (peer.next === number) peer.next += 1;
      }
      this.#homes.delete(connection);
    }
    if (this.byId(connection.id) === connection) {
      this.#slots[connection.id & SLOT_MASK] = undefined;
      this.#freeSlots.push(connection.id & SLOT_MASK);
    }
    connection.close();
    this.#owner.onDropped(connection);
  }

  #loopback(address: WorkerAddress): PeerConnection {
    const connection = this.#make(address);
    connection.remoteId = connection.id;
    connection.isLoopback = true;
    return connection;
  }

  #makeApart(address: WorkerAddress): PeerConnection {
    const connection = this.#make(address);
    try {
      connection.checkMessages();
    } catch (error) {
      this.drop(connection);
      throw error;
    }
    connection.isLoopback = sameId(address.id, this.#owner.workerId);
    return connection;
  }

  #onAttach(workerId: Uint8Array, id: number, remoteId: number): void {
    const connection = this.byId(id);
    const awaited = connection === undefined ? undefined : this.#accepted.get(connection);
    if (awaited === undefined || !sameId(awaited, workerId)) return;
    this.#accepted.delete(connection!);
    this.#established(connection!, remoteId);
  }

  #onRequest(packed: Uint8Array, number: number, remoteId: number): void {
    let address: WorkerAddress;
    try {
      address = unpackWorkerAddress(packed);
    } catch (error) {
      this.#owner.log.warn(`a request to connect is ignored: ${String(error)}`);
      return;
    }
    const peer = this.#peerOf(address.id);
    const own = peer.own.get(number) ?? peer.passive.get(number);
    if (own !== undefined) {
      this.#established(own, remoteId);
      return;
    }
    if (this.#unclaimed >= UNCLAIMED_MAX) {
      this.#owner.log.warn(`a request to connect is ignored: ${UNCLAIMED_MAX} connections of peers wait to be used`);
      return;
    }
    const connection = this.#accept(address);
    if (connection === undefined) return;
    this.#owner.onAccepted();
    peer.passive.set(number, connection);
    this.#homes.set(connection, { peer, number });
    this.#established(connection, remoteId);
    this.#say(connection, remoteId, WireupCode.REPLY, number);
  }

  #onReply(id: number, remoteId: number): void {
    const connection = this.byId(id);
    // To a half that was accepted, only its client attaches.
    if (connection !== undefined && !this.#accepted.has(connection)) this.#established(connection, remoteId);
  }

  #established(connection: PeerConnection, remoteId: number): void {
    if (connection.remoteId !== NO_ENDPOINT) return;
    connection.remoteId = remoteId;
    if (this.#leaving.has(connection)) this.close(connection);
  }

  /** The half of a connection that a peer asks for; undefined when there is no way back. */
  #accept(address: WorkerAddress): PeerConnection | undefined {
    try {
      const connection = this.#make(address);
      if (connection.am !== undefined) return connection;
      this.drop(connection);
      this.#owner.log.warn('a request to connect is ignored: no transport carries messages back');
    } catch (error) {
      if (!isUcxError(error)) throw error;
      this.#owner.log.warn(`a request to connect is ignored: ${error.message}`);
    }
    return undefined;
  }

  #make(address: WorkerAddress): PeerConnection {
    if (this.#freeSlots.length === 0 && this.#slots.length > SLOT_MASK) {
      throw statusError(Status.EXCEEDS_LIMIT, `connect: a worker has at most ${CONNECTIONS_MAX} connections`);
    }
    const { openIfaces, activity, context } = this.#owner;
    const lanes = connectLanes(openIfaces, address.entries, activity, context.resources.rejections);
    const slot = this.#freeSlots.pop() ?? this.#slots.length;
    this.#generation = (this.#generation + 1) & GENERATION_MASK;
    const connection = new PeerConnection(this.#owner, (this.#generation << SLOT_BITS) | slot, lanes);
    this.#slots[slot] = connection;
    if (endpointConnect.hasSubscribers) endpointConnect.publish(changeOf(connection, Status.OK));
    if (connection.protocolInfo !== undefined) tellMessageProtocols(context, connection, connection.protocolInfo);
    return connection;
  }

  #peerOf(id: Uint8Array): Peer {
    const key = Buffer.from(id).toString('hex');
    const known = this.#peers.get(key);
    if (known !== undefined) return known;
    const peer: Peer = { next: 0, own: new Map(), passive: new Map() };
    this.#peers.set(key, peer);
    return peer;
  }

  #say(connection: PeerConnection, to: number, code: number, number: number, payload?: Uint8Array): void {
    HEADER[0] = to;
    HEADER[1] = code;
    HEADER[2] = connection.id;
    HEADER[3] = number;
    connection.post(MessageId.WIREUP, HEADER, WIREUP_WORDS, payload);
  }
}

function sameId(left: Uint8Array, right: Uint8Array): boolean {
  return left.every((byte, i) => byte === right[i]);
}
