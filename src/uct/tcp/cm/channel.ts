/**
 * What a connected socket is to the connection manager: bytes in both directions. The one place where a descriptor becomes a channel: code that has to
 * prove itself first does so in {@link Channel.handshake}. No framing.
 */

import { Errno, type ScratchBlock, tcpClose, tcpRecv, tcpSend } from '../../../sys/index.ts';
import { Status } from '../../../ucs/type/status.ts';
import type { Role } from '../secure/key-exchange.ts';
import type { RecordStream } from '../secure/record-stream.ts';
import { SecureHandshake } from '../secure/secure-handshake.ts';
import type { Security } from '../secure/security.ts';

const NOTHING = new Uint8Array(0);

/** A connected socket. Nothing waits; what cannot be done now is tried again when the descriptor is ready. */
export interface Channel {
  readonly fd: number;
  /** True while it has something to send that the caller does not know of. */
  readonly hasOutput: boolean;
  /** Whether anything has come of the peer. */
  readonly hasHeard: boolean;
  /**
   * Goes on with what has to precede the first byte, as far as it can.
   * @returns OK when bytes may be sent and received, INPROGRESS while that takes more of the peer, or why it cannot be
   */
  handshake(): Status;
  /** Why that has failed. */
  readonly failure: string;
  /** Receives into `target`: how many bytes, 0 at the peer's end; or -errno: -EAGAIN, -ECONNRESET. */
  read(target: Uint8Array): number;
  /** Sends: how many bytes were taken, maybe fewer; or -errno: -EAGAIN, -EPIPE, -ECONNRESET. */
  write(source: Uint8Array): number;
  /** Closes the descriptor. Idempotent. */
  close(): void;
}

/** The bytes of the socket themselves. */
class PlainChannel implements Channel {
  readonly fd: number;
  readonly hasOutput: boolean = false;
  hasHeard = false;
  readonly failure: string = '';
  readonly #staging: ScratchBlock;
  #closed = false;

  constructor(fd: number, staging: ScratchBlock) {
    this.fd = fd;
    this.#staging = staging;
  }

  handshake(): Status {
    return Status.OK;
  }

  read(target: Uint8Array): number {
    const { address, byteLength, u8 } = this.#staging;
    if (this.#closed) return -Errno.EBADF;
    const received = tcpRecv(this.fd, address, Math.min(target.byteLength, byteLength));
    if (received <= 0) return received;
    target.set(u8.subarray(0, received));
    this.hasHeard = true;
    return received;
  }

  write(source: Uint8Array): number {
    const { address, byteLength, u8 } = this.#staging;
    if (this.#closed) return -Errno.EBADF;
    const piece = source.subarray(0, byteLength);
    u8.set(piece);
    return tcpSend(this.fd, address, piece.byteLength);
  }

  close(): void {
    if (this.#closed) return;
    this.#closed = true;
    tcpClose(this.fd);
  }
}

/** A channel whose ends prove first that they know the shared key; then the bytes of the socket themselves, or encrypted. */
class SecureChannel implements Channel {
  readonly #plain: PlainChannel;
  readonly #secure: SecureHandshake;
  readonly #staging: ScratchBlock;
  #records: RecordStream | undefined = undefined;
  /** Bytes of a record that were not read yet. */
  #rest: Uint8Array = NOTHING;

  constructor(plain: PlainChannel, secure: SecureHandshake, staging: ScratchBlock) {
    this.#staging = staging;
    this.#plain = plain;
    this.#secure = secure;
  }

  get fd(): number {
    return this.#plain.fd;
  }

  get hasOutput(): boolean {
    return this.#secure.hasOutput;
  }

  get hasHeard(): boolean {
    return this.#secure.hasHeard;
  }

  get failure(): string {
    return this.#secure.reason;
  }

  handshake(): Status {
    const status = this.#secure.advance();
    if (status === Status.OK) this.#records = this.#secure.session!.recordsOver(this.fd);
    return status;
  }

  read(target: Uint8Array): number {
    if (this.#records === undefined) return this.#plain.read(target);
    if (this.#rest.byteLength === 0) {
      const received = this.#records.receive(this.#staging.u8, 0);
      if (received <= 0) return received;
      this.#rest = this.#staging.u8.slice(0, received);
    }
    const taken = this.#rest.subarray(0, target.byteLength);
    target.set(taken);
    this.#rest = this.#rest.subarray(taken.byteLength);
    return taken.byteLength;
  }

  /** A caller that is told that there is no room tries again with the same bytes. */
  write(source: Uint8Array): number {
    if (this.#records === undefined) return this.#plain.write(source);
    if (!this.#records.isPending) {
      const piece = source.subarray(0, this.#staging.byteLength);
      this.#staging.u8.set(piece);
      this.#records.add(this.#staging.address, piece.byteLength);
    }
    return this.#records.flush();
  }

  close(): void {
    this.#secure.close();
    this.#records?.close();
    this.#plain.close();
  }
}

/** What all channels of a manager share. */
export interface ChannelOwner {
  /** Memory to send from and receive to. */
  readonly staging: ScratchBlock;
  /** What is asked of the other end; undefined for nothing. */
  readonly security: Security | undefined;
}

/** Makes the channel of a connected socket, which it owns from then on. */
export function openChannel(fd: number, { staging, security }: ChannelOwner, role: Role): Channel {
  const plain = new PlainChannel(fd, staging);
  return security === undefined ? plain : new SecureChannel(plain, new SecureHandshake(fd, security, role), staging);
}
