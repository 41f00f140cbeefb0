/**
 * Key exchange between two ends of a connection: each proves that it has the shared key, and they agree on keys that no third party can derive, not
 * even one that learns the shared key later. Bytes in, bytes out: no socket.
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
import { canBegin, MAGIC_BYTES } from './magic.ts';
import { SECURITY_LEVELS, type Security } from './security.ts';
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

/** The end of the connection. */
export type Role = 'connecting' | 'accepting';
const ROLES: readonly Role[] = ['connecting', 'accepting'];

/** One end of an exchange. */
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
   * The objection to the beginning of the peer's hello; undefined if there is none.
   * @param bytes received so far, at most {@link HELLO_BYTES}
   */
  objectionTo(bytes: Uint8Array): string | undefined {
    if (!canBegin(bytes, HELLO_MAGIC)) return 'it does not authenticate itself: UCX_TCP_SECURITY is none there';
    if (bytes.byteLength < HELLO_BYTES) return undefined;
    const hello = Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength);
    if (hello[AT_VERSION] !== VERSION) return `it authenticates itself by version ${hello[AT_VERSION]}, not ${VERSION}`;
    const level = SECURITY_LEVELS[hello[AT_LEVEL]!];
    if (level !== this.#security.level) {
      return `it has UCX_TCP_SECURITY=${level ?? hello[AT_LEVEL]}, this end ${this.#security.level}`;
    }
    const isOther = ROLES[hello[AT_ROLE]!] === peerOf(this.#role) && hello[AT_ZERO] === 0;
    return isOther ? undefined : 'it repeats what it has heard, or makes no sense';
  }

  /**
   * Processes the hello of the peer.
   * @returns the proof for the peer, or the objection to the hello
   */
  receiveHello(hello: Uint8Array): Uint8Array | string {
    const objection = this.objectionTo(hello);
    if (objection !== undefined) return objection;
    const shared = this.#agree(hello.subarray(AT_PUBLIC));
    if (shared === undefined) return 'its public key is none';
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
