/**
 * A connection that is being established: the socket until both ends have exchanged hellos.
 *
 *   end that connects:    connecting --+--> securing --+--> sending --> receiving --> done
 *                                      '---------------'
 *   end that is connected to:  securing --> receiving --> greeted --reply()--> sending --> done
 *
 * In `greeted` the hello of the peer has arrived. Without security, `securing` is left out. A failure ends the handshake in any state: the caller closes the
 * socket.
 */

import {
  allocateScratch,
  Errno,
  errnoText,
  type ScratchBlock,
  statusOfErrno,
  tcpError,
  tcpRecv,
  tcpSend,
} from '../../../sys/index.ts';
import { Status } from '../../../ucs/type/status.ts';
import type { TcpConnection } from '../connection/connection.ts';
import { SecureHandshake } from '../secure/key-exchange.ts';
import type { Security } from '../secure/security.ts';
import type { Session } from '../secure/session.ts';
import { type Hello, objectionToBeginning, PEER_HELLO_BYTES, packHello, unpackHello } from './hello.ts';

/** Offset of the incoming hello in the memory; the outgoing one is before it. */
const INCOMING = 256;

/** State of a handshake: see the diagram above. */
type HandshakeState = 'connecting' | 'securing' | 'sending' | 'receiving' | 'greeted' | 'done';

/** An event: the hello of the peer has arrived, the reply is sent, or the handshake has failed. */
export type HandshakeEvent =
  | { readonly kind: 'greeted'; readonly peer: Hello }
  | ({ readonly kind: 'answered' } & Exchange)
  | HandshakeFailure;

/** The hellos of the accepting end. */
export interface Exchange {
  readonly peer: Hello;
  /** The reply to it. */
  readonly answer: Hello;
}

/** The failure of a handshake. */
export interface HandshakeFailure {
  readonly kind: 'failed';
  readonly status: Status;
  readonly reason: string;
  /** The peer has sent invalid data. */
  readonly isViolation: boolean;
}

/** Parameters of the connecting end. */
export interface Opening {
  readonly link: TcpConnection;
  readonly hello: Hello;
}

export class Handshake {
  readonly fd: number;
  /** The link to connect; undefined on the accepting end. */
  readonly link: TcpConnection | undefined;
  /** Deadline, at which its owner ends it. */
  deadlineNs: number;
  /** Keys agreed on before the hellos; undefined without security, and until the key exchange has ended. */
  session: Session | undefined = undefined;
  /** The connection was established, but the peer has closed it without sending anything. */
  wasHungUp = false;
  readonly #block: ScratchBlock = allocateScratch(2 * INCOMING);
  /** The key exchange that precedes the hellos. */
  #secure: SecureHandshake | undefined;
  #opening: Hello | undefined;
  #exchange: Exchange | undefined;
  #state: HandshakeState;
  /** Bytes of a hello with the overhead of security. */
  #bytes: number = PEER_HELLO_BYTES;
  #sent = 0;
  #received = 0;

  /**
   * Takes ownership of a socket.
   * @param security required of the peer; undefined for none
   * @param opening passed on the connecting end; undefined on the accepting end
   */
  constructor(fd: number, deadlineNs: number, security: Security | undefined, opening?: Opening) {
    this.fd = fd;
    this.deadlineNs = deadlineNs;
    this.link = opening?.link;
    this.#opening = opening?.hello;
    const role = opening === undefined ? 'accepting' : 'connecting';
    this.#secure = security === undefined ? undefined : new SecureHandshake(fd, security, role);
    this.#state = opening === undefined ? this.#afterConnecting() : 'connecting';
  }

  /** Whether it waits until the socket is writable, not only readable. */
  get wantsWrite(): boolean {
    return this.#state === 'connecting' || this.#state === 'sending' || this.#secure?.hasOutput === true;
  }

  /** Replies to the hello of the peer. */
  reply(peer: Hello, answer: Hello): void {
    this.#exchange = { peer, answer };
    this.#state = this.#say(answer);
  }

