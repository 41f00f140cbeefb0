/**
 * Published remote keys: the owner of memory keeps a row for each key in a shared segment (a *board*), which peers on this node read to
 * check a key and to learn what the key itself does not tell. A key stops working the moment its row is revoked. What the payload of a
 * row means is the transport's knowledge; how a peer reads a board is in key-board-reader.ts.
 */

import { invalidParam, statusError } from '../../ucs/error.ts';
import { highOf } from '../../ucs/int64.ts';
import { systemRandomBytes } from '../../ucs/random.ts';
import { Status } from '../../ucs/status.ts';
import type { MdMemory } from '../api/memory.ts';
import {
  BOARD_BYTES,
  BOARD_ROWS,
  BoardWord,
  boardTag,
  KEY_BOARD_KEY_BYTES,
  KEY_BOARD_PAYLOAD_WORDS,
  NO_DEVICE,
  packBoardKey,
  RowWord,
  rowAt,
} from './key-board-layout.ts';
import { SECRET_BYTES } from './key-bytes.ts';
import { Segment } from './segment.ts';

/** Boards of one memory domain at most; with all rows of them taken, publishing is refused with NO_RESOURCE. */
const BOARDS_MAX = 64;
/** Keys that a memory domain has published at most at one time. */
export const PUBLISHED_KEYS_MAX: number = BOARDS_MAX * BOARD_ROWS;
/** A row whose generation has come here is not used again, so that no generation comes twice. */
const GENERATION_MAX = 0x7fff_ffff;

/** A place for a key. */
interface Row {
  readonly board: Segment;
  readonly index: number;
  generation: number;
}

interface Entry {
  readonly row: Row;
  readonly packed: Uint8Array;
}

/** The published keys of one memory domain. */
export class KeyBoard<M extends MdMemory> {
  readonly #mdName: string;
  /** Where the boards are; the usual folder when undefined. */
  readonly #folder: string | undefined;
  readonly #boards: Segment[] = [];
  readonly #free: Row[] = [];
  readonly #published: Map<M, Entry> = new Map();

  /** @param mdName at most 16 ASCII characters; a board of one memory domain is none of another */
  constructor(mdName: string, folder?: string) {
    this.#folder = folder;
    this.#mdName = mdName;
  }

  /** Whether `memory` has a row. */
  has(memory: M): boolean {
    return this.#published.has(memory);
  }

  /**
   * Gives `memory` a row.
   * @param payload what peers learn besides length and device: at most {@link KEY_BOARD_PAYLOAD_WORDS} words, copied
   * @throws UcxError ERR_NO_RESOURCE with {@link PUBLISHED_KEYS_MAX} keys; ERR_INVALID_PARAM for a second time; SyscallError of the segment
   */
  publish(memory: M, payload: Int32Array): void {
    if (this.#published.has(memory)) throw invalidParam('memory', 'must not be published already', memory.address);
    if (payload.length > KEY_BOARD_PAYLOAD_WORDS) {
      throw invalidParam('payload', `must have at most ${KEY_BOARD_PAYLOAD_WORDS} words`, payload.length);
    }
    const row = this.#takeRow();
    const secret = systemRandomBytes(SECRET_BYTES);
    const device = memory.sysDevice ?? NO_DEVICE;
    const { byteLength } = memory;
    const { words, bytes, packedName } = row.board;
    const at = rowAt(row.index);
    row.generation += 1;
    words[at + RowWord.DEVICE] = device;
    words[at + RowWord.LENGTH] = byteLength;
    words[at + RowWord.LENGTH + 1] = highOf(byteLength);
    bytes.set(secret, (at + RowWord.SECRET) * 4);
    words.fill(0, at + RowWord.PAYLOAD, at + RowWord.PAYLOAD + KEY_BOARD_PAYLOAD_WORDS);
    words.set(payload, at + RowWord.PAYLOAD);
    // Last: a peer that sees the generation sees the row.
    Atomics.store(words, at + RowWord.GENERATION, row.generation);
    const packed = new Uint8Array(KEY_BOARD_KEY_BYTES);
    const { index, generation } = row;
    packBoardKey({ device, row: index, generation, byteLength, secret, board: packedName }, packed, 0);
    this.#published.set(memory, { row, packed });
  }

  /**
   * Writes the key of published memory: {@link KEY_BOARD_KEY_BYTES} at `offset`, the same bytes every time.
   * @throws UcxError ERR_INVALID_PARAM for memory that is not published, or a target without room
   */
  pack(memory: M, target: Uint8Array, offset: number): void {
    const entry = this.#published.get(memory);
    if (entry === undefined) throw invalidParam('memory', 'must be published', memory?.address);
    if (!(offset >= 0 && offset + KEY_BOARD_KEY_BYTES <= target.byteLength)) {
      throw invalidParam('target', `must have room for ${KEY_BOARD_KEY_BYTES} bytes at ${offset}`, target.byteLength);
    }
    target.set(entry.packed, offset);
  }

  /** Makes the keys of `memory` useless at once, here and in other processes. Memory that is not published is left alone. */
  revoke(memory: M): void {
    const entry = this.#published.get(memory);
    if (entry === undefined) return;
    this.#published.delete(memory);
    const { row } = entry;
    const at = rowAt(row.index);
    Atomics.store(row.board.words, at + RowWord.GENERATION, 0);
    row.board.bytes.fill(0, (at + RowWord.SECRET) * 4, (at + RowWord.SECRET) * 4 + SECRET_BYTES);
    if (row.generation < GENERATION_MAX) this.#free.push(row);
  }

  /** Revokes all keys and removes the boards. */
  close(): void {
    for (const memory of [...this.#published.keys()]) this.revoke(memory);
    for (const board of this.#boards) board.close();
    this.#boards.length = 0;
    this.#free.length = 0;
  }

  #takeRow(): Row {
    const row = this.#free.pop();
    if (row !== undefined) return row;
    if (this.#boards.length === BOARDS_MAX) {
      throw statusError(Status.NO_RESOURCE, `publish more than ${PUBLISHED_KEYS_MAX} keys of ${this.#mdName}`);
    }
    const board = Segment.create(BOARD_BYTES, this.#folder);
    board.words[BoardWord.ROWS] = BOARD_ROWS;
    board.bytes.set(boardTag(this.#mdName), BoardWord.TAG * 4);
    this.#boards.push(board);
    for (let index = BOARD_ROWS - 1; index > 0; index--) this.#free.push({ board, index, generation: 0 });
    return { board, index: 0, generation: 0 };
  }
}
