/**
 * A listening socket of the connection manager, and its clients. It reads from a client as soon as that has connected, and keeps it until the program
 * accepts or rejects it; the client must confirm an acceptance. A client that violates the protocol, disconnects, or is too slow is dropped. The listener survives a lack of descriptors.
 */

import {
  Errno,
  errnoReason,
  isSyscallError,
  printAddress,
  ReadyFor,
  setKeepalive,
  tcpAccept,
  tcpClose,
  tcpListen,
  tcpLocalAddress,
  tcpRemoteAddress,
} from '../../../sys/index.ts';
import { UnauthenticatedPeers } from '../../../ucs/datastruct/unauthenticated-peers.ts';
import { systemRandomBytes } from '../../../ucs/sys/random.ts';
import { invalidParam, statusError } from '../../../ucs/type/error.ts';
import { isFailure, Status } from '../../../ucs/type/status.ts';
import {
  type ClientRequest,
  PRIVATE_DATA_BYTES_MAX,
  REASON_BYTES_MAX,
  type SocketAddress,
  type SocketListener,
} from '../../api/connection-manager.ts';
import { checkHandler } from '../../base/checks.ts';
import { sameSecret } from '../../base/key/keys.ts';
import { ReserveDescriptor } from '../sockets.ts';
import { type Channel, openChannel } from './channel.ts';
import { CmCounter, type CmShared, type CmTarget, Conversation, type Fault } from './conversation.ts';
import { CmFrameType, NONCE_BYTES, packFrame } from './layout.ts';

/** Time in nanoseconds for a rejected client to read the rejection and to disconnect. */
const LINGER_NS = 1e9;
/** Reason sent to an evicted client, which may connect again. */
const EVICTED = 'evicted: it sent no request, and newer clients wait';
/** Maximum number of bytes read from a rejected client. */
const LINGER_BYTES_MAX = 1 << 20;

const NO_DATA = new Uint8Array(0);

/** States of a client. */
const State = { AWAITING_REQUEST: 0, WAITING: 1, ACCEPTED: 2, REJECTED: 3, CLOSED: 4 } as const;
type State = (typeof State)[keyof typeof State];

/** The listeners and clients of one manager. */
export class Clients {
  readonly shared: CmShared;
  readonly listeners: Set<Listening> = new Set();
  readonly all: Set<ServerClient> = new Set();
  /** Clients that wait for the program. */
  readonly waiting: Set<ServerClient> = new Set();
  /** Clients that have not sent their request, and those that were rejected. */
  readonly unauthenticatedPeers: UnauthenticatedPeers<ServerClient>;

  constructor(shared: CmShared) {
    this.shared = shared;
    this.unauthenticatedPeers = new UnauthenticatedPeers(shared.config.MAX_CLIENTS);
  }

  add(client: ServerClient): void {
    this.all.add(client);
    this.unauthenticatedPeers.add(client, client.clientAddress.address);
  }

  /** Called when a client has sent its request. */
  onRequest(client: ServerClient): void {
    this.waiting.add(client);
    this.unauthenticatedPeers.delete(client);
  }

  /** Called when a client was rejected. Keeps the connection open until the client has read the rejection. */
  linger(client: ServerClient): void {
    this.unauthenticatedPeers.delete(client);
    this.unauthenticatedPeers.add(client, client.clientAddress.address);
  }

  delete(client: ServerClient): void {
    this.unauthenticatedPeers.delete(client);
    this.all.delete(client);
  }
}

/** Addresses of both ends of the connection of a client. */
export interface ClientAddresses {
  readonly clientAddress: SocketAddress;
  readonly serverAddress: SocketAddress;
}

/** A client. */
export class ServerClient implements ClientRequest, CmTarget {
  readonly clientAddress: SocketAddress;
  readonly serverAddress: SocketAddress;
  privateData: Uint8Array = NO_DATA;
  deadlineNs: number;
  readonly #clients: Clients;
  readonly #shared: CmShared;
  readonly #conversation: Conversation;
  readonly #onRequest: (request: ClientRequest) => void;
  readonly #nonce: Uint8Array = systemRandomBytes(NONCE_BYTES);
  #onSettled: (status: Status) => void = () => undefined;
  #state: State = State.AWAITING_REQUEST;
  #discarded = 0;

  /** @throws SyscallError ENOSPC; the channel is closed then */
  constructor(
    clients: Clients,
    channel: Channel,
    addresses: ClientAddresses,
    onRequest: (request: ClientRequest) => void,
  ) {
    const { shared } = clients;
    this.#clients = clients;
    this.#shared = shared;
    this.clientAddress = addresses.clientAddress;
    this.serverAddress = addresses.serverAddress;
    this.#onRequest = onRequest;
    this.deadlineNs = shared.clock.nowNs() + shared.config.TIMEOUT;
    this.#conversation = new Conversation(shared.watch, channel, this);
  }

