/**
 * Key exchange between two ends of a connection: each proves that it has the shared key, and they agree on keys that no third party can derive, not
 * even one that learns the shared key later. Input and output are bytes.
 *
 * Each end sends a hello at once, with a nonce and a public key of X25519 that are used for this connection only, and then the proof that it has the
 * shared key: an HMAC of both hellos, with a key that HKDF derives from the shared key, the secret of X25519 and both hellos. Keys and proofs differ
 * by role, so that a reflected message is not a proof.
 *
 * Layout of a hello: u32 magic, u8 version, u8 level, u8 role, u8 zero, 24 bytes nonce, 32 bytes public key.
 */

import {
  createHash,
  createHmac,
  createPublicKey,
  diffieHellman,
  generateKeyPairSync,
  hkdfSync,
  type KeyObject,
  randomBytes,
  timingSafeEqual,
} from 'node:crypto';
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
import { canBegin, MAGIC_BYTES, SECURITY_LEVELS, type Security } from './security.ts';
import { type DirectionKeys, SESSION_KEY_BYTES, Session } from './session.ts';

/** Bytes of a hello. */
export const HELLO_BYTES = 64;
/** Bytes of a proof. */
export const PROOF_BYTES = 32;
/** The first bytes of a hello, little-endian. */
export const HELLO_MAGIC = 0x53584355;

const VERSION = 1;
const AT_VERSION = MAGIC_BYTES;
const AT_LEVEL = 5;
const AT_ROLE = 6;
const AT_ZERO = 7;
const AT_NONCE = 8;
const AT_PUBLIC = 32;
const NAME = 'gaudi-ucx tcp security 1';
/** Prefix of a public key of X25519 in X.509; the key follows (RFC 8410). */
const SPKI_PREFIX: Buffer = Buffer.from('302a300506032b656e032100', 'hex');

/** The end of a connection. */
export type Role = 'connecting' | 'accepting';
const ROLES: readonly Role[] = ['connecting', 'accepting'];

export class KeyExchange {
  /** The first message of this end. */
  readonly hello: Uint8Array;
  readonly #security: Security;
  readonly #role: Role;
  readonly #secret: KeyObject;
  #expected: Buffer | undefined = undefined;
  #session: Session | undefined = undefined;

  constructor(security: Security, role: Role) {
    this.#security = security;
    this.#role = role;
    const { privateKey, publicKey } = generateKeyPairSync('x25519');
    this.#secret = privateKey;
    const hello = Buffer.alloc(HELLO_BYTES);
    hello.writeUInt32LE(HELLO_MAGIC, 0);
    hello[AT_VERSION] = VERSION;
    hello[AT_LEVEL] = SECURITY_LEVELS.indexOf(security.level);
    hello[AT_ROLE] = ROLES.indexOf(role);
    randomBytes(AT_PUBLIC - AT_NONCE).copy(hello, AT_NONCE);
    publicKey.export({ format: 'der', type: 'spki' }).copy(hello, AT_PUBLIC, SPKI_PREFIX.byteLength);
    this.hello = hello;
  }

  /**
   * What is wrong with the beginning of the peer's hello; undefined if nothing is.
   * @param bytes received so far, at most {@link HELLO_BYTES}
   */
  objectionTo(bytes: Uint8Array): string | undefined {
    if (!canBegin(bytes, HELLO_MAGIC)) return 'it does not authenticate itself: its UCX_TCP_SECURITY is none';
    if (bytes.byteLength < HELLO_BYTES) return undefined;
    const hello = Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength);
    if (hello[AT_VERSION] !== VERSION)
      return `it uses version ${hello[AT_VERSION]} of the authentication, this library ${VERSION}: use the same version of gaudi-ucx at both ends`;
    const level = SECURITY_LEVELS[hello[AT_LEVEL]!];
    if (level !== this.#security.level) {
      return `it has UCX_TCP_SECURITY=${level ?? hello[AT_LEVEL]}, this end ${this.#security.level}`;
    }
    const isOther = ROLES[hello[AT_ROLE]!] === peerOf(this.#role) && hello[AT_ZERO] === 0;
    return isOther ? undefined : 'it has sent a reflected or invalid hello';
  }

