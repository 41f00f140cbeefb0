/**
 * Who an interface is, so that no other can say the same: its id, which peers know from its address, is the digest of a public key, and with the private key it
 * proves to a peer that the id is its own. What is proven to one peer proves nothing to another. It keeps no secret from who reads the packets of a connection.
 */

import { createHash, createPublicKey, generateKeyPairSync, type KeyObject, sign, verify } from 'node:crypto';
import { sameSecret } from '../../base/key-bytes.ts';
import { INTERFACE_ID_BYTES } from '../address/tcp-address.ts';

/** Bytes of a public key of Ed25519. */
export const PUBLIC_KEY_BYTES = 32;
/** Bytes of a proof: a signature of Ed25519. */
export const PROOF_BYTES = 64;

/** A public key of Ed25519 as X.509 has it: these bytes, then the key (RFC 8410). */
const SPKI_PREFIX: Buffer = Buffer.from('302a300506032b6570032100', 'hex');
const WHAT: Buffer = Buffer.from('gaudi-ucx tcp interface 2');

/** What an interface says of itself to a peer. */
export interface Claim {
  readonly sender: Uint8Array;
  /** Id of the peer. */
  readonly wanted: Uint8Array;
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

  /** Proves to the interface with the id `wanted` who this is. */
  prove(wanted: Uint8Array): Uint8Array {
    return sign(null, textOf(this.id, wanted), this.#privateKey);
  }
}

/** Whether a claim is true. */
export function isProven({ sender, wanted, publicKey, proof }: Claim): boolean {
  if (!sameSecret(idOf(publicKey), sender)) return false;
  const key = createPublicKey({ key: Buffer.concat([SPKI_PREFIX, publicKey]), format: 'der', type: 'spki' });
  return verify(null, textOf(sender, wanted), key, proof);
}

function idOf(publicKey: Uint8Array): Uint8Array {
  return new Uint8Array(createHash('sha256').update(publicKey).digest()).slice(0, INTERFACE_ID_BYTES);
}

function textOf(sender: Uint8Array, wanted: Uint8Array): Buffer {
  return Buffer.concat([WHAT, sender, wanted]);
}
