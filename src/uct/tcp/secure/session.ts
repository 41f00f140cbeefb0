/**
 * The result of a key exchange: the keys of both directions, the authentication of the first message of each end, and encrypted records. Outgoing bytes are
 * copied and encrypted; incoming records are decrypted as a whole before any byte is returned.
 */

import { createCipheriv, createDecipheriv, createHmac, hkdfSync, timingSafeEqual } from 'node:crypto';
import { allocateScratch, Errno, memcpy, type ScratchBlock, tcpRecv, tcpSend } from '../../../sys/index.ts';
import { highOf } from '../../../ucs/type/int64.ts';
import type { Security } from './security.ts';

/*
 * One direction of an encrypted connection: records of AES-256-GCM, in order. A record that was changed, omitted, repeated or moved fails to decrypt.
 *
 * Layout of a record: u32 bytes of the plaintext, little-endian and authenticated; ciphertext; tag. The nonce is four bytes of the keys and the number of
 * the record. A key serves {@link RECORDS_PER_KEY} records; the next is derived from it.
 */

/** Bytes before the ciphertext. */
const RECORD_HEADER_BYTES = 4;
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

  /** Sets the nonce, and derives a new key if it is due. Record numbers would exceed 2^53 only after more records than can be sent. */
  #advance(): void {
    if (this.#records >= Number.MAX_SAFE_INTEGER)
      throw new RangeError('the record numbers of the connection are exhausted');
    if (this.#records > 0 && this.#records % this.#recordsPerKey === 0) {
      this.#key = Buffer.from(hkdfSync('sha256', this.#key, '', 'gaudi-ucx tcp security 1: next key', KEY_BYTES));
    }
    this.#nonce.writeUInt32LE(this.#records >>> 0, SALT_BYTES);
    this.#nonce.writeUInt32LE(highOf(this.#records), SALT_BYTES + 4);
    this.#records += 1;
  }
}

/** The length of the plaintext in a header; undefined if it is zero or exceeds the limit. */
function plainBytesOf(header: DataView, at: number): number | undefined {
  const byteLength = header.getUint32(at, true);
  return byteLength > 0 && byteLength <= RECORD_PLAIN_BYTES_MAX ? byteLength : undefined;
}

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

/** A socket whose data is sent in encrypted records. */
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

  /** Whether a record waits until the socket is writable. Its plaintext does not count as sent; {@link flush} continues. */
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
   * @param target has {@link RECORD_PLAIN_BYTES_MAX} bytes from `at` on
   * @returns bytes of plaintext, 0 if the peer has closed; or -errno: -EAGAIN, -ECONNRESET, -EBADMSG: see {@link violation}
   */
  receive(target: Uint8Array, at: number): number {
    const { address, view, u8 } = this.#incoming;
    for (;;) {
      const hasHeader = this.#received >= RECORD_HEADER_BYTES;
      const plainBytes = hasHeader ? plainBytesOf(view, 0) : 0;
      if (plainBytes === undefined) return this.#violate('record with an invalid length');
      const end = hasHeader ? plainBytes + RECORD_OVERHEAD_BYTES : RECORD_HEADER_BYTES;
      if (hasHeader && this.#received === end) {
        this.#received = 0;
        const plain = this.#opening.open(u8.subarray(0, end));
        if (plain === undefined) return this.#violate('record that was changed, repeated, reordered or omitted');
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
