/**
 * Cryptographic identity of an interface. Its id, which peers get from its address, is the digest of a public key; with the private key it proves to
 * a peer that the id is its own. A proof is valid for one peer only. Observers of the connection are not prevented from reading it.
 */

import { createHash, createPublicKey, generateKeyPairSync, type KeyObject, sign, verify } from 'node:crypto';
import { sameSecret } from '../../base/key/keys.ts';
import { INTERFACE_ID_BYTES } from '../address/tcp-address.ts';

/** Bytes of a public key of Ed25519. */
export const PUBLIC_KEY_BYTES = 32;
/** Bytes of a proof: a signature of Ed25519. */
export const PROOF_BYTES = 64;

/** Prefix of a public key of Ed25519 in X.509; the key follows (RFC 8410). */
const SPKI_PREFIX: Buffer = Buffer.from('302a300506032b6570032100', 'hex');
const WHAT: Buffer = Buffer.from('gaudi-ucx tcp interface 2');

/** Claim of an interface about its identity, for one peer. */
export interface Claim {
  readonly sender: Uint8Array;
  /** Id of the peer. */
  readonly receiver: Uint8Array;
  readonly publicKey: Uint8Array;
  readonly proof: Uint8Array;
}

/** The identity of one interface. */
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
export function isProven({ sender, receiver, publicKey, proof }: Claim): boolean {
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
