/**
 * Remote keys of a memory domain: packs them, and finds the memory of a key. A key has a fixed size: little-endian fields and a random secret, which the
 * memory domain that created it validates. Revoking memory invalidates its keys.
 */

import { isBytes } from '../../../ucs/memory/bytes.ts';
import { systemRandomBytes } from '../../../ucs/sys/random.ts';
import { UcxError } from '../../../ucs/type/error.ts';
import { Status } from '../../../ucs/type/status.ts';
import type { MdMemory } from '../../api/memory.ts';

const NO_DEVICE = 0xffff_ffff;

interface Entry<M extends MdMemory> {
  readonly memory: M;
  readonly key: KeyFields;
}

/** The keys of one memory domain. */
export class KeyTable<M extends MdMemory> {
  readonly #mdName: string;
  readonly #byId: Map<number, Entry<M>> = new Map();
  readonly #byMemory: Map<M, Entry<M>> = new Map();
  #nextId = 1;

  constructor(mdName: string) {
    this.#mdName = mdName;
  }

  /** Writes the key of `memory`; the bytes stay the same until it is revoked. */
  pack(memory: M, target: Uint8Array, offset: number): void {
    packKey(this.#entryOf(memory).key, target, offset);
  }

  /**
   * Finds the memory of a key.
   * @throws UcxError ERR_RKEY_MALFORMED (INVALID_PARAM), ERR_RKEY_STALE for revoked or freed memory, ERR_RKEY_FORGED for a wrong secret (both INVALID_ADDR)
   */
  find(packed: Uint8Array): M {
    const key = unpackKey(packed);
    if (key === undefined) {
      throw this.#refusal(
        'ERR_RKEY_MALFORMED',
        Status.INVALID_PARAM,
        'is not a remote key of this version: use the same version of gaudi-ucx at both ends',
        0,
      );
    }
    const entry = this.#byId.get(key.id);
    if (entry === undefined) {
      throw this.#refusal(
        'ERR_RKEY_STALE',
        Status.INVALID_ADDR,
        'belongs to memory that is not registered any more',
        key.id,
      );
    }
    if (!sameKey(entry.key, key)) {
      throw this.#refusal('ERR_RKEY_FORGED', Status.INVALID_ADDR, 'does not match the key that was issued', key.id);
    }
    return entry.memory;
  }

  /** Invalidates the keys of `memory`. */
  revoke(memory: M): void {
    const entry = this.#byMemory.get(memory);
    if (entry === undefined) return;
    this.#byMemory.delete(memory);
    this.#byId.delete(entry.key.id);
  }

  #entryOf(memory: M): Entry<M> {
    const known = this.#byMemory.get(memory);
    if (known !== undefined) return known;
    const { sysDevice, generation, byteLength } = memory;
    const id = this.#nextId++;
    const entry = { memory, key: { device: sysDevice ?? NO_DEVICE, id, generation, byteLength, secret: newSecret() } };
    this.#byMemory.set(memory, entry);
    this.#byId.set(id, entry);
    return entry;
  }

  #refusal(code: string, status: Status, rule: string, id: number): UcxError {
    const message = `remote key ${id} of ${this.#mdName} ${rule}`;
    return new UcxError({ code, status, message, details: { md: this.#mdName, id } });
  }
}

function sameKey(left: KeyFields, right: KeyFields): boolean {
  const same =
    left.device === right.device && left.generation === right.generation && left.byteLength === right.byteLength;
  return sameSecret(left.secret, right.secret) && same;
}

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
interface KeyFields {
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
