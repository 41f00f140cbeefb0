/**
 * A connection that is being made: the socket until both ends have introduced themselves. It decides nothing about what the peer says and does not know
 * links.
 */

import {
  allocateScratch,
  Errno,
  errnoText,
  type ScratchBlock,
  statusOfErrno,
  tcpClose,
  tcpError,
  tcpRecv,
  tcpSend,
} from '../../sys/index.ts';
import { Status } from '../../ucs/status.ts';
import { INTRODUCTION_BYTES, type Introduction, packIntroduction, unpackIntroduction } from './introduction.ts';
import type { TcpLink } from './link.ts';

/** Where the incoming introduction is in the memory; before it the outgoing one. */
const INCOMING = 64;

/** What has happened: nothing yet, the peer has introduced itself, the answer is sent, or it is over. */
export type HandshakeEvent =
  | { readonly kind: 'introduced'; readonly peer: Introduction }
  | { readonly kind: 'answered' }
  | {
      readonly kind: 'failed';
      readonly status: Status;
      readonly reason: string;
      /** The peer has said what makes no sense. */
      readonly isViolation: boolean;
    };

/** A connection in the making. */
export class Handshake {
  readonly fd: number;
  /** Names it in the event set of the interface. */
  token = 0;
  /** The link that wants to be connected; undefined on the end that was connected to. */
  readonly link: TcpLink | undefined;
  readonly deadlineNs: number;
  /** What was answered, for the end that was connected to. */
  answer: Introduction | undefined = undefined;
  peer: Introduction | undefined = undefined;
  readonly #block: ScratchBlock = allocateScratch(2 * INTRODUCTION_BYTES);
  #isConnecting: boolean;
  #sent = INTRODUCTION_BYTES;
  #received = 0;
  #closed = false;

  /**
   * Takes ownership of a socket.
   * @param link of the end that connects
   * @param introduction that this end sends first; undefined on the end that answers
   */
  constructor(fd: number, deadlineNs: number, link?: TcpLink, introduction?: Introduction) {
    this.fd = fd;
    this.deadlineNs = deadlineNs;
    this.link = link;
    this.#isConnecting = introduction !== undefined;
    if (introduction !== undefined) this.#say(introduction);
  }

  /** Whether it waits for room in the socket, as well as for bytes. */
  get wantsRoom(): boolean {
    return this.#isConnecting || this.#sent < INTRODUCTION_BYTES;
  }

  /** Answers the introduction of the peer. */
  reply(answer: Introduction): void {
    this.answer = answer;
    this.#say(answer);
  }

  /** Goes on as far as it can. */
  advance(): HandshakeEvent | undefined {
    if (this.#isConnecting) {
      const code = tcpError(this.fd);
      if (code !== 0) return failed(code);
      this.#isConnecting = false;
    }
    if (this.#sent < INTRODUCTION_BYTES) {
      const sent = tcpSend(this.fd, this.#block.address + this.#sent, INTRODUCTION_BYTES - this.#sent);
      // Not connected yet: the kernel tells when it is.
      if (sent === -Errno.EAGAIN || sent === -Errno.ENOTCONN) return undefined;
      if (sent < 0) return failed(-sent);
      this.#sent += sent;
      if (this.#sent < INTRODUCTION_BYTES) return undefined;
      if (this.answer !== undefined) return { kind: 'answered' };
    }
    return this.peer === undefined ? this.#receive() : undefined;
  }

  /** Gives the socket to somebody else. */
  release(): number {
    this.#closed = true;
    this.#block.free();
    return this.fd;
  }

  /** Closes the socket. Idempotent. */
  close(): void {
    if (!this.#closed) tcpClose(this.release());
  }

  #receive(): HandshakeEvent | undefined {
    const at = this.#block.address + INCOMING + this.#received;
    const received = tcpRecv(this.fd, at, INTRODUCTION_BYTES - this.#received);
    if (received === -Errno.EAGAIN) return undefined;
    if (received < 0) return failed(-received);
    if (received === 0) return refused('it has hung up', false);
    this.#received += received;
    if (this.#received < INTRODUCTION_BYTES) return undefined;
    const peer = unpackIntroduction(this.#block.u8.subarray(INCOMING, INCOMING + INTRODUCTION_BYTES));
    if (typeof peer === 'string') return refused(peer, true);
    this.peer = peer;
    return { kind: 'introduced', peer };
  }

  #say(introduction: Introduction): void {
    packIntroduction(introduction, this.#block.u8);
    this.#sent = 0;
  }
}

function failed(code: number): HandshakeEvent {
  return { kind: 'failed', status: statusOfErrno(code), reason: errnoText(code), isViolation: false };
}

function refused(reason: string, isViolation: boolean): HandshakeEvent {
  return { kind: 'failed', status: Status.REJECTED, reason, isViolation };
}
