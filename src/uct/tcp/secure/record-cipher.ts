/**
 * One direction of an encrypted connection: records of AES-256-GCM, in order. A record that was changed, omitted, repeated or moved fails to decrypt.
 * No socket.
 *
 * Layout of a record: u32 bytes of the plaintext, little-endian and authenticated; ciphertext; tag. The nonce is four bytes of the keys and the
 * number of the record. A key serves {@link RECORDS_PER_KEY} records; the next is derived from it.
 */

import { createCipheriv, createDecipheriv, hkdfSync } from 'node:crypto';
import { highOf } from '../../../ucs/type/int64.ts';

/** Bytes before the ciphertext. */
export const RECORD_HEADER_BYTES = 4;
const TAG_BYTES = 16;
/** Bytes of a record besides its plaintext. */
export const RECORD_OVERHEAD_BYTES: number = RECORD_HEADER_BYTES + TAG_BYTES;
/** Bytes of the longest record. */
export const RECORD_BYTES_MAX = 16_384;
/** Bytes of the longest plaintext of a record. */
export const RECORD_PLAIN_BYTES_MAX: number = RECORD_BYTES_MAX - RECORD_OVERHEAD_BYTES;
/** Far below the limit of AES-GCM for one key: 2^24.5 records of this length (RFC 8446, section 5.5). */
export const RECORDS_PER_KEY: number = 2 ** 22;

const ALGORITHM = 'aes-256-gcm';
const KEY_BYTES = 32;
const SALT_BYTES = 4;
const NONCE_BYTES = 12;
/** Bytes of the secret of one direction. */
export const RECORD_KEY_BYTES: number = KEY_BYTES + SALT_BYTES;

/** One direction, at one of its ends. */
export class RecordCipher {
  #key: Buffer;
  readonly #nonce: Buffer = Buffer.alloc(NONCE_BYTES);
  readonly #recordsPerKey: number;
  #records = 0;

  /** @param secret {@link RECORD_KEY_BYTES} that both ends share */
  constructor(secret: Buffer, recordsPerKey: number = RECORDS_PER_KEY) {
    this.#key = secret.subarray(0, KEY_BYTES);
    secret.copy(this.#nonce, 0, KEY_BYTES, RECORD_KEY_BYTES);
    this.#recordsPerKey = recordsPerKey;
  }

  /** Encrypts `plain` as the next record into `target`; returns the length of the record. */
  seal(plain: Uint8Array, target: Uint8Array): number {
    this.#advance();
    const header = Buffer.alloc(RECORD_HEADER_BYTES);
    header.writeUInt32LE(plain.byteLength);
    const cipher = createCipheriv(ALGORITHM, this.#key, this.#nonce);
    cipher.setAAD(header);
    target.set(header);
    target.set(cipher.update(plain), RECORD_HEADER_BYTES);
    cipher.final();
    target.set(cipher.getAuthTag(), RECORD_HEADER_BYTES + plain.byteLength);
    return plain.byteLength + RECORD_OVERHEAD_BYTES;
  }

  /** Returns the plaintext of the next record; undefined if authentication fails, after which the connection must be closed. */
  open(record: Uint8Array): Uint8Array | undefined {
    if (record.byteLength < RECORD_OVERHEAD_BYTES) return undefined;
    this.#advance();
    const decipher = createDecipheriv(ALGORITHM, this.#key, this.#nonce);
    decipher.setAAD(record.subarray(0, RECORD_HEADER_BYTES));
    decipher.setAuthTag(record.subarray(record.byteLength - TAG_BYTES));
    const plain = decipher.update(record.subarray(RECORD_HEADER_BYTES, record.byteLength - TAG_BYTES));
    try {
      decipher.final();
    } catch {
      return undefined;
    }
    return plain;
  }

  /** Sets the nonce, and derives a new key if it is due. The numbers exceed 2^53 after more records than can be sent. */
  #advance(): void {
    if (this.#records >= Number.MAX_SAFE_INTEGER) throw new RangeError('a connection has no numbers left for records');
    if (this.#records > 0 && this.#records % this.#recordsPerKey === 0) {
      this.#key = Buffer.from(hkdfSync('sha256', this.#key, '', 'gaudi-ucx tcp security 1: next key', KEY_BYTES));
    }
    this.#nonce.writeUInt32LE(this.#records >>> 0, SALT_BYTES);
    this.#nonce.writeUInt32LE(highOf(this.#records), SALT_BYTES + 4);
    this.#records += 1;
  }
}

/** The length of the plaintext in a header; undefined if it is zero or exceeds the limit. */
export function plainBytesOf(header: DataView, at: number): number | undefined {
  const byteLength = header.getUint32(at, true);
  return byteLength > 0 && byteLength <= RECORD_PLAIN_BYTES_MAX ? byteLength : undefined;
}
