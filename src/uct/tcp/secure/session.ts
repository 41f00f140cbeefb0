/** The result of a key exchange: the keys of both directions, and how each end authenticates its first message. No socket. */

import { createHmac, timingSafeEqual } from 'node:crypto';
import { RECORD_KEY_BYTES, RECORD_OVERHEAD_BYTES, RecordCipher } from './record-cipher.ts';
import { RecordStream } from './record-stream.ts';
import type { Security } from './security.ts';

const MAC_BYTES = 32;

/** Bytes of the keys of one direction. */
export const SESSION_KEY_BYTES: number = MAC_BYTES + RECORD_KEY_BYTES;

/** The keys of one direction. */
export interface DirectionKeys {
  /** For the hello. */
  readonly mac: Buffer;
  readonly records: Buffer;
}

/** The keys of one connection. */
export class Session {
  readonly level: Security['level'];
  readonly #own: DirectionKeys;
  readonly #peer: DirectionKeys;
  readonly #sealing: RecordCipher;
  readonly #opening: RecordCipher;

  constructor(level: Security['level'], own: DirectionKeys, peer: DirectionKeys) {
    this.level = level;
    this.#own = own;
    this.#peer = peer;
    this.#sealing = new RecordCipher(own.records);
    this.#opening = new RecordCipher(peer.records);
  }

  /** Splits {@link SESSION_KEY_BYTES} into keys. */
  static cut(bytes: Buffer): DirectionKeys {
    return { mac: bytes.subarray(0, MAC_BYTES), records: bytes.subarray(MAC_BYTES) };
  }

  /** Bytes that sealing adds to a hello. */
  get overheadBytes(): number {
    return this.#isEncrypted ? RECORD_OVERHEAD_BYTES : MAC_BYTES;
  }

  /** Seals the first message of this end. Only an end of this connection can have produced it, and it is not valid on another connection. */
  sealHello(hello: Uint8Array): Uint8Array {
    if (this.#isEncrypted) {
      const record = new Uint8Array(hello.byteLength + RECORD_OVERHEAD_BYTES);
      this.#sealing.seal(hello, record);
      return record;
    }
    return Buffer.concat([hello, macOf(this.#own, hello)]);
  }

  /** Opens the first message of the peer; undefined if its authentication fails. */
  openHello(sealed: Uint8Array): Uint8Array | undefined {
    if (this.#isEncrypted) return this.#opening.open(sealed);
    const hello = sealed.subarray(0, sealed.byteLength - MAC_BYTES);
    const mac = Buffer.from(sealed.subarray(hello.byteLength));
    const expected = macOf(this.#peer, hello);
    return mac.byteLength === MAC_BYTES && timingSafeEqual(mac, expected) ? hello : undefined;
  }

  /** The record stream for all further data; undefined if it is not encrypted. */
  recordsOver(fd: number): RecordStream | undefined {
    return this.#isEncrypted ? new RecordStream(fd, this.#sealing, this.#opening) : undefined;
  }

  get #isEncrypted(): boolean {
    return this.level === 'encrypt';
  }
}

function macOf({ mac }: DirectionKeys, hello: Uint8Array): Buffer {
  return createHmac('sha256', mac).update(hello).digest();
}