  /**
   * Processes the hello of the peer.
   * @returns the proof for the peer, or what is wrong with the hello
   */
  receiveHello(hello: Uint8Array): Uint8Array | string {
    const objection = this.objectionTo(hello);
    if (objection !== undefined) return objection;
    const shared = this.#agree(hello.subarray(AT_PUBLIC));
    if (shared === undefined) return 'its public key is invalid';
    const [first, second] = this.#role === 'connecting' ? [this.hello, hello] : [hello, this.hello];
    const transcript = createHash('sha256').update(first).update(second).digest();
    const own = deriveKeys(shared, this.#security, transcript, this.#role);
    const peer = deriveKeys(shared, this.#security, transcript, peerOf(this.#role));
    this.#expected = proofOf(peer.proof, transcript, peerOf(this.#role));
    this.#session = new Session(this.#security.level, own.session, peer.session);
    return proofOf(own.proof, transcript, this.#role);
  }

  /** Verifies the proof of the peer: the session, or undefined if the peer does not have the key. */
  verify(proof: Uint8Array): Session | undefined {
    const expected = this.#expected;
    this.#expected = undefined;
    const isGood =
      expected !== undefined && proof.byteLength === PROOF_BYTES && timingSafeEqual(expected, Buffer.from(proof));
    return isGood ? this.#session : undefined;
  }

  /** The secret of X25519; undefined for a public key of the peer that would give a known secret. */
  #agree(raw: Uint8Array): Buffer | undefined {
    try {
      const key = Buffer.concat([SPKI_PREFIX, raw]);
      const publicKey = createPublicKey({ key, format: 'der', type: 'spki' });
      return diffieHellman({ privateKey: this.#secret, publicKey });
    } catch {
      return undefined;
    }
  }
}

function peerOf(role: Role): Role {
  return role === 'connecting' ? 'accepting' : 'connecting';
}

/** The keys of one direction: for the proof, and for the session. */
interface Derived {
  readonly proof: Buffer;
  readonly session: DirectionKeys;
}

function deriveKeys(shared: Buffer, { key }: Security, transcript: Buffer, role: Role): Derived {
  const secret = Buffer.concat([shared, key]);
  const bytes = Buffer.from(
    hkdfSync('sha256', secret, transcript, `${NAME}: keys of the ${role} end`, PROOF_BYTES + SESSION_KEY_BYTES),
  );
  secret.fill(0);
  return { proof: bytes.subarray(0, PROOF_BYTES), session: Session.cut(bytes.subarray(PROOF_BYTES)) };
}

function proofOf(key: Buffer, transcript: Buffer, role: Role): Buffer {
  return createHmac('sha256', key).update(`${NAME}: proof of the ${role} end`).update(transcript).digest();
}

const MESSAGES_BYTES: number = HELLO_BYTES + PROOF_BYTES;
const LOST: readonly number[] = [Errno.ECONNRESET, Errno.EPIPE];
const NOT_YET: readonly number[] = [Errno.EAGAIN, Errno.ENOTCONN];

/** A key exchange over a nonblocking socket, driven by its readiness. It does not own the socket and has no time limit. */
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

  /** Whether it waits until the socket is writable. */
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
      ? 'it does not have the key: the key files of both ends (UCX_TCP_KEY_FILE) differ'
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
        ? 'it closed the connection instead of authenticating itself: its UCX_TCP_SECURITY may be none'
        : 'it closed the connection: its UCX_TCP_SECURITY or its key may differ',
    );
  }

  #fail(status: Status, reason: string): Status {
    this.reason = reason;
    return status;
  }
}
