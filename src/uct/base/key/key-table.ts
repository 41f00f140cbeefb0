/**
 * The memory for which a memory domain has created remote keys: packs keys, and finds the memory of a key. Revoking memory invalidates its keys. The
 * transport uses the memory.
 */

import { UcxError } from '../../../ucs/type/error.ts';
import { Status } from '../../../ucs/type/status.ts';
import type { MdMemory } from '../../api/memory.ts';
import { type KeyFields, newSecret, packKey, sameSecret, unpackKey } from './key-bytes.ts';

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
      throw this.#refusal('ERR_RKEY_MALFORMED', Status.INVALID_PARAM, 'is not a remote key of this version', 0);
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
      throw this.#refusal('ERR_RKEY_FORGED', Status.INVALID_ADDR, 'does not match the key that was handed out', key.id);
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
