/**
 * Published remote keys: the owner of memory stores a slot for each key in a shared segment (an *rkey table*). Peers on this node read it to validate a key
 * and to get its payload. Revoking the slot invalidates the key at once. The transport defines the payload; reading is in rkey-table-reader.ts.
 */

import { systemRandomBytes } from '../../../ucs/sys/random.ts';
import { invalidParam, statusError } from '../../../ucs/type/error.ts';
import { highOf } from '../../../ucs/type/int64.ts';
import { Status } from '../../../ucs/type/status.ts';
import type { MdMemory } from '../../api/memory.ts';
import { SECRET_BYTES } from './key-bytes.ts';
import {
  NO_DEVICE,
  packTableKey,
  RKEY_TABLE_KEY_BYTES,
  RKEY_TABLE_PAYLOAD_WORDS,
  SlotWord,
  slotAt,
  TABLE_BYTES,
  TABLE_SLOTS,
  TableWord,
  tableTag,
} from './rkey-table-layout.ts';
import { Segment, type SegmentOptions } from './segment.ts';

/** Maximum number of rkey tables of one memory domain. If all slots are used, publishing fails with NO_RESOURCE. */
const TABLES_MAX = 64;
/** Maximum number of published keys of a memory domain. */
export const PUBLISHED_KEYS_MAX: number = TABLES_MAX * TABLE_SLOTS;
/** A slot with this generation is not reused, so that generations are unique. */
const GENERATION_MAX = 0x7fff_ffff;

/** A slot of a table, for one key. */
interface Slot {
  readonly table: Segment;
  readonly index: number;
  generation: number;
}

interface Entry {
  readonly slot: Slot;
  readonly packed: Uint8Array;
}

/** The published keys of one memory domain. */
export class RkeyTable<M extends MdMemory> {
  readonly #mdName: string;
  readonly #options: SegmentOptions;
  readonly #tables: Segment[] = [];
  readonly #free: Slot[] = [];
  readonly #published: Map<M, Entry> = new Map();

  /**
   * @param mdName at most 16 ASCII characters; rkey tables of other memory domains are not accepted
   * @param options how the tables are shared
   */
  constructor(mdName: string, options: SegmentOptions = {}) {
    this.#options = options;
    this.#mdName = mdName;
  }

  /** Whether `memory` has a slot. */
  has(memory: M): boolean {
    return this.#published.has(memory);
  }

  /**
   * Publishes `memory` in a slot.
   * @param payload data for peers besides length and device: at most {@link RKEY_TABLE_PAYLOAD_WORDS} words, copied
   * @throws UcxError ERR_NO_RESOURCE with {@link PUBLISHED_KEYS_MAX} keys; ERR_INVALID_PARAM if it is already published; SyscallError of the segment
   */
  publish(memory: M, payload: Int32Array): void {
    if (this.#published.has(memory)) throw invalidParam('memory', 'must not be published already', memory.address);
    if (payload.length > RKEY_TABLE_PAYLOAD_WORDS) {
      throw invalidParam('payload', `must have at most ${RKEY_TABLE_PAYLOAD_WORDS} words`, payload.length);
    }
    const slot = this.#takeSlot();
    const secret = systemRandomBytes(SECRET_BYTES);
    const device = memory.sysDevice ?? NO_DEVICE;
    const { byteLength } = memory;
    const { words, bytes, packedName } = slot.table;
    const at = slotAt(slot.index);
    slot.generation += 1;
    words[at + SlotWord.DEVICE] = device;
    words[at + SlotWord.LENGTH] = byteLength;
    words[at + SlotWord.LENGTH + 1] = highOf(byteLength);
    bytes.set(secret, (at + SlotWord.SECRET) * 4);
    words.fill(0, at + SlotWord.PAYLOAD, at + SlotWord.PAYLOAD + RKEY_TABLE_PAYLOAD_WORDS);
    words.set(payload, at + SlotWord.PAYLOAD);
    // Stored last: a peer that sees the generation sees the complete slot.
    Atomics.store(words, at + SlotWord.GENERATION, slot.generation);
    const packed = new Uint8Array(RKEY_TABLE_KEY_BYTES);
    const { index, generation } = slot;
    packTableKey({ device, slot: index, generation, byteLength, secret, table: packedName }, packed, 0);
    this.#published.set(memory, { slot, packed });
  }

  /**
   * Writes the key of published memory: {@link RKEY_TABLE_KEY_BYTES} at `offset`, the same bytes every time.
   * @throws UcxError ERR_INVALID_PARAM for memory that is not published, or a target without room
   */
  pack(memory: M, target: Uint8Array, offset: number): void {
    const entry = this.#published.get(memory);
    if (entry === undefined) throw invalidParam('memory', 'must be published', memory?.address);
    if (!(offset >= 0 && offset + RKEY_TABLE_KEY_BYTES <= target.byteLength)) {
      throw invalidParam('target', `must have room for ${RKEY_TABLE_KEY_BYTES} bytes at ${offset}`, target.byteLength);
    }
    target.set(entry.packed, offset);
  }

  /** Invalidates the keys of `memory` at once, in all processes. No effect on memory that is not published. */
  revoke(memory: M): void {
    const entry = this.#published.get(memory);
    if (entry === undefined) return;
    this.#published.delete(memory);
    const { slot } = entry;
    const at = slotAt(slot.index);
    Atomics.store(slot.table.words, at + SlotWord.GENERATION, 0);
    slot.table.bytes.fill(0, (at + SlotWord.SECRET) * 4, (at + SlotWord.SECRET) * 4 + SECRET_BYTES);
    if (slot.generation < GENERATION_MAX) this.#free.push(slot);
  }

  /** Revokes all keys and removes the rkey tables. */
  close(): void {
    for (const memory of [...this.#published.keys()]) this.revoke(memory);
    for (const table of this.#tables) table.close();
    this.#tables.length = 0;
    this.#free.length = 0;
  }

  #takeSlot(): Slot {
    const slot = this.#free.pop();
    if (slot !== undefined) return slot;
    if (this.#tables.length === TABLES_MAX) {
      throw statusError(Status.NO_RESOURCE, `publish more than ${PUBLISHED_KEYS_MAX} keys of ${this.#mdName}`);
    }
    const table = Segment.create(TABLE_BYTES, this.#options);
    table.words[TableWord.SLOTS] = TABLE_SLOTS;
    table.bytes.set(tableTag(this.#mdName), TableWord.TAG * 4);
    this.#tables.push(table);
    for (let index = TABLE_SLOTS - 1; index > 0; index--) this.#free.push({ table, index, generation: 0 });
    return { table, index: 0, generation: 0 };
  }
}
