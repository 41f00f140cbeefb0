/** A key exchange over a nonblocking socket, driven by its readiness. It does not own the socket and has no time limit. */

import {
  allocateScratch,
  Errno,
  errnoText,
  type ScratchBlock,
  statusOfErrno,
  tcpRecv,
  tcpSend,
} from '../../../sys/index.ts';
import { Status } from '../../../ucs/type/status.ts';
import { HELLO_BYTES, KeyExchange, PROOF_BYTES, type Role } from './key-exchange.ts';
import type { Security } from './security.ts';
import type { Session } from './session.ts';

const MESSAGES_BYTES: number = HELLO_BYTES + PROOF_BYTES;
const LOST: readonly number[] = [Errno.ECONNRESET, Errno.EPIPE];
const NOT_YET: readonly number[] = [Errno.EAGAIN, Errno.ENOTCONN];

/** A handshake. */
export class SecureHandshake {
  /** Description of the failure, which completes "the peer: ...". */
  reason = '';
  /** Whether the peer has sent invalid data, as opposed to disconnecting. */
  isViolation = false;
  readonly #fd: number;
  readonly #exchange: KeyExchange;
  readonly #role: Role;
  /** Outgoing data, followed by incoming data. */
  readonly #block: ScratchBlock = allocateScratch(2 * MESSAGES_BYTES);
  #session: Session | undefined;
  #toSend: number = HELLO_BYTES;
  #sent = 0;
  #received = 0;

  constructor(fd: number, security: Security, role: Role) {
    this.#fd = fd;
    this.#role = role;
    this.#exchange = new KeyExchange(security, role);
    this.#block.u8.set(this.#exchange.hello);
  }

  /** Whether it waits for room in the socket. */
  get hasOutput(): boolean {
    return this.#sent < this.#toSend;
  }

  /** Whether anything was received. */
  get hasReceived(): boolean {
    return this.#received > 0;
  }

  /**
   * Continues as far as possible without blocking.
   * @returns the session once both have proved that they have the key; INPROGRESS; REJECTED, or CONNECTION_RESET if a connected peer has disconnected: see
   * {@link reason}
   */
  advance(): Session | Status {
    this.#send();
    while (this.#session === undefined) {
      const expected = this.#received < HELLO_BYTES ? HELLO_BYTES : MESSAGES_BYTES;
      const at = this.#block.address + MESSAGES_BYTES + this.#received;
      const received = tcpRecv(this.#fd, at, expected - this.#received);
      if (NOT_YET.includes(-received)) return Status.INPROGRESS;
      if (received <= 0) return this.#hungUp(received);
      this.#received += received;
      const objection = this.#process();
      if (objection === undefined) continue;
      this.isViolation = true;
      return this.#fail(Status.REJECTED, objection);
    }
    return this.hasOutput ? Status.INPROGRESS : this.#session;
  }

  /** Releases its memory. Idempotent. */
  close(): void {
    this.#block.free();
  }

  /** Processes received data; returns a description of the error in it. */
  #process(): string | undefined {
    const received = this.#block.u8.subarray(MESSAGES_BYTES, MESSAGES_BYTES + this.#received);
    if (this.#received < HELLO_BYTES) return this.#exchange.objectionTo(received);
    if (this.#received === HELLO_BYTES) {
      const proof = this.#exchange.receiveHello(received);
      if (typeof proof === 'string') return proof;
      this.#block.u8.set(proof, HELLO_BYTES);
      this.#toSend = MESSAGES_BYTES;
      this.#send();
    }
    if (this.#received < MESSAGES_BYTES) return undefined;
    this.#session = this.#exchange.verify(received.subarray(HELLO_BYTES));
    return this.#session === undefined
      ? 'it does not know the key: that of UCX_TCP_KEY_FILE is another one'
      : undefined;
  }

  #send(): void {
    if (!this.hasOutput) return;
    const sent = tcpSend(this.#fd, this.#block.address + this.#sent, this.#toSend - this.#sent);
    if (sent >= 0) this.#sent += sent;
    // The peer may have sent the reason before it closed: continue to read.
    else if (!NOT_YET.includes(-sent)) this.#sent = this.#toSend;
  }

  #hungUp(received: number): Status {
    if (received < 0 && !LOST.includes(-received)) return this.#fail(statusOfErrno(-received), errnoText(-received));
    const status = this.#role === 'connecting' ? Status.REJECTED : Status.CONNECTION_RESET;
    return this.#fail(
      status,
      this.#received < HELLO_BYTES
        ? 'it has hung up instead of authenticating itself: UCX_TCP_SECURITY may be none there'
        : 'it has hung up: its UCX_TCP_SECURITY or its key may be another one',
    );
  }

  #fail(status: Status, reason: string): Status {
    this.reason = reason;
    return status;
  }
}