  /** Sends the hello of the listener. Returns like {@link onReady}. */
  sendHello(): number {
    this.#conversation.send(packFrame(CmFrameType.HELLO, Status.OK, this.#nonce));
    return this.onReady();
  }

  get live(): boolean {
    return this.#state === State.WAITING;
  }

  accept(privateData: Uint8Array, onSettled: (status: Status) => void): void {
    if (!(privateData instanceof Uint8Array) || privateData.byteLength > PRIVATE_DATA_BYTES_MAX) {
      throw invalidParam('privateData', `must be a Uint8Array of at most ${PRIVATE_DATA_BYTES_MAX} bytes`, privateData);
    }
    checkHandler(onSettled, 'onSettled');
    if (!this.live)
      throw statusError(
        Status.NOT_CONNECTED,
        'cannot accept this client: it has disconnected, or was accepted or rejected before',
      );
    this.#onSettled = onSettled;
    this.#shared.counters.count(CmCounter.ACCEPTED);
    this.#answer(State.ACCEPTED, this.#shared.config.TIMEOUT);
    this.#conversation.send(packFrame(CmFrameType.ACCEPT, Status.OK, privateData));
  }

  reject(status: Status, reason: string): void {
    if (!Number.isInteger(status) || !isFailure(status)) throw invalidParam('status', 'must be a failure', status);
    if (typeof reason !== 'string') throw invalidParam('reason', 'must be a string', reason);
    if (!this.live) return;
    this.#shared.counters.count(CmCounter.REJECTED);
    this.#reject(status, reason);
  }

  onReady(): number {
    const fault = this.#conversation.open();
    if (fault !== undefined) return this.#drop(fault);
    this.#conversation.flush();
    switch (this.#state) {
      case State.AWAITING_REQUEST:
        return this.#receiveRequest();
      case State.WAITING:
        return this.#expectSilence();
      case State.ACCEPTED:
        return this.#receiveConfirmation();
      case State.REJECTED:
        return this.#awaitEnd();
      default:
        return 0;
    }
  }

  onDeadline(): number {
    if (this.#state === State.AWAITING_REQUEST)
      return this.#drop({ status: Status.TIMED_OUT, reason: 'did not send its request in time' });
    if (this.#state === State.ACCEPTED) {
      return this.#drop({ status: Status.TIMED_OUT, reason: 'did not confirm in time' });
    }
    this.close();
    return 0;
  }

  /** Disconnects a client that has not sent its request, unless the request has arrived by now. Returns like {@link onReady}. */
  evict(): number {
    const count = this.onReady();
    if (this.#state !== State.AWAITING_REQUEST && this.#state !== State.REJECTED) return count;
    if (this.#state === State.AWAITING_REQUEST) {
      this.#shared.log.warn(`${this.#name}: ${EVICTED}`);
      this.#shared.counters.count(CmCounter.CLIENTS_SENT_AWAY);
      this.#conversation.send(packFrame(CmFrameType.REJECT, Status.NO_RESOURCE, Buffer.from(EVICTED)));
    }
    this.close();
    return count;
  }

  /** Closes the connection without sending a rejection or reporting it. Idempotent. */
  close(): void {
    if (this.#state === State.CLOSED) return;
    if (this.live) this.#clients.waiting.delete(this);
    this.#state = State.CLOSED;
    this.#conversation.close();
    this.#clients.delete(this);
  }

  #receiveRequest(): number {
    const frame = this.#conversation.receive(this.#shared.received);
    if (frame === 'waiting') return 0;
    if (frame === 'ended')
      return this.#drop({ status: Status.CONNECTION_RESET, reason: 'disconnected before it sent its request' });
    if ('reason' in frame) return this.#drop(frame);
    if (frame.type !== CmFrameType.REQUEST) {
      return this.#drop({
        status: Status.INVALID_PARAM,
        reason: `sent a frame of type ${frame.type} instead of a request`,
      });
    }
    if (!sameSecret(frame.payload.subarray(0, NONCE_BYTES), this.#nonce)) {
      return this.#drop({ status: Status.INVALID_PARAM, reason: 'repeated the request of another connection' });
    }
    const waitingClients = this.#clients.waiting.size;
    if (waitingClients >= this.#shared.config.MAX_REQUESTS) {
      this.#shared.log.warn(
        `${this.#name}: rejected, because ${waitingClients} connection requests are pending: accept or reject them, or raise UCX_TCP_CM_MAX_REQUESTS`,
      );
      this.#shared.counters.count(CmCounter.REQUESTS_BUSY);
      this.#reject(Status.BUSY, `${waitingClients} connection requests are pending`);
      return 0;
    }
    this.#state = State.WAITING;
    this.deadlineNs = Number.POSITIVE_INFINITY;
    this.privateData = frame.payload.subarray(NONCE_BYTES);
    this.#clients.onRequest(this);
    this.#shared.counters.count(CmCounter.REQUESTS);
    this.#onRequest(this);
    return 1;
  }

