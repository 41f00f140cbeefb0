/**
 * A connected socket of the connection manager, as bytes in both directions: plain, or after a handshake that proves the identities of both ends (see
 * {@link Channel.handshake}).
 */

import { Errno, type ScratchBlock, tcpClose, tcpRecv, tcpSend } from '../../../sys/index.ts';
import { Status } from '../../../ucs/type/status.ts';
import { type Role, SecureHandshake } from '../secure/key-exchange.ts';
import type { Security } from '../secure/security.ts';
import type { RecordStream } from '../secure/session.ts';

const NOTHING = new Uint8Array(0);

/** A connected socket. Methods do not block; the caller repeats a call that returned EAGAIN when the descriptor is ready. */
export interface Channel {
  readonly fd: number;
  /** True while the channel itself has bytes to send, such as those of a handshake. */
  readonly hasOutput: boolean;
  /** Whether anything was received. */
  readonly hasReceived: boolean;
  /**
   * Continues the handshake that precedes the first byte.
   * @returns OK once bytes may be sent and received, INPROGRESS while the handshake waits for the peer, or the status of its failure
   */
  handshake(): Status;
  /** Description of the failure of the handshake. */
  readonly failure: string;
  /** Receives into `target`: returns the number of bytes, 0 at the end of the stream; or -errno: -EAGAIN, -ECONNRESET. */
  read(target: Uint8Array): number;
  /** Sends: returns the number of bytes sent, possibly fewer than given; or -errno: -EAGAIN, -EPIPE, -ECONNRESET. */
  write(source: Uint8Array): number;
  /** Closes the descriptor. Idempotent. */
  close(): void;
}

/** A channel without security: the bytes of the socket. */
class PlainChannel implements Channel {
  readonly fd: number;
  readonly hasOutput: boolean = false;
  hasReceived = false;
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
    this.hasReceived = true;
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

/** A channel whose ends first prove that they have the shared key. Then bytes are sent plain or encrypted, depending on the security level. */
class SecureChannel implements Channel {
  readonly #plain: PlainChannel;
  readonly #secure: SecureHandshake;
  readonly #staging: ScratchBlock;
  #records: RecordStream | undefined = undefined;
  /** Decrypted bytes of a record that were not read yet. */
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

  get hasReceived(): boolean {
    return this.#secure.hasReceived;
  }

  get failure(): string {
    return this.#secure.reason;
  }

  handshake(): Status {
    const agreed = this.#secure.advance();
    if (typeof agreed === 'number') return agreed;
    this.#records = agreed.recordsOver(this.fd);
    return Status.OK;
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

  /** After -EAGAIN the caller must send the same bytes again. */
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

/** State that all channels of a manager share. */
export interface ChannelOwner {
  /** Memory to send from and receive into. */
  readonly staging: ScratchBlock;
  /** Security required of the peer; undefined for none. */
  readonly security: Security | undefined;
}

/** Creates the channel of a connected socket and transfers its ownership to the channel. */
export function openChannel(fd: number, { staging, security }: ChannelOwner, role: Role): Channel {
  const plain = new PlainChannel(fd, staging);
  return security === undefined ? plain : new SecureChannel(plain, new SecureHandshake(fd, security, role), staging);
}
