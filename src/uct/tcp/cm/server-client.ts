/**
 * A client of a listener, from its connection on: reads its request, keeps it until the program answers, and reads the confirmation of the client. A
 * client that violates the protocol, disconnects, or is too slow is dropped.
 */

import { printAddress } from '../../../sys/index.ts';
import type { LimitedLog } from '../../../ucs/debug/limited-log.ts';
import type { Clock } from '../../../ucs/sys/clock.ts';
import { systemRandomBytes } from '../../../ucs/sys/random.ts';
import { invalidParam, statusError } from '../../../ucs/type/error.ts';
import { isFailure, Status } from '../../../ucs/type/status.ts';
import {
  type ClientRequest,
  PRIVATE_DATA_BYTES_MAX,
  REASON_BYTES_MAX,
  type SocketAddress,
} from '../../api/connection-manager.ts';
import { checkHandler } from '../../base/checks.ts';
import { sameSecret } from '../../base/key/keys.ts';
import type { Channel } from './channel.ts';
import type { TcpCmConfig } from './config.ts';
import { Conversation, type Fault } from './conversation.ts';
import { CmCounter, type CmCounters } from './counters.ts';
import { FrameType, NONCE_BYTES, packFrame } from './frame.ts';
import type { Watch, Watched } from './watch.ts';

/** Time in nanoseconds for a rejected client to read the rejection and to disconnect. */
const LINGER_NS = 1e9;
/** Reason sent to an evicted client, which may connect again. */
const EVICTED = 'others have come after it, and it has not sent its request';
/** Maximum number of bytes read from a rejected client. */
const LINGER_BYTES_MAX = 1 << 20;

const NO_DATA = new Uint8Array(0);

/** Progress of a client. */
const State = { AWAITING_REQUEST: 0, WAITING: 1, ACCEPTED: 2, REJECTED: 3, CLOSED: 4 } as const;
type State = (typeof State)[keyof typeof State];

/** The manager behind a client. */
export interface ClientOwner {
  readonly watch: Watch;
  readonly clock: Clock;
  readonly log: LimitedLog;
  readonly config: TcpCmConfig;
  readonly counters: CmCounters;
  /** Memory to receive into. Its contents are valid during a call only. */
  readonly received: Uint8Array;
  /** Clients that wait for the program. */
  readonly waitingClients: number;
  /** A client has sent its request. */
  clientWaits(client: ServerClient): void;
  /** The program has answered a client, or the client has disconnected. */
  clientAnswered(client: ServerClient): void;
  /** A client was rejected. The connection stays open for the time it needs to read the rejection. */
  clientLingers(client: ServerClient): void;
  clientGone(client: ServerClient): void;
}

/** Addresses of both ends of the connection of a client. */
export interface ClientAddresses {
  readonly clientAddress: SocketAddress;
  readonly serverAddress: SocketAddress;
}

/** A client. */
export class ServerClient implements ClientRequest, Watched {
  readonly clientAddress: SocketAddress;
  readonly serverAddress: SocketAddress;
  privateData: Uint8Array = NO_DATA;
  deadlineNs: number;
  readonly #owner: ClientOwner;
  readonly #conversation: Conversation;
  readonly #onRequest: (request: ClientRequest) => void;
  readonly #nonce: Uint8Array = systemRandomBytes(NONCE_BYTES);
  #onSettled: (status: Status) => void = () => undefined;
  #state: State = State.AWAITING_REQUEST;
  #discarded = 0;

  /** @throws SyscallError ENOSPC; the channel is closed then */
  constructor(
    owner: ClientOwner,
    channel: Channel,
    addresses: ClientAddresses,
    onRequest: (request: ClientRequest) => void,
  ) {
    this.#owner = owner;
    this.clientAddress = addresses.clientAddress;
    this.serverAddress = addresses.serverAddress;
    this.#onRequest = onRequest;
    this.deadlineNs = owner.clock.nowNs() + owner.config.TIMEOUT;
    this.#conversation = new Conversation(owner.watch, channel, this);
  }

  /** Sends the hello of the listener. Returns like {@link onReady}. */
  sendHello(): number {
    this.#conversation.send(packFrame(FrameType.HELLO, Status.OK, this.#nonce));
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
    if (!this.live) throw statusError(Status.NOT_CONNECTED, 'accept a client that has gone away or was answered');
    this.#onSettled = onSettled;
    this.#owner.counters.count(CmCounter.ACCEPTED);
    this.#answer(State.ACCEPTED, this.#owner.config.TIMEOUT);
    this.#conversation.send(packFrame(FrameType.ACCEPT, Status.OK, privateData));
  }

  reject(status: Status, reason: string): void {
    if (!Number.isInteger(status) || !isFailure(status)) throw invalidParam('status', 'must be a failure', status);
    if (typeof reason !== 'string') throw invalidParam('reason', 'must be a text', reason);
    if (!this.live) return;
    this.#owner.counters.count(CmCounter.REJECTED);
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
      return this.#drop({ status: Status.TIMED_OUT, reason: 'took too long to ask' });
    if (this.#state === State.ACCEPTED) {
      return this.#drop({ status: Status.TIMED_OUT, reason: 'took too long to confirm' });
    }
    this.close();
    return 0;
  }

