/**
 * A socket whose data is sent in encrypted records: outgoing bytes are copied and encrypted, and incoming records are decrypted as a whole before any
 * byte is returned. It does not own the socket.
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
  /** Plaintext of the record that is being filled. */
  readonly #plain: ScratchBlock = allocateScratch(RECORD_BYTES_MAX);
  /** The record that is being sent, and the one that is being received. */
  readonly #outgoing: ScratchBlock = allocateScratch(RECORD_BYTES_MAX);
  readonly #incoming: ScratchBlock = allocateScratch(RECORD_BYTES_MAX);
  #gathered = 0;
  /** Plaintext bytes of the record that is being sent; 0 if there is none. */
  #pending = 0;
  #toSend = 0;
  #sent = 0;
  #received = 0;
  /** The reason why receiving has failed with EBADMSG. */
  violation = '';

  constructor(fd: number, sealing: RecordCipher, opening: RecordCipher) {
    this.#fd = fd;
    this.#sealing = sealing;
    this.#opening = opening;
  }

  /** Whether a record waits for room in the socket. Its plaintext does not count as sent, and {@link flush} continues. */
  get isPending(): boolean {
    return this.#pending > 0;
  }

  /** Adds bytes to the next record; returns the number of bytes added, fewer than given if the record is full. Not allowed while a record waits. */
  add(address: number, byteLength: number): number {
    const taken = Math.min(byteLength, RECORD_PLAIN_BYTES_MAX - this.#gathered);
    memcpy(this.#plain.address + this.#gathered, address, taken);
    this.#gathered += taken;
    return taken;
  }

  /**
   * Sends the waiting record, or the one that was filled.
   * @returns the bytes of its plaintext once the kernel has accepted all of it; or -errno: -EAGAIN, -EPIPE, -ECONNRESET
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
   * Receives one record, and does not read beyond it, so that the readiness of the socket shows whether there is more.
   * @param target room for {@link RECORD_PLAIN_BYTES_MAX} bytes from `at` on
   * @returns bytes of plaintext, 0 if the peer has closed; or -errno: -EAGAIN, -ECONNRESET, -EBADMSG: see {@link violation}
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

  /** Releases its memory. Idempotent. */
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
