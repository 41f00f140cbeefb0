/**
 * What a connected socket is to the connection manager: bytes in both directions. The one place where a descriptor becomes a channel: whoever has to
 * prove itself first does so in {@link Channel.handshake}. No framing.
 */

import { Errno, type ScratchBlock, tcpClose, tcpRecv, tcpSend } from '../../../sys/index.ts';
import { Status } from '../../../ucs/status.ts';

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

/**
 * Makes the channel of a connected socket, which it owns from then on.
 * @param staging memory that all channels of a manager share
 */
export function openChannel(fd: number, staging: ScratchBlock): Channel {
  return new PlainChannel(fd, staging);
}
