/**
 * An attempt to connect to a listener: connects, waits for the hello of the listener, sends the request, waits for the reply and confirms it.
 *
 * A connection without received data is opened again after some time: the kernel silently drops connections that exceed the backlog, and would retry
 * all of them at the same time. Once the listener has sent something, the attempt does not connect again.
 */

import {
  AddressFamily,
  familyOf,
  ReadyFor,
  SocketOption,
  setSocketOption,
  tcpClose,
  tcpConnect,
  tcpConnectError,
  tcpError,
  tcpLocalAddress,
  tcpRemoteAddress,
  tcpSocket,
} from '../../../sys/index.ts';
import { isUcxError, UcxError } from '../../../ucs/type/error.ts';
import { Status } from '../../../ucs/type/status.ts';
import type { ConnectAnswer, ConnectAttempt, OnConnectAnswer, SocketAddress } from '../../api/connection-manager.ts';
import { openChannel } from './channel.ts';
import { CmCounter, type CmShared, type CmTarget, Conversation, type Fault } from './conversation.ts';
import { CmFrameType, type Frame, packFrame } from './layout.ts';

const NOTHING: Uint8Array = new Uint8Array(0);

/** States of an attempt. */
const State = { CONNECTING: 0, AWAITING_HELLO: 1, AWAITING_ANSWER: 2, CONFIRMING: 3, FAILED: 4, OVER: 5 } as const;
type State = (typeof State)[keyof typeof State];

/**
 * Time limit for the first bytes of a listener; it doubles with every try. A random time of at most the same length is added, so that clients do not
 * retry at the same time.
 */
const FIRST_TRY_NS = 1e9;
/** Maximum number of immediate reconnections to a listener that has evicted the client. */
const RETURNS_MAX = 16;

/** The connection attempts of one manager. */
export class Attempts {
  readonly shared: CmShared;
  readonly all: Set<ClientAttempt> = new Set();
  /** Attempts that have failed before they had a descriptor: progress reports them. */
  readonly failed: ClientAttempt[] = [];

  constructor(shared: CmShared) {
    this.shared = shared;
  }
}

export class ClientAttempt implements ConnectAttempt, CmTarget {
  deadlineNs = 0;
  /** Time limit for all tries together. */
  readonly #endNs: number;
  #tryNs = FIRST_TRY_NS;
  readonly #attempts: Attempts;
  readonly #shared: CmShared;
  readonly #address: SocketAddress;
  readonly #privateData: Uint8Array;
  #returns = 0;
  readonly #onAnswer: OnConnectAnswer;
  #state: State = State.CONNECTING;
  /** The socket and its token while it is connecting; the conversation owns it afterwards. */
  #fd = -1;
  #token = -1;
  #conversation: Conversation | undefined;
  #failure: ConnectAnswer | undefined;
  #addresses: Pick<ConnectAnswer, 'clientAddress' | 'serverAddress'> = {};

  /** @param privateData copied */
  constructor(attempts: Attempts, address: SocketAddress, privateData: Uint8Array, onAnswer: OnConnectAnswer) {
    const { shared } = attempts;
    this.#attempts = attempts;
    this.#shared = shared;
    this.#address = address;
    // Detached bytes have length 0 and cannot be copied.
    this.#privateData = privateData.byteLength === 0 ? NOTHING : privateData.slice();
    this.#onAnswer = onAnswer;
    this.#endNs = shared.clock.nowNs() + shared.config.TIMEOUT;
    attempts.all.add(this);
    shared.counters.count(CmCounter.CONNECTS);
    try {
      this.#connect();
    } catch (error) {
      if (!isUcxError(error) || error.status === Status.INVALID_PARAM) {
        attempts.all.delete(this);
        throw error;
      }
      this.#state = State.FAILED;
      this.#failure = unreachableAnswer(error);
      attempts.failed.push(this);
    }
  }