  /** Disconnects a client that has not sent its request, unless the request has arrived by now. Returns like {@link onReady}. */
  evict(): number {
    const count = this.onReady();
    if (this.#state !== State.AWAITING_REQUEST && this.#state !== State.REJECTED) return count;
    if (this.#state === State.AWAITING_REQUEST) {
      this.#owner.log.warn(`${this.#name}: rejected, as ${EVICTED}`);
      this.#owner.counters.count(CmCounter.CLIENTS_SENT_AWAY);
      this.#conversation.send(packFrame(FrameType.REJECT, Status.NO_RESOURCE, Buffer.from(EVICTED)));
    }
    this.close();
    return count;
  }

  /** Closes the connection without a rejection and without a report. Idempotent. */
  close(): void {
    if (this.#state === State.CLOSED) return;
    if (this.live) this.#owner.clientAnswered(this);
    this.#state = State.CLOSED;
    this.#conversation.close();
    this.#owner.clientGone(this);
  }

  #receiveRequest(): number {
    const frame = this.#conversation.receive(this.#owner.received);
    if (frame === 'waiting') return 0;
    if (frame === 'ended') return this.#drop({ status: Status.CONNECTION_RESET, reason: 'has gone before it asked' });
    if ('reason' in frame) return this.#drop(frame);
    if (frame.type !== FrameType.REQUEST) {
      return this.#drop({ status: Status.INVALID_PARAM, reason: `began with a frame of type ${frame.type}` });
    }
    if (!sameSecret(frame.payload.subarray(0, NONCE_BYTES), this.#nonce)) {
      return this.#drop({ status: Status.INVALID_PARAM, reason: 'sent a request of another connection' });
    }
    const { waitingClients, config } = this.#owner;
    if (waitingClients >= config.MAX_REQUESTS) {
      this.#owner.log.warn(`${this.#name}: rejected, as ${waitingClients} requests to connect wait for an answer`);
      this.#owner.counters.count(CmCounter.REQUESTS_BUSY);
      this.#reject(Status.BUSY, `${waitingClients} requests to connect wait for an answer`);
      return 0;
    }
    this.#state = State.WAITING;
    this.deadlineNs = Number.POSITIVE_INFINITY;
    this.privateData = frame.payload.subarray(NONCE_BYTES);
    this.#owner.clientWaits(this);
    this.#owner.counters.count(CmCounter.REQUESTS);
    this.#onRequest(this);
    return 1;
  }

  #expectSilence(): number {
    const silence = this.#conversation.silence(this.#owner.received);
    if (silence === 'waiting') return 0;
    return this.#drop(
      silence === 'ended' ? { status: Status.CONNECTION_RESET, reason: 'has gone before it was answered' } : silence,
    );
  }

  #receiveConfirmation(): number {
    const frame = this.#conversation.receive(this.#owner.received);
    if (frame === 'waiting') return 0;
    if (frame === 'ended')
      return this.#drop({ status: Status.CONNECTION_RESET, reason: 'has gone before it confirmed' });
    if ('reason' in frame) return this.#drop(frame);
    if (frame.type !== FrameType.CONFIRM) {
      return this.#drop({ status: Status.INVALID_PARAM, reason: `sent a frame of type ${frame.type} to confirm` });
    }
    return this.#settle(frame.status);
  }

  #awaitEnd(): number {
    for (;;) {
      const discarded = this.#conversation.discard(this.#owner.received);
      if (discarded === 'waiting') return 0;
      this.#discarded += typeof discarded === 'number' ? discarded : Number.POSITIVE_INFINITY;
      if (this.#discarded <= LINGER_BYTES_MAX) continue;
      this.close();
      return 0;
    }
  }

  #answer(state: State, timeoutNs: number): void {
    this.#owner.clientAnswered(this);
    this.#await(state, timeoutNs);
  }

  #await(state: State, timeoutNs: number): void {
    this.#state = state;
    this.deadlineNs = this.#owner.clock.nowNs() + timeoutNs;
    this.#owner.watch.due(this.deadlineNs);
  }

  #reject(status: Status, reason: string): void {
    if (this.live) this.#owner.clientAnswered(this);
    this.#owner.clientLingers(this);
    this.#await(State.REJECTED, LINGER_NS);
    const text = Buffer.from(reason, 'utf8').subarray(0, REASON_BYTES_MAX);
    this.#conversation.send(packFrame(FrameType.REJECT, status, text));
  }

  /** Ends the pending confirmation of an accepted client. */
  #settle(status: Status): number {
    this.close();
    this.#onSettled(status);
    return 1;
  }

  #drop({ status, reason }: Fault): number {
    this.#owner.counters.count(CmCounter.CLIENTS_DROPPED);
    const message = `${this.#name}: ${reason}`;
    // A client that disconnects does not violate the protocol.
    if (status === Status.CONNECTION_RESET) this.#owner.log.diag(message);
    else this.#owner.log.warn(`${message}; it is dropped`);
    if (this.#state === State.ACCEPTED) {
      return this.#settle(status === Status.TIMED_OUT ? status : Status.CONNECTION_RESET);
    }
    const isAnswerable = this.#state === State.AWAITING_REQUEST || this.#state === State.WAITING;
    if (isAnswerable && status !== Status.CONNECTION_RESET && this.#conversation.isOpen) {
      this.#reject(status, `the request to connect is invalid: ${reason}`);
    } else this.close();
    return 0;
  }

  get #name(): string {
    return `client ${printAddress(this.clientAddress)} of ${printAddress(this.serverAddress)}`;
  }
}
