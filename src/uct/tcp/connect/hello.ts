/**
 * The hello of both ends of a new connection: the ids of the sender and of the interface that it addresses. Bytes only; the length is fixed, so that
 * no field has to be used before it is checked.
 *
 * Layout, little-endian: u32 magic, u16 version, i16 status, 16 bytes id of the sender's interface, 16 bytes id of the addressed interface, u32
 * longest message that the sender accepts, zeros up to byte 64; 32 bytes public key and 64 bytes proof of the sender (identity.ts), zeros in a
 * rejection.
 */

import { INTERFACE_ID_BYTES } from '../address/tcp-address.ts';
import { HELLO_MAGIC } from '../secure/key-exchange.ts';
import { beginningText, canBegin, MAGIC_BYTES } from '../secure/magic.ts';
import { TCP_VERSION } from '../wire/frame.ts';
import { type Claim, PROOF_BYTES, PUBLIC_KEY_BYTES } from './identity.ts';

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

/** Answers of the end that was connected to, in addition to the negative statuses of ucs. */
export const Answer = {
  WELCOME: 0,
  /** Both ends have connected at the same time: the other connection is used. */
  DUPLICATE: 1,
} as const;

/** The fields. */
export interface Hello extends Claim {
  /** In an answer: {@link Answer}, or a negative status. */
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

/** The objection to the bytes of a hello that have been received so far; undefined if there is none. */
export function objectionToBeginning(bytes: Uint8Array): string | undefined {
  if (!canBegin(bytes, MAGIC)) {
    if (!canBegin(bytes, HELLO_MAGIC)) return `it does not speak this protocol: it begins with ${beginningText(bytes)}`;
    if (bytes.byteLength < MAGIC_BYTES) return undefined;
    return 'it authenticates itself and wants that of this end: UCX_TCP_SECURITY is none here';
  }
  if (bytes.byteLength < AT_STATUS) return undefined;
  const version = new DataView(bytes.buffer, bytes.byteOffset).getUint16(AT_VERSION, true);
  if (version !== TCP_VERSION) return `it speaks version ${version} of this protocol, this library ${TCP_VERSION}`;
  return undefined;
}

/** Reads a hello; returns a description of the error if it is invalid. */
export function unpackHello(bytes: Uint8Array): Hello | string {
  const objection = objectionToBeginning(bytes);
  if (objection !== undefined) return objection;
  const view = new DataView(bytes.buffer, bytes.byteOffset, PEER_HELLO_BYTES);
  const messageBytesMax = view.getUint32(AT_BYTES_MAX, true);
  if (messageBytesMax < MESSAGE_BYTES_MIN || messageBytesMax > MESSAGE_BYTES_MAX) {
    return `it takes messages of ${messageBytesMax} bytes`;
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
