/**
 * Remote keys of tcp: packing, unpacking, and the table in which the owner finds its memory by the words of a frame. A revoked or guessed key gives no access.
 *
 * Layout of a packed key, little-endian: u32 kind and version, u32 CRC-32 of what follows, u32 slot, u32 generation, 16 bytes secret, u64 length, 8 bytes id
 * of the table.
 */

import { crc32 } from 'node:zlib';
import { MemoryType } from '../../ucs/memory/memory-type.ts';
import { systemRandomBytes } from '../../ucs/sys/random.ts';
import { invalidParam, UcxError } from '../../ucs/type/error.ts';
import { Status } from '../../ucs/type/status.ts';
import type { RemoteKey } from '../api/memory.ts';
import { MemAccess } from '../api/memory-domain.ts';
import { isInside } from '../base/checks.ts';
import type { HostMemory } from '../base/host/memory.ts';
import { getLengthOf, KEY_WORDS, keyWordOf, offsetOf, valueIn } from './layout.ts';

/** Name of component, memory domain and transport. */
export const TCP_NAME = 'tcp';

/** Bytes of a packed key. */
export const TCP_KEY_BYTES = 48;

const KEY_KIND = 0x016b_6374;
const AT_CHECKSUM = 4;
const AT_WORDS = 8;
const AT_LENGTH = 32;
const AT_TABLE = 40;
const TABLE_ID_BYTES = 8;
const SECRET_WORDS = 4;
/** A slot with this generation is not reused, so that generations are unique. */
const GENERATION_MAX = 0x7fff_ffff;

/** A key of remote memory. */
export class TcpKey implements RemoteKey {
  readonly mdName: string = TCP_NAME;
  readonly memoryType: MemoryType = MemoryType.HOST;
  readonly sysDevice: undefined = undefined;
  readonly byteLength: number;
  /** The words for frames: slot, generation, secret. */
  readonly words: Int32Array;
  readonly #table: TcpKeyTable | undefined;
  #released = false;

  /** @param table the table of the key, if it is in this process */
  constructor(byteLength: number, words: Int32Array, table: TcpKeyTable | undefined) {
    this.byteLength = byteLength;
    this.words = words;
    this.#table = table;
  }

  /** False once the key was released or, for memory of this process, revoked. For other memory only the owner detects revocation. */
  get live(): boolean {
    return !this.#released && (this.#table === undefined || this.#table.find(this.words, 0, 0) !== undefined);
  }

  release(): void {
    this.#released = true;
  }
}

/** The table of the memory with keys. */
export class TcpKeyTable {
  /** By slot; slot 0 is not used. */
  readonly #memories: (HostMemory | undefined)[] = [undefined];
  /** {@link KEY_WORDS} words of each slot. */
  #words: Int32Array = new Int32Array(16 * KEY_WORDS);
  readonly #slots: Map<HostMemory, number> = new Map();
  readonly #free: number[] = [];
  /** Distinguishes keys of this table from those of others. */
  readonly #id: Uint8Array = systemRandomBytes(TABLE_ID_BYTES);

