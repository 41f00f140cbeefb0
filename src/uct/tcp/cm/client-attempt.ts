/**
 * An attempt to connect to a listener: connects, says what the client wants, waits for the answer and confirms it. It does not try again.
 */

import {
  AddressFamily,
  familyOf,
  printAddress,
  ReadyFor,
  type ScratchBlock,
  SocketOption,
  SyscallError,
  setSocketOption,
  tcpClose,
  tcpConnect,
  tcpError,
  tcpLocalAddress,
  tcpRemoteAddress,
  tcpSocket,
} from '../../../sys/index.ts';
import type { Clock } from '../../../ucs/clock.ts';
import { isUcxError, type UcxError } from '../../../ucs/error.ts';
import { Status } from '../../../ucs/status.ts';
import type { ConnectAnswer, ConnectAttempt, OnConnectAnswer, SocketAddress } from '../../api/connection-manager.ts';
import { openChannel } from './channel.ts';
import type { TcpCmConfig } from './config.ts';
import { failedAnswer, printable, unreachableAnswer } from './connect-error.ts';
import { Conversation, type Fault } from './conversation.ts';
import { CmCounter, type CmCounters } from './counters.ts';
import { type Frame, FrameType, packFrame } from './frame.ts';
import type { Watch, Watched } from './watch.ts';

/** How far an attempt is. */
const State = { CONNECTING: 0, ASKING: 1, CONFIRMING: 2, FAILED: 3, OVER: 4 } as const;
type State = (typeof State)[keyof typeof State];

/** The manager behind an attempt. */
export interface AttemptOwner {
  readonly watch: Watch;
  readonly clock: Clock;
  readonly config: TcpCmConfig;
  readonly counters: CmCounters;
  /** Memory of the channels. */
  readonly staging: ScratchBlock;
  readonly received: Uint8Array;
  /** An attempt has failed at once: progress has to look at it. */
  attemptFailed(attempt: ClientAttempt): void;
  attemptOver(attempt: ClientAttempt): void;
}

/** An attempt. */
export class ClientAttempt implements ConnectAttempt, Watched {
  deadlineNs: number;
  readonly #owner: AttemptOwner;
  readonly #address: SocketAddress;
  readonly #request: Uint8Array;
  readonly #onAnswer: OnConnectAnswer;
  #state: State = State.CONNECTING;
  /** The socket and its token while it is being connected; then it belongs to the conversation. */
  #fd = -1;
  #token = -1;
  #conversation: Conversation | undefined;
  #failure: ConnectAnswer | undefined;
  #addresses: Pick<ConnectAnswer, 'clientAddress' | 'serverAddress'> = {};

  /** @param privateData copied */
  constructor(owner: AttemptOwner, address: SocketAddress, privateData: Uint8Array, onAnswer: OnConnectAnswer) {
    this.#owner = owner;
    this.#address = address;
    this.#request = packFrame(FrameType.REQUEST, Status.OK, privateData);
    this.#onAnswer = onAnswer;
    this.deadlineNs = owner.clock.nowNs() + owner.config.TIMEOUT;
    owner.counters.count(CmCounter.CONNECTS);
    try {
      this.#connect();
    } catch (error) {
      if (!isUcxError(error) || error.status === Status.INVALID_PARAM) throw error;
      this.#failLater(unreachableAnswer(error));
    }
  }