  /** Continues as far as possible without blocking. */
  advance(): HandshakeEvent | undefined {
    if (this.#state === 'connecting') {
      const code = tcpError(this.fd);
      if (code !== 0) return failed(code);
      this.#state = this.#afterConnecting();
    }
    if (this.#secure !== undefined) {
      const event = this.#agree(this.#secure);
      if (this.#state === 'securing') return event;
    }
    if (this.#state === 'sending') {
      const event = this.#send();
      if (event !== undefined || this.#state === 'sending') return event;
    }
    return this.#state === 'receiving' ? this.#receive() : undefined;
  }

  /** Reads and discards the remaining input. Closing a socket with unread bytes would discard data in flight to the peer. */
  discard(): void {
    tcpRecv(this.fd, this.#block.address + INCOMING, INCOMING);
  }

  /** Transfers the socket to the caller. */
  release(): number {
    this.#secure?.close();
    this.#block.free();
    return this.fd;
  }

  #receive(): HandshakeEvent | undefined {
    const at = this.#block.address + INCOMING + this.#received;
    const received = tcpRecv(this.fd, at, this.#bytes - this.#received);
    if (received === -Errno.EAGAIN) return undefined;
    this.wasHungUp = this.#received === 0 && (received === 0 || received === -Errno.ECONNRESET);
    if (received < 0) return failed(-received);
    if (received === 0) return refused('it has closed the connection', false);
    this.#received += received;
    const begun = this.#block.u8.subarray(INCOMING, INCOMING + this.#received);
    const objection = this.session === undefined ? objectionToBeginning(begun) : undefined;
    if (objection !== undefined) return refused(objection, true);
    if (this.#received < this.#bytes) return undefined;
    const sealed = this.#block.u8.subarray(INCOMING, INCOMING + this.#bytes);
    const bytes = this.session === undefined ? sealed : this.session.openHello(sealed);
    const peer = bytes === undefined ? 'its hello is a copy of the hello of this end' : unpackHello(bytes);
    if (typeof peer === 'string') return refused(peer, true);
    this.#state = this.link === undefined ? 'greeted' : 'done';
    return { kind: 'greeted', peer };
  }

  #afterConnecting(): HandshakeState {
    return this.#secure === undefined ? this.#open() : 'securing';
  }

  /** Continues the key exchange; when it ends, the hellos follow. */
  #agree(secure: SecureHandshake): HandshakeEvent | undefined {
    const agreed = secure.advance();
    if (agreed === Status.INPROGRESS) return undefined;
    if (typeof agreed === 'number') {
      this.wasHungUp = !secure.hasReceived;
      return { kind: 'failed', status: agreed, reason: secure.reason, isViolation: secure.isViolation };
    }
    this.session = agreed;
    this.#bytes += agreed.overheadBytes;
    secure.close();
    this.#secure = undefined;
    this.#state = this.#open();
    return undefined;
  }

  /** Sends the hello on the connecting end. */
  #open(): HandshakeState {
    return this.#opening === undefined ? 'receiving' : this.#say(this.#opening);
  }

  #say(hello: Hello): HandshakeState {
    const { u8 } = this.#block;
    packHello(hello, u8);
    if (this.session !== undefined) u8.set(this.session.sealHello(u8.subarray(0, PEER_HELLO_BYTES)));
    this.#sent = 0;
    return 'sending';
  }

  /** Sends the rest of a hello. */
  #send(): HandshakeEvent | undefined {
    const sent = tcpSend(this.fd, this.#block.address + this.#sent, this.#bytes - this.#sent);
    // Not connected yet: the kernel will report when it is.
    if (sent === -Errno.EAGAIN || sent === -Errno.ENOTCONN) return undefined;
    if (sent < 0) return failed(-sent);
    this.#sent += sent;
    if (this.#sent < this.#bytes) return undefined;
    this.#state = this.#exchange === undefined ? 'receiving' : 'done';
    return this.#exchange && { kind: 'answered', ...this.#exchange };
  }
}

function failed(code: number): HandshakeEvent {
  return { kind: 'failed', status: statusOfErrno(code), reason: errnoText(code), isViolation: false };
}

function refused(reason: string, isViolation: boolean): HandshakeEvent {
  return { kind: 'failed', status: Status.REJECTED, reason, isViolation };
}
