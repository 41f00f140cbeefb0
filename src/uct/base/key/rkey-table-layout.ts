/** Layout of rkey tables and of keys that refer to them. Written by rkey-table.ts, read by rkey-table-reader.ts. */

import { isBytes } from '../../../ucs/memory/is-bytes.ts';
import { SECRET_BYTES } from './key-bytes.ts';
import { SEGMENT_NAME_BYTES } from './segment-name.ts';

/** Slots of an rkey table. */
export const TABLE_SLOTS = 1024;
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
export function packTableKey(key: TableKeyFields, target: Uint8Array, offset: number): void {
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
