/**
 * Published remote keys: the owner of memory stores a slot for each key in a shared segment (an *rkey table*). Peers on this host read it to validate a
 * key and to get its payload (rkey-table-reader.ts). Revoking the slot invalidates the key at once. Also the layout of tables and of keys that refer to
 * them.
 */

import { isBytes } from '../../../ucs/memory/bytes.ts';
import { systemRandomBytes } from '../../../ucs/sys/random.ts';
import { invalidParam, statusError } from '../../../ucs/type/error.ts';
import { highOf } from '../../../ucs/type/int64.ts';
import { Status } from '../../../ucs/type/status.ts';
import type { MdMemory } from '../../api/memory.ts';
import { SECRET_BYTES } from './keys.ts';
import { Segment, type SegmentOptions } from './segment.ts';
import { SEGMENT_NAME_BYTES } from './segment-name.ts';

/** Slots of an rkey table. */
const TABLE_SLOTS = 1024;
/** Words of a slot: two cache lines. */
const SLOT_WORDS = 32;
const HEADER_WORDS = 32;
/** Bytes of an rkey table. */
export const TABLE_BYTES: number = (HEADER_WORDS + TABLE_SLOTS * SLOT_WORDS) * 4;
/** Words of a slot for the payload of the transport. */
export const RKEY_TABLE_PAYLOAD_WORDS = 24;
/** Device number of host memory. */
export const NO_DEVICE = 0xffff_ffff;

/** Words of the header: the version and the name of the memory domain in 16 bytes, then the number of slots. */
export const TableWord = { TAG: 0, SLOTS: 5 } as const;
/** Words of a slot. A free slot has generation 0. */
export const SlotWord = { GENERATION: 0, DEVICE: 1, LENGTH: 2, SECRET: 4, PAYLOAD: 8 } as const;

const TABLE_VERSION = 1;
const TAG_BYTES = 20;
const TAG_NAME_AT = 4;

/** Index of the first word of a slot. */
export function slotAt(slot: number): number {
  return HEADER_WORDS + slot * SLOT_WORDS;
}

/** The first bytes of every rkey table of a memory domain. */
export function tableTag(mdName: string): Uint8Array {
  const tag = new Uint8Array(TAG_BYTES);
  tag[0] = TABLE_VERSION;
  for (let i = 0; i < mdName.length && TAG_NAME_AT + i < TAG_BYTES; i++) tag[TAG_NAME_AT + i] = mdName.charCodeAt(i);
  return tag;
}

/** Bytes of a packed key: version, device, slot, generation, length, secret, name of the rkey table. */
export const RKEY_TABLE_KEY_BYTES = 72;

const KEY_VERSION = 1;
const AT_VERSION = 0;
const AT_DEVICE = 4;
const AT_SLOT = 8;
const AT_GENERATION = 12;
const AT_LENGTH = 16;
const AT_SECRET = 24;
const AT_TABLE = 40;

/** The fields of a key. */
export interface TableKeyFields {
  /** System device; {@link NO_DEVICE} for none. */
  readonly device: number;
  readonly slot: number;
  readonly generation: number;
  readonly byteLength: number;
  readonly secret: Uint8Array;
  /** Packed name of the segment. */
  readonly table: Uint8Array;
}

/** Writes a key: {@link RKEY_TABLE_KEY_BYTES} at `offset`. */
function packTableKey(key: TableKeyFields, target: Uint8Array, offset: number): void {
  const view = new DataView(target.buffer, target.byteOffset + offset, RKEY_TABLE_KEY_BYTES);
  view.setUint32(AT_VERSION, KEY_VERSION, true);
  view.setUint32(AT_DEVICE, key.device, true);
  view.setUint32(AT_SLOT, key.slot, true);
  view.setInt32(AT_GENERATION, key.generation, true);
  view.setBigUint64(AT_LENGTH, BigInt(key.byteLength), true);
  target.set(key.secret, offset + AT_SECRET);
  target.set(key.table, offset + AT_TABLE);
}

/** Reads a key; undefined if it is not of this version. */
export function unpackTableKey(packed: Uint8Array): TableKeyFields | undefined {
  if (!isBytes(packed) || packed.byteLength !== RKEY_TABLE_KEY_BYTES) return undefined;
  const view = new DataView(packed.buffer, packed.byteOffset, RKEY_TABLE_KEY_BYTES);
  const slot = view.getUint32(AT_SLOT, true);
  const generation = view.getInt32(AT_GENERATION, true);
  if (view.getUint32(AT_VERSION, true) !== KEY_VERSION || slot >= TABLE_SLOTS || generation <= 0) return undefined;
  return {
    device: view.getUint32(AT_DEVICE, true),
    slot,
    generation,
    byteLength: Number(view.getBigUint64(AT_LENGTH, true)),
    secret: packed.slice(AT_SECRET, AT_SECRET + SECRET_BYTES),
    table: packed.slice(AT_TABLE, AT_TABLE + SEGMENT_NAME_BYTES),
  };
}

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
   * @throws UcxError ERR_INVALID_PARAM for memory that is not published, or a target that is too short
   */
  pack(memory: M, target: Uint8Array, offset: number): void {
    const entry = this.#published.get(memory);
    if (entry === undefined) throw invalidParam('memory', 'must be published', memory?.address);
    if (!(offset >= 0 && offset + RKEY_TABLE_KEY_BYTES <= target.byteLength)) {
      throw invalidParam('target', `must have ${RKEY_TABLE_KEY_BYTES} bytes at offset ${offset}`, target.byteLength);
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
