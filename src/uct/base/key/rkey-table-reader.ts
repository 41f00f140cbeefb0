/** Reads rkey tables: validates keys of memory domains on this host against the tables of their owners. */

import type { ProcessIdentity } from '../../../sys/index.ts';
import { UcxError } from '../../../ucs/type/error.ts';
import { joinWords } from '../../../ucs/type/int64.ts';
import { Status } from '../../../ucs/type/status.ts';
import { SECRET_BYTES, sameSecret } from './keys.ts';
import {
  NO_DEVICE,
  RKEY_TABLE_PAYLOAD_WORDS,
  SlotWord,
  slotAt,
  TABLE_BYTES,
  type TableKeyFields,
  TableWord,
  tableTag,
  unpackTableKey,
} from './rkey-table.ts';
import { isLackOfResources, type Segment, SegmentCache } from './segment.ts';

/** Number of rkey tables that stay attached without a key in use: one for each peer whose keys are unpacked and released repeatedly. */
const IDLE_TABLES_MAX = 16;

/** A validated key. */
export class PublishedKey {
  readonly byteLength: number;
  /** System device of the memory; undefined for host memory. */
  readonly device: number | undefined;
  readonly generation: number;
  /** A copy of the payload of the slot. Another process wrote it, so it must be validated. */
  readonly payload: Int32Array;
  /** The process that has published the key. */
  readonly owner: ProcessIdentity;
  readonly #words: Int32Array;
  readonly #at: number;
  readonly #release: () => void;
  #released = false;

  constructor(key: TableKeyFields, table: Segment, payload: Int32Array, release: () => void) {
    this.byteLength = key.byteLength;
    this.device = key.device === NO_DEVICE ? undefined : key.device;
    this.generation = key.generation;
    this.payload = payload;
    this.owner = table.owner;
    this.#words = table.words;
    this.#at = slotAt(key.slot) + SlotWord.GENERATION;
    this.#release = release;
  }

  /** False once the owner has revoked the key. One load; must be checked before every use. */
  get live(): boolean {
    return this.#words[this.#at] === this.generation;
  }

  /** Releases the rkey table. Idempotent. The key must not be used afterwards. */
  release(): void {
    if (this.#released) return;
    this.#released = true;
    this.#release();
  }
}

/** The rkey tables that one memory domain reads. */
export class RkeyTableReader {
  readonly #mdName: string;
  readonly #tag: Uint8Array;
  readonly #tables: SegmentCache;

  /** @param folder folder of the rkey tables of peers */
  constructor(mdName: string, folder?: string) {
    this.#tables = new SegmentCache(IDLE_TABLES_MAX, folder);
    this.#mdName = mdName;
    this.#tag = tableTag(mdName);
  }

  /**
   * Validates a key. The result must be released.
   * @param packed any bytes
   * @throws UcxError ERR_RKEY_MALFORMED (INVALID_PARAM) for invalid bytes; ERR_RKEY_STALE (INVALID_ADDR) if its memory was released, its owner has ended, or
   * the rkey table is not accessible from this process; ERR_RKEY_FORGED (INVALID_ADDR) if it differs from the issued key; SyscallError EMFILE, ENFILE,
   * ENOMEM of this process
   */
  open(packed: Uint8Array): PublishedKey {
    const key = unpackTableKey(packed);
    if (key === undefined) {
      throw this.#refusal(
        'ERR_RKEY_MALFORMED',
        Status.INVALID_PARAM,
        'is not a remote key of this version: use the same version of gaudi-ucx at both ends',
      );
    }
    const table = this.#attach(key);
    try {
      const payload = this.#check(key, table);
      return new PublishedKey(key, table, payload, () => this.#tables.release(table));
    } catch (error) {
      this.#tables.release(table);
      throw error;
    }
  }

  /** Detaches all rkey tables, which invalidates every key. */
  close(): void {
    this.#tables.close();
  }

  #attach(key: TableKeyFields): Segment {
    try {
      return this.#tables.acquire(key.table, TABLE_BYTES);
    } catch (error) {
      if (isLackOfResources(error)) throw error;
      const rule = 'belongs to a process that has ended, or whose shared memory this process cannot access';
      throw this.#refusal('ERR_RKEY_STALE', Status.INVALID_ADDR, rule, error);
    }
  }

  /** The payload of the slot, if the slot still belongs to the key. */
  #check(key: TableKeyFields, { words, bytes, byteLength }: Segment): Int32Array {
    const isTable = byteLength >= TABLE_BYTES && this.#tag.every((byte, i) => bytes[TableWord.TAG * 4 + i] === byte);
    if (!isTable) throw this.#forged(`does not belong to memory domain ${this.#mdName}`);
    const at = slotAt(key.slot);
    const isCurrent = (): boolean => Atomics.load(words, at + SlotWord.GENERATION) === key.generation;
    if (!isCurrent()) throw this.#stale();
    const slot = words.slice(at, at + SlotWord.PAYLOAD + RKEY_TABLE_PAYLOAD_WORDS);
    // The owner may have revoked and reused the slot in the meantime.
    if (!isCurrent()) throw this.#stale();
    const secret = new Uint8Array(slot.buffer, SlotWord.SECRET * 4, SECRET_BYTES);
    const length = joinWords(slot[SlotWord.LENGTH]!, slot[SlotWord.LENGTH + 1]!);
    const device = slot[SlotWord.DEVICE]! >>> 0;
    const isSame = length === key.byteLength && Number.isSafeInteger(length) && device === key.device;
    if (!sameSecret(secret, key.secret) || !isSame) throw this.#forged('does not match the key that was issued');
    return slot.slice(SlotWord.PAYLOAD);
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
