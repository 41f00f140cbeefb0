/**
 * Fixed-size remote keys of memory domains: little-endian fields and a random secret. Packing only; keys are validated by the memory domain that created
 * them.
 */

import { isBytes } from '../../../ucs/memory/is-bytes.ts';
import { systemRandomBytes } from '../../../ucs/sys/random.ts';

/** Bytes of the secret in a key. */
export const SECRET_BYTES = 16;
/** Bytes of a packed key: id, generation, address, length, device, padding, secret. */
export const KEY_BYTES = 48;

const VERSION = 1;
const AT_VERSION = 0;
const AT_DEVICE = 4;
const AT_ID = 8;
const AT_GENERATION = 16;
const AT_LENGTH = 24;
const AT_SECRET = 32;

/** The fields of a key. */
export interface KeyFields {
  /** System device; 0xffffffff for none. */
  readonly device: number;
  /** Identifies the memory within its memory domain; never reused. */
  readonly id: number;
  readonly generation: number;
  readonly byteLength: number;
  readonly secret: Uint8Array;
}

/** Creates a secret. */
export function newSecret(): Uint8Array {
  return systemRandomBytes(SECRET_BYTES);
}

/** Writes a key: {@link KEY_BYTES} at `offset`. */
export function packKey(key: KeyFields, target: Uint8Array, offset: number): void {
  const view = new DataView(target.buffer, target.byteOffset + offset, KEY_BYTES);
  view.setUint32(AT_VERSION, VERSION, true);
  view.setUint32(AT_DEVICE, key.device, true);
  view.setBigUint64(AT_ID, BigInt(key.id), true);
  view.setBigUint64(AT_GENERATION, BigInt(key.generation), true);
  view.setBigUint64(AT_LENGTH, BigInt(key.byteLength), true);
  target.set(key.secret, offset + AT_SECRET);
}

/** Reads a key; undefined if it is too short or of another version. */
export function unpackKey(packed: Uint8Array): KeyFields | undefined {
  if (!isBytes(packed) || packed.byteLength !== KEY_BYTES) return undefined;
  const view = new DataView(packed.buffer, packed.byteOffset, KEY_BYTES);
  if (view.getUint32(AT_VERSION, true) !== VERSION) return undefined;
  return {
    device: view.getUint32(AT_DEVICE, true),
    id: Number(view.getBigUint64(AT_ID, true)),
    generation: Number(view.getBigUint64(AT_GENERATION, true)),
    byteLength: Number(view.getBigUint64(AT_LENGTH, true)),
    secret: packed.slice(AT_SECRET, AT_SECRET + SECRET_BYTES),
  };
}

/** Compares secrets in constant time. */
export function sameSecret(left: Uint8Array, right: Uint8Array): boolean {
  if (left.byteLength !== right.byteLength) return false;
  let difference = 0;
  for (let i = 0; i < left.byteLength; i++) difference |= left[i]! ^ right[i]!;
  return difference === 0;
}
