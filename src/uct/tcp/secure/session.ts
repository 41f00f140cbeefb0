/** What two ends have agreed on: the keys of both directions, and how each shows that what it says first is its own. No socket. */

import { createHmac, timingSafeEqual } from 'node:crypto';
import { RECORD_KEY_BYTES, RECORD_OVERHEAD_BYTES, RecordCipher } from './record-cipher.ts';
import { RecordStream } from './record-stream.ts';
import type { Security } from './security.ts';

const MAC_BYTES = 32;

/** Bytes of the keys of one direction. */
export const SESSION_KEY_BYTES: number = MAC_BYTES + RECORD_KEY_BYTES;

/** The keys of what one end sends. */
export interface DirectionKeys {
  /** For the hello. */
  readonly mac: Buffer;
  readonly records: Buffer;
}

/** What was agreed on for one connection. */
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

  /** Cuts {@link SESSION_KEY_BYTES} into keys. */
  static cut(bytes: Buffer): DirectionKeys {
    return { mac: bytes.subarray(0, MAC_BYTES), records: bytes.subarray(MAC_BYTES) };
  }

  /** Bytes that a hello becomes longer by. */
  get overheadBytes(): number {
    return this.#isEncrypted ? RECORD_OVERHEAD_BYTES : MAC_BYTES;
  }

  /** The first message of this end as it is sent: only the peer can have made it, and it fits no other connection. */
  sealHello(hello: Uint8Array): Uint8Array {
    if (this.#isEncrypted) {
      const record = new Uint8Array(hello.byteLength + RECORD_OVERHEAD_BYTES);
      this.#sealing.seal(hello, record);
      return record;
    }
    return Buffer.concat([hello, macOf(this.#own, hello)]);
  }

  /** The first message of the peer; undefined where it is not the peer's. */
  openHello(sealed: Uint8Array): Uint8Array | undefined {
    if (this.#isEncrypted) return this.#opening.open(sealed);
    const hello = sealed.subarray(0, sealed.byteLength - MAC_BYTES);
    const mac = Buffer.from(sealed.subarray(hello.byteLength));
    const expected = macOf(this.#peer, hello);
    return mac.byteLength === MAC_BYTES && timingSafeEqual(mac, expected) ? hello : undefined;
  }

  /** What everything afterwards goes through; undefined where it goes in clear. */
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
