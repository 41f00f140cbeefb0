/**
 * The hello that both ends of a new connection exchange: the ids of the sender and of the addressed interface. Its length is fixed, so that every field can be
 * checked before it is used. Also the cryptographic identity of an interface: its id, which peers get from its address, is the digest of a public key, and
 * with the private key it proves to one peer that the id is its own. This does not prevent observers from reading the connection.
 *
 * Layout, little-endian: u32 magic, u16 version, i16 status, 16 bytes id of the sender's interface, 16 bytes id of the addressed interface, u32 longest
 * message that the sender accepts, zeros up to byte 64; 32 bytes public key and 64 bytes proof of the sender, zeros in a rejection.
 */

import { createHash, createPublicKey, generateKeyPairSync, type KeyObject, sign, verify } from 'node:crypto';
import type { LimitedLog } from '../../../ucs/debug/limited-log.ts';
import { Status } from '../../../ucs/type/status.ts';
import { identityText } from '../../base/iface.ts';
import { sameSecret } from '../../base/key/keys.ts';
import { INTERFACE_ID_BYTES } from '../address.ts';
import { sendBytesMax, type TcpConfig } from '../config.ts';
import { TCP_VERSION } from '../layout.ts';
import { HELLO_MAGIC } from '../secure/key-exchange.ts';
import { beginningText, canBegin, MAGIC_BYTES } from '../secure/security.ts';

/** Bytes of a public key of Ed25519. */
const PUBLIC_KEY_BYTES = 32;
/** Bytes of a proof: a signature of Ed25519. */
const PROOF_BYTES = 64;

/** Prefix of a public key of Ed25519 in X.509; the key follows (RFC 8410). */
const SPKI_PREFIX: Buffer = Buffer.from('302a300506032b6570032100', 'hex');
const WHAT: Buffer = Buffer.from('gaudi-ucx tcp interface 2');

/** An interface's claim about its identity, for one peer. */
interface Claim {
  readonly sender: Uint8Array;
  /** Id of the peer. */
  readonly receiver: Uint8Array;
  readonly publicKey: Uint8Array;
  readonly proof: Uint8Array;
}

export class Identity {
  readonly id: Uint8Array;
  readonly publicKey: Uint8Array;
  readonly #privateKey: KeyObject;

  constructor() {
    const { privateKey, publicKey } = generateKeyPairSync('ed25519');
    this.#privateKey = privateKey;
    this.publicKey = publicKey.export({ format: 'der', type: 'spki' }).subarray(SPKI_PREFIX.byteLength);
    this.id = idOf(this.publicKey);
  }

