/**
 * The reading side of key boards: checks the keys of other memory domains of this node, and of this one, against the boards of their owners.
 */

import { UcxError } from '../../ucs/error.ts';
import { joinWords } from '../../ucs/int64.ts';
import { Status } from '../../ucs/status.ts';
import {
  BOARD_BYTES,
  type BoardKeyFields,
  BoardWord,
  boardTag,
  KEY_BOARD_PAYLOAD_WORDS,
  NO_DEVICE,
  RowWord,
  rowAt,
  unpackBoardKey,
} from './key-board-layout.ts';
import { SECRET_BYTES, sameSecret } from './key-bytes.ts';
import type { ProcessIdentity } from './process-identity.ts';
import { isLackOfResources, type Segment } from './segment.ts';
import { SegmentCache } from './segment-cache.ts';

/** Boards that stay attached without a key in use: one for each peer with which keys come and go. */
const IDLE_BOARDS_MAX = 16;

/** A key that was checked. */
export class PublishedKey {
  readonly byteLength: number;
  /** System device of the memory; undefined for host memory. */
  readonly device: number | undefined;
  readonly generation: number;
  /** The payload of the row: a copy. Written by another process: check it. */
  readonly payload: Int32Array;
  /** The process that published it. */
  readonly owner: ProcessIdentity;
  readonly #words: Int32Array;
  readonly #at: number;
  readonly #release: () => void;
  #released = false;

  constructor(key: BoardKeyFields, board: Segment, payload: Int32Array, release: () => void) {
    this.byteLength = key.byteLength;
    this.device = key.device === NO_DEVICE ? undefined : key.device;
    this.generation = key.generation;
    this.payload = payload;
    this.owner = board.owner;
    this.#words = board.words;
    this.#at = rowAt(key.row) + RowWord.GENERATION;
    this.#release = release;
  }

  /** False once the owner has revoked the key: one load, to be done before every use. */
  get live(): boolean {
    return this.#words[this.#at] === this.generation;
  }

  /** Gives the board back. Idempotent. The key must not be used any more. */
  release(): void {
    if (this.#released) return;
    this.#released = true;
    this.#release();
  }
}

/** The boards that one memory domain reads. */
export class KeyBoardReader {
  readonly #mdName: string;
  readonly #tag: Uint8Array;
  readonly #boards: SegmentCache;

  /** @param folder where the boards of peers are */
  constructor(mdName: string, folder?: string) {
    this.#boards = new SegmentCache(IDLE_BOARDS_MAX, folder);
    this.#mdName = mdName;
    this.#tag = boardTag(mdName);
  }

  /**
   * Checks a key. Release what it returns.
   * @param packed any bytes
   * @throws UcxError ERR_RKEY_MALFORMED (INVALID_PARAM) for what is no key; ERR_RKEY_STALE (INVALID_ADDR) when its memory is gone, or its
   *   owner, or the board is not to be seen from here; ERR_RKEY_FORGED (INVALID_ADDR) when it is not the key that was handed out; SyscallError EMFILE,
   *   ENFILE, ENOMEM of this process
   */
  open(packed: Uint8Array): PublishedKey {
    const key = unpackBoardKey(packed);
    if (key === undefined) {
      throw this.#refusal('ERR_RKEY_MALFORMED', Status.INVALID_PARAM, 'is not a remote key of this version');
    }
    const board = this.#attach(key);
    try {
      const payload = this.#check(key, board);
      return new PublishedKey(key, board, payload, () => this.#boards.release(board));
    } catch (error) {
      this.#boards.release(board);
      throw error;
    }
  }

  /** Detaches all boards; every key stops working. */
  close(): void {
    this.#boards.close();
  }

  #attach(key: BoardKeyFields): Segment {
    try {
      return this.#boards.acquire(key.board, BOARD_BYTES);
    } catch (error) {
      if (isLackOfResources(error)) throw error;
      const rule = 'belongs to a process that has ended, or that is not to be reached from here';
      throw this.#refusal('ERR_RKEY_STALE', Status.INVALID_ADDR, rule, error);
    }
  }

  /** The payload of the row, when it is still the one of the key. */
  #check(key: BoardKeyFields, { words, bytes, byteLength }: Segment): Int32Array {
    const isBoard = byteLength >= BOARD_BYTES && this.#tag.every((byte, i) => bytes[BoardWord.TAG * 4 + i] === byte);
    if (!isBoard) throw this.#forged(`does not belong to memory domain ${this.#mdName}`);
    const at = rowAt(key.row);
    const isCurrent = (): boolean => Atomics.load(words, at + RowWord.GENERATION) === key.generation;
    if (!isCurrent()) throw this.#stale();
    const row = words.slice(at, at + RowWord.PAYLOAD + KEY_BOARD_PAYLOAD_WORDS);
    // The owner may have revoked and reused the row meanwhile.
    if (!isCurrent()) throw this.#stale();
    const secret = new Uint8Array(row.buffer, RowWord.SECRET * 4, SECRET_BYTES);
    const length = joinWords(row[RowWord.LENGTH]!, row[RowWord.LENGTH + 1]!);
    const device = row[RowWord.DEVICE]! >>> 0;
    const isSame = length === key.byteLength && Number.isSafeInteger(length) && device === key.device;
    if (!sameSecret(secret, key.secret) || !isSame) throw this.#forged('does not match the key that was handed out');
    return row.slice(RowWord.PAYLOAD);
  }

  #stale(): UcxError {
    return this.#refusal('ERR_RKEY_STALE', Status.INVALID_ADDR, 'belongs to memory that is not registered any more');
  }

  #forged(rule: string): UcxError {
    return this.#refusal('ERR_RKEY_FORGED', Status.INVALID_ADDR, rule);
  }

  #refusal(code: string, status: Status, rule: string, cause?: unknown): UcxError {
    const message = `remote key of ${this.#mdName} ${rule}`;
    return new UcxError({ code, status, message, details: { md: this.#mdName }, cause });
  }
}