  #expectSilence(): number {
    const silence = this.#conversation.silence(this.#shared.received);
    if (silence === 'waiting') return 0;
    return this.#drop(
      silence === 'ended'
        ? { status: Status.CONNECTION_RESET, reason: 'disconnected before it was accepted or rejected' }
        : silence,
    );
  }

  #receiveConfirmation(): number {
    const frame = this.#conversation.receive(this.#shared.received);
    if (frame === 'waiting') return 0;
    if (frame === 'ended')
      return this.#drop({ status: Status.CONNECTION_RESET, reason: 'disconnected before it confirmed' });
    if ('reason' in frame) return this.#drop(frame);
    if (frame.type !== CmFrameType.CONFIRM) {
      return this.#drop({
        status: Status.INVALID_PARAM,
        reason: `sent a frame of type ${frame.type} instead of a confirmation`,
      });
    }
    return this.#settle(frame.status);
  }

  #awaitEnd(): number {
    for (;;) {
      const discarded = this.#conversation.discard(this.#shared.received);
      if (discarded === 'waiting') return 0;
      this.#discarded += typeof discarded === 'number' ? discarded : Number.POSITIVE_INFINITY;
      if (this.#discarded <= LINGER_BYTES_MAX) continue;
      this.close();
      return 0;
    }
  }

  #answer(state: State, timeoutNs: number): void {
    this.#clients.waiting.delete(this);
    this.#await(state, timeoutNs);
  }

  #await(state: State, timeoutNs: number): void {
    this.#state = state;
    this.deadlineNs = this.#shared.clock.nowNs() + timeoutNs;
    this.#shared.watch.due(this.deadlineNs);
  }

  #reject(status: Status, reason: string): void {
    if (this.live) this.#clients.waiting.delete(this);
    this.#clients.linger(this);
    this.#await(State.REJECTED, LINGER_NS);
    const text = Buffer.from(reason, 'utf8').subarray(0, REASON_BYTES_MAX);
    this.#conversation.send(packFrame(CmFrameType.REJECT, status, text));
  }

  /** Ends the pending confirmation of an accepted client. */
  #settle(status: Status): number {
    this.close();
    this.#onSettled(status);
    return 1;
  }

  #drop({ status, reason }: Fault): number {
    this.#shared.counters.count(CmCounter.CLIENTS_DROPPED);
    const message = `${this.#name}: ${reason}`;
    // A client that disconnects does not violate the protocol.
    if (status === Status.CONNECTION_RESET) this.#shared.log.diag(message);
    else this.#shared.log.warn(`${message}; it is dropped`);
    if (this.#state === State.ACCEPTED) {
      return this.#settle(status === Status.TIMED_OUT ? status : Status.CONNECTION_RESET);
    }
    const isAnswerable = this.#state === State.AWAITING_REQUEST || this.#state === State.WAITING;
    if (isAnswerable && status !== Status.CONNECTION_RESET && this.#conversation.isOpen) {
      this.#reject(status, `invalid connection request: ${reason}`);
    } else this.close();
    return 0;
  }

  get #name(): string {
    return `client ${printAddress(this.clientAddress)} of ${printAddress(this.serverAddress)}`;
  }
}

/** Maximum number of connections accepted in one call, so that other descriptors are served too. */
const ACCEPTS_MAX = 64;
/** Pause of a listener that can neither accept nor reject clients, in nanoseconds. */
const PAUSE_NS = 100e6;
/** Seconds between two keepalive probes to a silent client, and the maximum number without an answer. */
const KEEPALIVE_S = 10;
const KEEPALIVE_PROBES = 3;

const OUT_OF_DESCRIPTORS: readonly number[] = [Errno.EMFILE, Errno.ENFILE];
const NO_CLIENT: readonly number[] = [Errno.EAGAIN, Errno.EINTR];
/** Errors of a connection that failed before it was accepted; the next one may succeed: see accept(2). */
const LOST: readonly number[] = [Errno.ECONNABORTED, Errno.ENETUNREACH, Errno.EHOSTUNREACH, Errno.EPERM];