  /** Writes the key of `memory`; the bytes stay the same until it is revoked. */
  pack(memory: HostMemory, target: Uint8Array, offset: number): void {
    if (!(offset >= 0 && offset + TCP_KEY_BYTES <= target.byteLength)) {
      throw invalidParam('target', `must have ${TCP_KEY_BYTES} bytes at offset ${offset}`, target.byteLength);
    }
    const slot = this.#slots.get(memory) ?? this.#take(memory);
    const view = new DataView(target.buffer, target.byteOffset + offset, TCP_KEY_BYTES);
    view.setUint32(0, KEY_KIND, true);
    for (let i = 0; i < KEY_WORDS; i++) view.setInt32(AT_WORDS + 4 * i, this.#words[slot * KEY_WORDS + i]!, true);
    view.setBigUint64(AT_LENGTH, BigInt(memory.byteLength), true);
    target.set(this.#id, offset + AT_TABLE);
    view.setUint32(AT_CHECKSUM, checksumOf(target.subarray(offset, offset + TCP_KEY_BYTES)), true);
  }

  /**
   * Reads a packed key, of this table or that of a peer. Keys of peers are validated at use, by the owner.
   * @throws UcxError ERR_RKEY_MALFORMED (INVALID_PARAM); for keys of this table ERR_RKEY_STALE if the memory is no longer registered, and
   * ERR_RKEY_FORGED if the key was never issued (both INVALID_ADDR)
   */
  unpack(packed: Uint8Array): TcpKey {
    if (!(packed instanceof Uint8Array) || packed.byteLength !== TCP_KEY_BYTES) throw malformed();
    const view = new DataView(packed.buffer, packed.byteOffset, TCP_KEY_BYTES);
    const isIntact = view.getUint32(AT_CHECKSUM, true) === checksumOf(packed);
    const byteLength = Number(view.getBigUint64(AT_LENGTH, true));
    if (view.getUint32(0, true) !== KEY_KIND || !isIntact || !Number.isSafeInteger(byteLength)) throw malformed();
    const words = new Int32Array(KEY_WORDS);
    for (let i = 0; i < KEY_WORDS; i++) words[i] = view.getInt32(AT_WORDS + 4 * i, true);
    const isOwn = Buffer.compare(packed.subarray(AT_TABLE, AT_TABLE + TABLE_ID_BYTES), this.#id) === 0;
    if (isOwn) this.#check(words, byteLength);
    return new TcpKey(byteLength, words, isOwn ? this : undefined);
  }

  /** The memory for the words of a put; undefined if the key is stale or forged, or peers may not put to the memory. */
  findForPut(words: Int32Array, at: number): HostMemory | undefined {
    return this.find(words, at, MemAccess.REMOTE_PUT);
  }

  /** The memory for the words of a get; undefined if the key is stale or forged, or peers may not get from the memory. */
  findForGet(words: Int32Array, at: number): HostMemory | undefined {
    return this.find(words, at, MemAccess.REMOTE_GET);
  }

  /** The memory for the words of a key; undefined if it is stale or forged, or the memory does not permit the access (bits of MemAccess). */
  find(words: Int32Array, at: number, access: number): HostMemory | undefined {
    const slot = words[at]!;
    const memory = this.#memories[slot];
    if (memory === undefined) return undefined;
    const own = slot * KEY_WORDS;
    let difference = 0;
    for (let i = 0; i < KEY_WORDS; i++) difference |= words[at + i]! ^ this.#words[own + i]!;
    return difference === 0 && (memory.access & access) === access ? memory : undefined;
  }

  /** Invalidates the key of `memory`. */
  revoke(memory: HostMemory): void {
    const slot = this.#slots.get(memory);
    if (slot === undefined) return;
    this.#slots.delete(memory);
    this.#memories[slot] = undefined;
    if (this.#words[slot * KEY_WORDS + 1]! < GENERATION_MAX) this.#free.push(slot);
  }

  /** Rejects a key of this table that is invalid or stale. */
  #check(words: Int32Array, byteLength: number): void {
    if (this.find(words, 0, 0)?.byteLength === byteLength) return;
    const [slot, generation] = [words[0]!, words[1]!];
    const isCurrent = this.#memories[slot] !== undefined && this.#words[slot * KEY_WORDS + 1] === generation;
    if (isCurrent) throw refusal('ERR_RKEY_FORGED', 'does not match the key that was issued');
    throw refusal('ERR_RKEY_STALE', 'belongs to memory that is not registered any more');
  }

  #take(memory: HostMemory): number {
    const slot = this.#free.pop() ?? this.#memories.length;
    const at = slot * KEY_WORDS;
    if (at + KEY_WORDS > this.#words.length) {
      const grown = new Int32Array(this.#words.length * 2);
      grown.set(this.#words);
      this.#words = grown;
    }
    const secret = new Int32Array(systemRandomBytes(SECRET_WORDS * 4).slice().buffer);
    this.#words[at] = slot;
    this.#words[at + 1]! += 1;
    this.#words.set(secret, at + 2);
    this.#memories[slot] = memory;
    this.#slots.set(memory, slot);
    return slot;
  }
}

function checksumOf(packed: Uint8Array): number {
  return crc32(packed.subarray(AT_WORDS), crc32(packed.subarray(0, AT_CHECKSUM)));
}

function refusal(code: string, rule: string): UcxError {
  const message = `remote key of ${TCP_NAME} ${rule}`;
  return new UcxError({ code, status: Status.INVALID_ADDR, message, details: { md: TCP_NAME } });
}

function malformed(): UcxError {
  const message = `remote key of ${TCP_NAME} is not a remote key of this version: use the same version of gaudi-ucx at both ends`;
  return new UcxError({ code: 'ERR_RKEY_MALFORMED', status: Status.INVALID_PARAM, message, details: { md: TCP_NAME } });
}

/** The memory that a PUT writes; undefined for a key or a range that is not valid. */
export function memoryOfPut(keys: TcpKeyTable, words: Int32Array, at: number): HostMemory | undefined {
  return withRange(keys.findForPut(words, keyWordOf(at)), offsetOf(words, at), valueIn(words, at));
}

/** The memory that a GET reads; undefined for a key or a range that is not valid. */
export function memoryOfGet(keys: TcpKeyTable, words: Int32Array, at: number): HostMemory | undefined {
  return withRange(keys.findForGet(words, keyWordOf(at)), offsetOf(words, at), getLengthOf(words, at));
}

function withRange(memory: HostMemory | undefined, offset: number, byteLength: number): HostMemory | undefined {
  return memory !== undefined && isInside(offset, byteLength, memory.byteLength) ? memory : undefined;
}