  /** Returns the proof of this identity for the interface with the id `receiver`. */
  prove(receiver: Uint8Array): Uint8Array {
    return sign(null, textOf(this.id, receiver), this.#privateKey);
  }
}

/** Whether the proof of a claim is valid. */
function isProven({ sender, receiver, publicKey, proof }: Claim): boolean {
  if (!sameSecret(idOf(publicKey), sender)) return false;
  const key = createPublicKey({ key: Buffer.concat([SPKI_PREFIX, publicKey]), format: 'der', type: 'spki' });
  return verify(null, textOf(sender, receiver), key, proof);
}

function idOf(publicKey: Uint8Array): Uint8Array {
  return new Uint8Array(createHash('sha256').update(publicKey).digest()).slice(0, INTERFACE_ID_BYTES);
}

function textOf(sender: Uint8Array, receiver: Uint8Array): Buffer {
  return Buffer.concat([WHAT, sender, receiver]);
}

/** Bytes of a hello. */
export const PEER_HELLO_BYTES: number = 64 + PUBLIC_KEY_BYTES + PROOF_BYTES;

const MAGIC = 0x54584355;
const AT_VERSION = MAGIC_BYTES;
const AT_STATUS = 6;
const AT_SENDER = 8;
const AT_RECEIVER: number = AT_SENDER + INTERFACE_ID_BYTES;
const AT_BYTES_MAX: number = AT_RECEIVER + INTERFACE_ID_BYTES;
const AT_PUBLIC_KEY = 64;
const AT_PROOF: number = AT_PUBLIC_KEY + PUBLIC_KEY_BYTES;
const MESSAGE_BYTES_MIN = 1024;
const MESSAGE_BYTES_MAX = 2 ** 20;

/** Replies of the accepting end, in addition to the negative statuses of ucs. */
export const Answer = {
  WELCOME: 0,
  /** Both ends have connected at the same time: the other connection is used. */
  DUPLICATE: 1,
} as const;

export interface Hello extends Claim {
  /** In a reply: {@link Answer}, or a negative status. */
  readonly status: number;
  readonly messageBytesMax: number;
}

/** Writes a hello to the start of `target`. */
export function packHello(hello: Hello, target: Uint8Array): void {
  const { sender, receiver, status, messageBytesMax, publicKey, proof } = hello;
  target.fill(0, 0, PEER_HELLO_BYTES);
  const view = new DataView(target.buffer, target.byteOffset, PEER_HELLO_BYTES);
  view.setUint32(0, MAGIC, true);
  view.setUint16(AT_VERSION, TCP_VERSION, true);
  view.setInt16(AT_STATUS, status, true);
  target.set(sender, AT_SENDER);
  target.set(receiver, AT_RECEIVER);
  view.setUint32(AT_BYTES_MAX, messageBytesMax, true);
  target.set(publicKey, AT_PUBLIC_KEY);
  target.set(proof, AT_PROOF);
}

/** What is wrong with the bytes of a hello that have been received so far; undefined if nothing is. */
export function objectionToBeginning(bytes: Uint8Array): string | undefined {
  if (!canBegin(bytes, MAGIC)) {
    if (!canBegin(bytes, HELLO_MAGIC))
      return `it does not use this protocol: its first bytes are ${beginningText(bytes)}`;
    if (bytes.byteLength < MAGIC_BYTES) return undefined;
    return 'it requires authentication, but UCX_TCP_SECURITY is none here';
  }
  if (bytes.byteLength < AT_STATUS) return undefined;
  const version = new DataView(bytes.buffer, bytes.byteOffset).getUint16(AT_VERSION, true);
  if (version !== TCP_VERSION)
    return `it uses version ${version} of this protocol, this library ${TCP_VERSION}: use the same version of gaudi-ucx at both ends`;
  return undefined;
}

/** Reads a hello; returns a description of the error if it is invalid. */
export function unpackHello(bytes: Uint8Array): Hello | string {
  const objection = objectionToBeginning(bytes);
  if (objection !== undefined) return objection;
  const view = new DataView(bytes.buffer, bytes.byteOffset, PEER_HELLO_BYTES);
  const messageBytesMax = view.getUint32(AT_BYTES_MAX, true);
  if (messageBytesMax < MESSAGE_BYTES_MIN || messageBytesMax > MESSAGE_BYTES_MAX) {
    return `its hello has the maximum message size ${messageBytesMax}, which is not from ${MESSAGE_BYTES_MIN} to ${MESSAGE_BYTES_MAX}`;
  }
  return {
    sender: bytes.slice(AT_SENDER, AT_RECEIVER),
    receiver: bytes.slice(AT_RECEIVER, AT_BYTES_MAX),
    status: view.getInt16(AT_STATUS, true),
    messageBytesMax,
    publicKey: bytes.slice(AT_PUBLIC_KEY, AT_PROOF),
    proof: bytes.slice(AT_PROOF, PEER_HELLO_BYTES),
  };
}

const NO_PROOF: Uint8Array = new Uint8Array(0);

/** The reason why a reply to a hello is not accepted. */
export interface HelloObjection {
  readonly status: Status;
  readonly reason: string;
}

/** The hellos of one interface: makes its own, and checks those of peers. The connector sends them. */
export class HelloPolicy {
  readonly #config: TcpConfig;
  readonly #warnings: LimitedLog;
  /** Created at first use, because generating the key pair takes time. */
  #identity: Identity | undefined = undefined;

  constructor(config: TcpConfig, warnings: LimitedLog) {
    this.#config = config;
    this.#warnings = warnings;
  }

  get #self(): Identity {
    this.#identity ??= new Identity();
    return this.#identity;
  }

  /** The id of the interface. */
  get id(): Uint8Array {
    return this.#self.id;
  }

  /** Whether the interface has connected to itself: the two ends are then two links. */
  isOwn(peer: Hello): boolean {
    return sameSecret(peer.sender, this.#self.id);
  }

  /** Whether, if both ends have connected at the same time, the connection of this interface is used. The order of their ids decides. */
  precedes(peer: Hello): boolean {
    return Buffer.compare(this.#self.id, peer.sender) < 0;
  }

  /** A hello to the interface `receiver`. */
  hello(receiver: Uint8Array, status: number): Hello {
    const { id: sender, publicKey } = this.#self;
    // A rejected peer has not proved its identity, so it does not get a proof for that interface.
    const proof = status >= 0 ? this.#self.prove(receiver) : NO_PROOF;
    return { sender, receiver, status, messageBytesMax: this.#config.RX_SEG_SIZE, publicKey, proof };
  }

  /** WELCOME, or the status with which a peer that has connected is rejected. */
  acceptDecisionOn(peer: Hello): number {
    if (!sameSecret(peer.receiver, this.#self.id)) return Status.UNREACHABLE;
    if (!isProven(peer)) {
      const claimed = identityText(peer.sender);
      this.#warnings.warn(
        `closed a connection from a peer that claims to be interface ${claimed}: its proof of identity is invalid`,
      );
      return Status.REJECTED;
    }
    return peer.messageBytesMax < sendBytesMax(this.#config) ? Status.UNSUPPORTED : Answer.WELCOME;
  }

  /** What is wrong with the reply of a peer that must be the interface `peerId`; undefined if nothing is. */
  objectionTo(peer: Hello, peerId: Uint8Array): HelloObjection | undefined {
    const isWanted = sameSecret(peer.sender, peerId) && isProven(peer);
    if (!isWanted) return { status: Status.UNREACHABLE, reason: 'another interface has replied' };
    const { messageBytesMax } = peer;
    const ownBytesMax = sendBytesMax(this.#config);
    if (messageBytesMax >= ownBytesMax) return undefined;
    return {
      status: Status.UNSUPPORTED,
      reason: `it receives messages of at most ${messageBytesMax} bytes, and this process sends up to ${ownBytesMax}: set the same UCX_TCP_RX_SEG_SIZE in both`,
    };
  }
}
