/**
 * The bytes of key boards and of the keys that point into them. Layout only: who writes is key-board.ts, who reads key-board-reader.ts.
 */

import { SECRET_BYTES } from './key-bytes.ts';
import { SEGMENT_NAME_BYTES } from './segment.ts';

/** Rows of a board. */
export const BOARD_ROWS = 1024;
/** Words of a row: two cache lines. */
const ROW_WORDS = 32;
const HEADER_WORDS = 32;
/** Bytes of a board. */
export const BOARD_BYTES: number = (HEADER_WORDS + BOARD_ROWS * ROW_WORDS) * 4;
/** Words of a row that belong to the transport. */
export const KEY_BOARD_PAYLOAD_WORDS = 24;
/** The device of memory without one. */
export const NO_DEVICE = 0xffff_ffff;

/** Words of the header: the version and the name of the memory domain in 16 bytes, then the number of rows. */
export const BoardWord = { TAG: 0, ROWS: 5 } as const;
/** Words of a row. A generation of 0 is a row that is free. */
export const RowWord = { GENERATION: 0, DEVICE: 1, LENGTH: 2, SECRET: 4, PAYLOAD: 8 } as const;

const BOARD_VERSION = 1;
const TAG_BYTES = 20;
const TAG_NAME_AT = 4;

/** Index of the first word of a row. */
export function rowAt(row: number): number {
  return HEADER_WORDS + row * ROW_WORDS;
}

/** What the first bytes of every board of a memory domain are. */
export function boardTag(mdName: string): Uint8Array {
  const tag = new Uint8Array(TAG_BYTES);
  tag[0] = BOARD_VERSION;
  for (let i = 0; i < mdName.length && TAG_NAME_AT + i < TAG_BYTES; i++) tag[TAG_NAME_AT + i] = mdName.charCodeAt(i);
  return tag;
}

/** Bytes of a packed key: version, device, row, generation, length, secret, name of the board. */
export const KEY_BOARD_KEY_BYTES = 72;

const KEY_VERSION = 1;
const AT_VERSION = 0;
const AT_DEVICE = 4;
const AT_ROW = 8;
const AT_GENERATION = 12;
const AT_LENGTH = 16;
const AT_SECRET = 24;
const AT_BOARD = 40;

/** The fields of a key. */
export interface BoardKeyFields {
  /** System device; {@link NO_DEVICE} for none. */
  readonly device: number;
  readonly row: number;
  readonly generation: number;
  readonly byteLength: number;
  readonly secret: Uint8Array;
  /** Packed name of the segment. */
  readonly board: Uint8Array;
}

/** Writes a key: {@link KEY_BOARD_KEY_BYTES} at `offset`. */
export function packBoardKey(key: BoardKeyFields, target: Uint8Array, offset: number): void {
  const view = new DataView(target.buffer, target.byteOffset + offset, KEY_BOARD_KEY_BYTES);
  view.setUint32(AT_VERSION, KEY_VERSION, true);
  view.setUint32(AT_DEVICE, key.device, true);
  view.setUint32(AT_ROW, key.row, true);
  view.setInt32(AT_GENERATION, key.generation, true);
  view.setBigUint64(AT_LENGTH, BigInt(key.byteLength), true);
  target.set(key.secret, offset + AT_SECRET);
  target.set(key.board, offset + AT_BOARD);
}

/** Reads a key; undefined for what is none of this version. */
export function unpackBoardKey(packed: Uint8Array): BoardKeyFields | undefined {
  if (!(packed instanceof Uint8Array) || packed.byteLength !== KEY_BOARD_KEY_BYTES) return undefined;
  const view = new DataView(packed.buffer, packed.byteOffset, KEY_BOARD_KEY_BYTES);
  const row = view.getUint32(AT_ROW, true);
  const generation = view.getInt32(AT_GENERATION, true);
  if (view.getUint32(AT_VERSION, true) !== KEY_VERSION || row >= BOARD_ROWS || generation <= 0) return undefined;
  return {
    device: view.getUint32(AT_DEVICE, true),
    row,
    generation,
    byteLength: Number(view.getBigUint64(AT_LENGTH, true)),
    secret: packed.slice(AT_SECRET, AT_SECRET + SECRET_BYTES),
    board: packed.slice(AT_BOARD, AT_BOARD + SEGMENT_NAME_BYTES),
  };
}