/** A listening socket. */
export class Listening implements SocketListener, CmTarget {
  readonly address: SocketAddress;
  deadlineNs: number = Number.POSITIVE_INFINITY;
  readonly #clients: Clients;
  readonly #shared: CmShared;
  readonly #onRequest: (request: ClientRequest) => void;
  readonly #fd: number;
  readonly #token: number;
  readonly #reserve: ReserveDescriptor;
  #closed = false;

  /** @throws UcxError ERR_INVALID_PARAM; SyscallError */
  constructor(clients: Clients, address: SocketAddress, backlog: number, onRequest: (request: ClientRequest) => void) {
    const { shared } = clients;
    this.#clients = clients;
    this.#shared = shared;
    this.#onRequest = (request) => {
      // The client was accepted before the listener closed, and its request has arrived only now.
      if (this.#closed) request.reject(Status.REJECTED, 'the listener has closed');
      else onRequest(request);
    };
    this.#fd = tcpListen(address, backlog, shared.config.REUSEADDR);
    let reserve: ReserveDescriptor | undefined;
    try {
      this.address = tcpLocalAddress(this.#fd);
      reserve = new ReserveDescriptor(this.#fd);
      this.#reserve = reserve;
      this.#token = shared.watch.add(this.#fd, ReadyFor.READ, this);
    } catch (error) {
      reserve?.close();
      tcpClose(this.#fd);
      throw error;
    }
    clients.listeners.add(this);
  }

  close(): void {
    if (this.#closed) return;
    this.#closed = true;
    this.#shared.watch.remove(this.#fd, this.#token);
    this.#reserve.close();
    tcpClose(this.#fd);
    this.#clients.listeners.delete(this);
  }

  onReady(): number {
    let count = 0;
    for (let i = 0; i < ACCEPTS_MAX && !this.#closed; i++) {
      const fd = tcpAccept(this.#fd);
      if (fd >= 0) count += this.#take(fd);
      else if (NO_CLIENT.includes(-fd) || !this.#continuesAfter(-fd)) break;
    }
    return count;
  }

  /** Ends the pause. */
  onDeadline(): number {
    this.deadlineNs = Number.POSITIVE_INFINITY;
    this.#shared.watch.modify(this.#fd, ReadyFor.READ, this.#token);
    return 0;
  }

  #take(fd: number): number {
    const channel = openChannel(fd, this.#shared, 'accepting');
    try {
      const clientAddress = tcpRemoteAddress(fd);
      const { unauthenticatedPeers } = this.#clients;
      const { address } = clientAddress;
      let count = 0;
      for (
        let oldest = unauthenticatedPeers.excess(address);
        oldest !== undefined;
        oldest = unauthenticatedPeers.excess(address)
      ) {
        count += oldest.evict();
      }
      // The program closed the listener in its callback for a request.
      if (this.#closed) {
        channel.close();
        return count;
      }
      const addresses = { clientAddress, serverAddress: tcpLocalAddress(fd) };
      // Keepalive detects a waiting client that has vanished without closing the connection.
      setKeepalive(fd, KEEPALIVE_S, KEEPALIVE_S, KEEPALIVE_PROBES);
      const client = new ServerClient(this.#clients, channel, addresses, this.#onRequest);
      this.#shared.counters.count(CmCounter.CLIENTS);
      this.#clients.add(client);
      return count + client.sendHello();
    } catch (error) {
      // The client has disconnected, or cannot be watched.
      channel.close();
      if (!isSyscallError(error)) throw error;
      this.#shared.log.diag(`listener ${printAddress(this.address)} lost a new client: ${error.message}`);
      return 0;
    }
  }

  /** Handles an error of accept; returns whether the next connection can be accepted. */
  #continuesAfter(code: number): boolean {
    if (LOST.includes(code)) return true;
    const { log, watch, clock, counters } = this.#shared;
    const left = OUT_OF_DESCRIPTORS.includes(code) ? this.#reserve.acceptAndClose() : -code;
    // Without descriptors accept fails before it checks whether a client waits.
    if (NO_CLIENT.includes(-left)) return false;
    if (left >= 0) {
      counters.count(CmCounter.CLIENTS_SENT_AWAY);
      log.warn(
        `listener ${printAddress(this.address)} disconnected a new client: ${errnoReason(code)}; raise the limit of open files`,
      );
      return true;
    }
    log.warn(
      `listener ${printAddress(this.address)} does not accept clients for ${PAUSE_NS / 1e9} s: ${errnoReason(code)}`,
    );
    // Otherwise the event set would report readiness continuously.
    watch.modify(this.#fd, 0, this.#token);
    this.deadlineNs = clock.nowNs() + PAUSE_NS;
    watch.due(this.deadlineNs);
    return false;
  }
}
