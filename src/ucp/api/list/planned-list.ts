/** The blocks of a list as an engine moves them, and the memory and keys that they use: of one move, or prepared for many. */

import { closedError, invalidParam } from '../../../ucs/type/error.ts';
import { THREAD_BOUND } from '../../../ucs/type/thread-bound.ts';
import { holdsBytes, hostBytes } from '../memory/local-bytes.ts';
import { OwnedMemory } from '../memory/owned-memory.ts';
import type { PreparedList } from '../operation/list.ts';
import type { LocalMemory, RemoteKey } from '../operation/memory.ts';
import { entryError, type ListBlock } from './check-list.ts';

/** Memory of a list, with its length when the list was checked, and the first entry that uses it. */
interface UsedMemory {
  readonly local: LocalMemory;
  readonly byteLength: number;
  readonly entry: number;
}

/** A key of a list, with the first entry that uses it. */
interface UsedKey {
  readonly rkey: RemoteKey;
  readonly entry: number;
}

/** A planned list. */
export class PlannedList<B extends ListBlock = ListBlock> implements PreparedList {
  /** Marks the object as bound to the thread that made it. */
  readonly thread: symbol = THREAD_BOUND;
  readonly operation: 'put' | 'get';
  /** The endpoint or connection that it is for. */
  readonly owner: object;
  readonly blocks: readonly B[];
  readonly byteLength: number;
  readonly #memories: UsedMemory[] = [];
  readonly #keys: UsedKey[] = [];

  constructor(operation: 'put' | 'get', owner: object, blocks: readonly B[]) {
    this.operation = operation;
    this.owner = owner;
    this.blocks = blocks;
    let sum = 0;
    let last: B | undefined;
    const seen = new Set<object>();
    for (const block of blocks) {
      const { local, rkey, entry, byteLength } = block;
      sum += byteLength;
      if (local !== last?.local && !seen.has(local)) {
        seen.add(local);
        this.#memories.push({ local, byteLength: local.byteLength, entry });
      }
      if (rkey !== last?.rkey && !seen.has(rkey)) {
        seen.add(rkey);
        this.#keys.push({ rkey, entry });
      }
      last = block;
    }
    this.byteLength = sum;
  }

  get blockCount(): number {
    return this.blocks.length;
  }

  /** False if any of its memory was detached or shortened. */
  get isIntact(): boolean {
    return this.#memories.every(isIntact);
  }

  /**
   * Checks a prepared list before a move.
   * @throws UcxError ERR_CLOSED or ERR_INVALID_PARAM; the details name the entry
   */
  check(operation: 'put' | 'get', owner: object): void {
    if (this.operation !== operation || this.owner !== owner) {
      throw invalidParam('list', `must be prepared for ${operation} by this endpoint`, this.operation);
    }
    for (const { rkey, entry } of this.#keys) if (rkey.released) throw entryError(entry, closedError('remote key'));
    for (const used of this.#memories) {
      const { local, entry } = used;
      if (OwnedMemory.isGenuine(local) && !local.mapped) {
        throw entryError(entry, local.unmappedError('local memory'));
      }
      if (isIntact(used)) continue;
      const rule = 'must keep the length that it was prepared with: its ArrayBuffer was detached or shortened';
      throw entryError(entry, invalidParam('local', rule, hostBytes(local)?.byteLength));
    }
  }

  /** Bytes of the blocks with the given numbers; of all without. */
  bytesOf(selected: ArrayLike<number> | undefined): number {
    if (selected === undefined) return this.byteLength;
    let sum = 0;
    for (let i = 0; i < selected.length; i++) sum += this.blocks[selected[i]!]!.byteLength;
    return sum;
  }
}

function isIntact({ local, byteLength }: UsedMemory): boolean {
  return holdsBytes(hostBytes(local), 0, byteLength);
}