  cancel(): void {
    if (this.#state === State.OVER) return;
    this.#state = State.OVER;
    if (this.#conversation !== undefined) this.#conversation.close();
    else this.#closeSocket();
    this.#owner.attemptOver(this);
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
    const heard = conversation.receive(this.#owner.received);
    if (heard === 'waiting') return 0;
    if (heard === 'ended') {
      return this.#fail({ status: Status.CONNECTION_RESET, reason: 'the listener has ended the connection' });
    }
    return 'reason' in heard ? this.#fail(heard) : this.#onFrame(heard);
  }

  onDeadline(): number {
    if (this.#state === State.CONFIRMING) this.cancel();
    if (this.#state === State.OVER) return 0;
    const what = this.#state === State.CONNECTING ? 'no connection' : 'no answer of the program that listens';
    return this.#answer(failedAnswer(Status.TIMED_OUT, `${what} in time`));
  }

  /** Reports what went wrong when the attempt was made. */
  report(): number {
    return this.#failure === undefined ? 0 : this.#answer(this.#failure);
  }

  #connect(): void {
    this.#fd = tcpSocket(familyOf(this.#address.address) ?? AddressFamily.INET);
    try {
      setSocketOption(this.#fd, SocketOption.NODELAY, 1);
      const isConnected = tcpConnect(this.#fd, this.#address);
      if (isConnected) this.#converse();
      else this.#token = this.#owner.watch.add(this.#fd, ReadyFor.WRITE, this);
    } catch (error) {
      this.#closeSocket();
      throw error;
    }
  }

  #onConnected(): number {
    const code = tcpError(this.#fd);
    if (code !== 0) return this.#unreachable(new SyscallError('connect', code, printAddress(this.#address)));
    try {
      // Throws while the connection does not stand.
      tcpRemoteAddress(this.#fd);
      this.#owner.watch.remove(this.#fd, this.#token);
      this.#token = -1;
      this.#converse();
    } catch (error) {
      if (!isUcxError(error)) throw error;
      return this.#unreachable(error);
    }
    return 0;
  }

  /** The connection stands: says what the client wants. */
  #converse(): void {
    const fd = this.#fd;
    const { watch, staging, clock, config } = this.#owner;
    this.#state = State.ASKING;
    this.deadlineNs = clock.nowNs() + config.ANSWER_TIMEOUT;
    this.#fd = -1;
    this.#conversation = new Conversation(watch, openChannel(fd, staging), this);
    watch.due(this.deadlineNs);
    this.#addresses = { clientAddress: tcpLocalAddress(fd), serverAddress: tcpRemoteAddress(fd) };
    this.#conversation.send(this.#request);
    const fault = this.#conversation.open();
    if (fault !== undefined) this.#failLater(failedAnswer(fault.status, fault.reason));
  }

  #onFrame({ type, status, payload }: Frame): number {
    if (type === FrameType.REJECT) {
      const reason = printable(payload);
      return this.#answer(failedAnswer(status, reason === '' ? 'no reason was given' : reason));
    }
    if (type !== FrameType.ACCEPT) {
      return this.#fail({ status: Status.INVALID_PARAM, reason: `the answer is a frame of type ${type}` });
    }
    const conversation = this.#conversation!;
    this.#state = State.CONFIRMING;
    this.#owner.counters.count(CmCounter.CONNECTED);
    this.deadlineNs = this.#owner.clock.nowNs() + this.#owner.config.TIMEOUT;
    this.#owner.watch.due(this.deadlineNs);
    let taken: Status = Status.CANCELED;
    try {
      taken = this.#onAnswer({ status: Status.OK, privateData: payload, ...this.#addresses });
    } finally {
      // Cancelled by the callback, where it is over.
      if ((this.#state as State) === State.CONFIRMING) {
        conversation.send(packFrame(FrameType.CONFIRM, taken));
        if (conversation.isFlushed) this.cancel();
      }
    }
    return 1;
  }

  #fail({ status, reason }: Fault): number {
    // Whatever listens there, it is nobody to connect to.
    const known = status === Status.INVALID_PARAM ? Status.UNREACHABLE : status;
    return this.#answer(failedAnswer(known, reason));
  }

  #unreachable(error: UcxError): number {
    return this.#answer(unreachableAnswer(error));
  }

  #failLater(answer: ConnectAnswer): void {
    this.#state = State.FAILED;
    this.#failure = answer;
    this.#owner.attemptFailed(this);
  }

  #answer(answer: ConnectAnswer): number {
    if (this.#state === State.OVER) return 0;
    this.cancel();
    this.#onAnswer({ ...answer, ...this.#addresses });
    return 1;
  }

  #closeSocket(): void {
    if (this.#fd < 0) return;
    if (this.#token >= 0) this.#owner.watch.remove(this.#fd, this.#token);
    tcpClose(this.#fd);
    this.#fd = -1;
  }
}
