/**
 * Copies and compares short byte arrays without a call of C++, which costs more than a loop; checks that a value is a byte array whose buffer is neither
 * detached nor shortened.
 */

import { types } from 'node:util';

/** Up to this length a loop over bytes is faster than `set`, which takes 13 ns. */
const ALL_LOOP_BYTES_MAX = 12;
/** The same for a source that is copied in part: `set` needs a view of the range, which takes 25 ns to make. */
const PART_LOOP_BYTES_MAX = 32;
/** Up to these lengths the word loop of {@link storeWords} is faster. */
const ALL_WORDS_BYTES_MAX = 32;
const PART_WORDS_BYTES_MAX = 64;

/** Copies `byteLength` bytes between ranges that do not overlap, like memcpy; as fast as memcpy from 1 KiB up. */
export function copyBytes(target: Uint8Array, to: number, source: Uint8Array, from: number, byteLength: number): void {
  if (isLoopFaster(source, from, byteLength)) {
    for (let i = 0; i < byteLength; i++) target[to + i] = source[from + i]!;
  } else {
    target.set(rangeOf(source, from, byteLength), to);
  }
}

/** Holds the bytes between their load and their store. */
const scratch = new Uint8Array(PART_LOOP_BYTES_MAX);

/** Like {@link copyBytes} for ranges that may overlap, like memmove. */
export function moveBytes(target: Uint8Array, to: number, source: Uint8Array, from: number, byteLength: number): void {
  if (isLoopFaster(source, from, byteLength)) {
    for (let i = 0; i < byteLength; i++) scratch[i] = source[from + i]!;
    for (let i = 0; i < byteLength; i++) target[to + i] = scratch[i]!;
  } else {
    target.set(rangeOf(source, from, byteLength), to);
  }
}

/**
 * Copies bytes to memory that another processor may be reading. A few bytes are written as whole words, because each separate store may fetch the cache line
 * back from the reader.
 * @param words all of the memory
 * @param word index of the first word to write
 * @param bytes the same memory as bytes
 */
export function storeWords(
  words: Int32Array,
  word: number,
  bytes: Uint8Array,
  source: Uint8Array,
  from: number,
  byteLength: number,
): void {
  if (byteLength > ALL_WORDS_BYTES_MAX && (byteLength > PART_WORDS_BYTES_MAX || isAll(source, from, byteLength))) {
    bytes.set(rangeOf(source, from, byteLength), word * 4);
    return;
  }
  const whole = byteLength & ~3;
  const end = from + whole;
  let to = word;
  for (let at = from; at < end; at += 4, to++) {
    words[to] = source[at]! | (source[at + 1]! << 8) | (source[at + 2]! << 16) | (source[at + 3]! << 24);
  }
  for (let i = whole; i < byteLength; i++) bytes[word * 4 + i] = source[from + i]!;
}

function isLoopFaster(source: Uint8Array, from: number, byteLength: number): boolean {
  return byteLength <= ALL_LOOP_BYTES_MAX || (byteLength <= PART_LOOP_BYTES_MAX && !isAll(source, from, byteLength));
}

function isAll({ length }: Uint8Array, from: number, byteLength: number): boolean {
  return from === 0 && byteLength === length;
}

/** A range, as a source of `set`. */
function rangeOf(source: Uint8Array, from: number, byteLength: number): Uint8Array {
  return isAll(source, from, byteLength) ? source : source.subarray(from, from + byteLength);
}

/** Whether two arrays have the same bytes. */
export function equalBytes(left: Uint8Array, right: Uint8Array): boolean {
  if (left.length !== right.length) return false;
  for (let i = 0; i < left.length; i++) if (left[i] !== right[i]) return false;
  return true;
}

/**
 * Whether `bytes` has at least `end` bytes, without a call. True for 0 even if its buffer is detached.
 *
 * It reads the last byte, because in V8 11.3 (Node.js 20) `byteLength` calls two builtins (10 ns), and compiled code that has seen an array of a resizable
 * ArrayBuffer reads the former `length` of a detached array.
 */
export function hasBytes(bytes: Uint8Array, end: number): boolean {
  return end === 0 || bytes[end - 1] !== undefined;
}

/**
 * Whether a value is a Uint8Array or an instance of a subclass such as Buffer, also from another realm. False for proxies and for objects that only have the
 * prototype, whose properties throw. As fast as `instanceof`.
 */
export function isBytes(value: unknown): value is Uint8Array {
  return types.isUint8Array(value);
}

/** True for an ArrayBuffer whose length can change (ES2024), also for a SharedArrayBuffer that grows. */
export function isResizable(buffer: ArrayBufferLike): boolean {
  const candidate = buffer as { readonly resizable?: boolean; readonly growable?: boolean };
  return candidate.resizable === true || candidate.growable === true;
}