  cancel(): void {
    if (this.#state === State.OVER) return;
    this.#state = State.OVER;
    if (this.#conversation !== undefined) this.#conversation.close();
    else this.#closeSocket();
    this.#attempts.all.delete(this);
  }

  onReady(): number {
    if (this.#state === State.CONNECTING) return this.#onConnected();
    const conversation = this.#conversation;
    if (conversation === undefined) return 0;
    const fault = conversation.open();
    if (fault !== undefined) return this.#fail(fault);
    conversation.flush();
    if (this.#state === State.CONFIRMING) {
      if (conversation.isFlushed) this.cancel();
      return 0;
    }
    const frame = conversation.receive(this.#shared.received);
    if (frame === 'waiting') return 0;
    if (frame === 'ended') {
      if (this.#returnsAfter(undefined)) return this.#connectAgain();
      return this.#fail({ status: Status.CONNECTION_RESET, reason: 'the listener has closed the connection' });
    }
    if (!('reason' in frame)) return this.#onFrame(frame, conversation);
    const isReset = frame.status === Status.CONNECTION_RESET;
    return isReset && this.#returnsAfter(undefined) ? this.#connectAgain() : this.#fail(frame);
  }

  onDeadline(): number {
    switch (this.#state) {
      case State.CONNECTING:
      case State.AWAITING_HELLO:
        return this.#tryAgain();
      case State.AWAITING_ANSWER:
        return this.#answer(
          failedAnswer(Status.TIMED_OUT, 'the program that listens did not accept or reject in time'),
        );
      default:
        this.cancel();
        return 0;
    }
  }

  /** Reports the error that occurred when the attempt was created. */
  report(): number {
    return this.#failure === undefined ? 0 : this.#answer(this.#failure);
  }

  #tryAgain(): number {
    const conversation = this.#conversation;
    if (this.#shared.clock.nowNs() >= this.#endNs) {
      return this.#answer(failedAnswer(Status.TIMED_OUT, 'the connection was not accepted in time'));
    }
    if (conversation?.hasReceived === true) {
      this.#await(this.#state, this.#endNs);
      return 0;
    }
    this.#tryNs *= 2;
    return this.#connectAgain();
  }

  /** Whether the listener may have evicted the client because too many clients had not sent their request. */
  #returnsAfter(status: Status | undefined): boolean {
    const isSentAway = status === undefined ? this.#conversation?.hasReceived === false : status === Status.NO_RESOURCE;
    if (!isSentAway || this.#returns >= RETURNS_MAX || this.#shared.clock.nowNs() >= this.#endNs) return false;
    this.#returns += 1;
    return true;
  }

  #connectAgain(): number {
    this.#conversation?.close();
    this.#conversation = undefined;
    this.#closeSocket();
    try {
      this.#connect();
    } catch (error) {
      if (!isUcxError(error)) throw error;
      return this.#unreachable(error);
    }
    return 0;
  }

  #connect(): void {
    const { clock, random } = this.#shared;
    const closeTimeoutNs = this.#tryNs * (1 + random.below(1024) / 1024);
    this.#await(State.CONNECTING, Math.min(this.#endNs, clock.nowNs() + closeTimeoutNs));
    this.#fd = tcpSocket(familyOf(this.#address.address) ?? AddressFamily.INET);
    try {
      setSocketOption(this.#fd, SocketOption.NODELAY, 1);
      tcpConnect(this.#fd, this.#address);
      // Also if the connection is already established: the socket is writable then.
      this.#token = this.#shared.watch.add(this.#fd, ReadyFor.WRITE, this);
    } catch (error) {
      this.#closeSocket();
      throw error;
    }
  }

  #await(state: State, deadlineNs: number): void {
    this.#state = state;
    this.deadlineNs = deadlineNs;
    this.#shared.watch.due(deadlineNs);
  }

  #onConnected(): number {
    const code = tcpError(this.#fd);
    if (code !== 0) return this.#unreachable(tcpConnectError(code, this.#address));
    try {
      // Throws if the connection is not established.
      tcpRemoteAddress(this.#fd);
      this.#shared.watch.remove(this.#fd, this.#token);
      this.#token = -1;
      this.#converse();
    } catch (error) {
      if (!isUcxError(error)) throw error;
      return this.#unreachable(error);
    }
    return this.onReady();
  }

  /** The kernel has established a connection; the listener may not have accepted it yet. */
  #converse(): void {
    const fd = this.#fd;
    const { watch } = this.#shared;
    this.#state = State.AWAITING_HELLO;
    this.#fd = -1;
    this.#conversation = new Conversation(watch, openChannel(fd, this.#shared, 'connecting'), this);
    this.#addresses = { clientAddress: tcpLocalAddress(fd), serverAddress: tcpRemoteAddress(fd) };
  }

  #onFrame({ type, status, payload }: Frame, conversation: Conversation): number {
    if (type === CmFrameType.REJECT) {
      if (this.#returnsAfter(status)) return this.#connectAgain();
      const reason = printable(payload);
      return this.#answer(failedAnswer(status, reason === '' ? 'no reason given' : reason));
    }
    const { clock, config, counters } = this.#shared;
    if (type === CmFrameType.HELLO && this.#state === State.AWAITING_HELLO) {
      this.#await(State.AWAITING_ANSWER, clock.nowNs() + config.ANSWER_TIMEOUT);
      conversation.send(packFrame(CmFrameType.REQUEST, Status.OK, Buffer.concat([payload, this.#privateData])));
      return 0;
    }
    if (type !== CmFrameType.ACCEPT || this.#state !== State.AWAITING_ANSWER) {
      return this.#fail({
        status: Status.INVALID_PARAM,
        reason: `unexpected frame of type ${type} instead of a reply`,
      });
    }
    counters.count(CmCounter.CONNECTED);
    this.#await(State.CONFIRMING, clock.nowNs() + config.TIMEOUT);
    let taken: Status = Status.CANCELED;
    try {
      taken = this.#onAnswer({ status: Status.OK, privateData: payload, ...this.#addresses });
    } finally {
      // The callback may have cancelled the attempt.
      if (this.#is(State.CONFIRMING)) {
        conversation.send(packFrame(CmFrameType.CONFIRM, taken));
        if (conversation.isFlushed) this.cancel();
      }
    }
    return 1;
  }

  #is(state: State): boolean {
    return this.#state === state;
  }

  #fail({ status, reason }: Fault): number {
    // The listening socket does not belong to this library.
    const known = status === Status.INVALID_PARAM ? Status.UNREACHABLE : status;
    return this.#answer(failedAnswer(known, reason));
  }

  #unreachable(error: UcxError): number {
    return this.#answer(unreachableAnswer(error));
  }

  #answer(answer: ConnectAnswer): number {
    if (this.#state === State.OVER) return 0;
    this.cancel();
    this.#onAnswer({ ...answer, ...this.#addresses });
    return 1;
  }

  #closeSocket(): void {
    if (this.#fd < 0) return;
    if (this.#token >= 0) this.#shared.watch.remove(this.#fd, this.#token);
    tcpClose(this.#fd);
    this.#fd = -1;
  }
}

/** The result for a failure with a description. Code ERR_TCP_CM. */
function failedAnswer(status: Status, reason: string): ConnectAnswer {
  return { status, privateData: NOTHING, error: new UcxError({ code: 'ERR_TCP_CM', status, message: reason }) };
}

/** Statuses that are reported unchanged: local resources, or the time-out. Others are reported as UNREACHABLE. */
const REPORTED: readonly Status[] = [Status.EXCEEDS_LIMIT, Status.NO_MEMORY, Status.TIMED_OUT];

/** The result for a failed system call. */
function unreachableAnswer(error: UcxError): ConnectAnswer {
  const status = REPORTED.includes(error.status) ? error.status : Status.UNREACHABLE;
  return { status, privateData: NOTHING, error };
}

/** Makes the text of a peer printable. */
function printable(bytes: Uint8Array): string {
  return Buffer.from(bytes)
    .toString('utf8')
    .replace(/[^\P{C}]/gu, '?');
}
