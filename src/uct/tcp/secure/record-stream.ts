/**
 * A socket whose bytes travel in records: what is sent is copied and sealed, what is received is opened whole before any of it is handed out. It does
 * not own the socket.
 */

import { allocateScratch, Errno, memcpy, type ScratchBlock, tcpRecv, tcpSend } from '../../../sys/index.ts';
import {
  plainBytesOf,
  RECORD_BYTES_MAX,
  RECORD_HEADER_BYTES,
  RECORD_OVERHEAD_BYTES,
  RECORD_PLAIN_BYTES_MAX,
  type RecordCipher,
} from './record-cipher.ts';

/** The socket. */
export class RecordStream {
  readonly #fd: number;
  readonly #sealing: RecordCipher;
  readonly #opening: RecordCipher;
  /** Plaintext of the record that is made. */
  readonly #plain: ScratchBlock = allocateScratch(RECORD_BYTES_MAX);
  /** The record that is sent, and the one that comes. */
  readonly #outgoing: ScratchBlock = allocateScratch(RECORD_BYTES_MAX);
  readonly #incoming: ScratchBlock = allocateScratch(RECORD_BYTES_MAX);
  #gathered = 0;
  /** Plaintext bytes of the record that is being sent; 0 for none. */
  #pending = 0;
  #toSend = 0;
  #sent = 0;
  #received = 0;
  /** Why receiving has failed with EBADMSG. */
  violation = '';

  constructor(fd: number, sealing: RecordCipher, opening: RecordCipher) {
    this.#fd = fd;
    this.#sealing = sealing;
    this.#opening = opening;
  }

  /** Whether a record waits for room in the socket: what it was made of counts as not sent, and {@link flush} goes on. */
  get isPending(): boolean {
    return this.#pending > 0;
  }

  /** Adds bytes to the next record; returns how many, fewer where it is full. Not while one waits. */
  add(address: number, byteLength: number): number {
    const taken = Math.min(byteLength, RECORD_PLAIN_BYTES_MAX - this.#gathered);
    memcpy(this.#plain.address + this.#gathered, address, taken);
    this.#gathered += taken;
    return taken;
  }

  /**
   * Sends the record that waits, or the one that was gathered.
   * @returns the bytes of its plaintext once the kernel has all of it; or -errno: -EAGAIN, -EPIPE, -ECONNRESET
   */
  flush(): number {
    if (this.#pending === 0) {
      this.#toSend = this.#sealing.seal(this.#plain.u8.subarray(0, this.#gathered), this.#outgoing.u8);
      this.#pending = this.#gathered;
      this.#gathered = 0;
      this.#sent = 0;
    }
    while (this.#sent < this.#toSend) {
      const sent = tcpSend(this.#fd, this.#outgoing.address + this.#sent, this.#toSend - this.#sent);
      if (sent < 0) return sent;
      this.#sent += sent;
    }
    const done = this.#pending;
    this.#pending = 0;
    return done;
  }

  /**
   * Receives one record: nothing of what follows is read, so that the socket says whether there is more.
   * @param target room for {@link RECORD_PLAIN_BYTES_MAX} bytes from `at` on
   * @returns bytes of plaintext, 0 where the peer has ended; or -errno: -EAGAIN, -ECONNRESET, -EBADMSG: see {@link violation}
   */
  receive(target: Uint8Array, at: number): number {
    const { address, view, u8 } = this.#incoming;
    for (;;) {
      const hasHeader = this.#received >= RECORD_HEADER_BYTES;
      const plainBytes = hasHeader ? plainBytesOf(view, 0) : 0;
      if (plainBytes === undefined) return this.#violate('a record of a length that none has');
      const end = hasHeader ? plainBytes + RECORD_OVERHEAD_BYTES : RECORD_HEADER_BYTES;
      if (hasHeader && this.#received === end) {
        this.#received = 0;
        const plain = this.#opening.open(u8.subarray(0, end));
        if (plain === undefined) return this.#violate('a record that was changed, repeated, moved or left out');
        target.set(plain, at);
        return plain.byteLength;
      }
      const received = tcpRecv(this.#fd, address + this.#received, end - this.#received);
      if (received <= 0) return received;
      this.#received += received;
    }
  }

  /** Gives its memory back. Idempotent. */
  close(): void {
    this.#plain.free();
    this.#outgoing.free();
    this.#incoming.free();
  }

  #violate(what: string): number {
    this.violation = what;
    return -Errno.EBADMSG;
  }
}
