/** Copies between byte arrays, without an engine call for a few bytes. It does not check ranges. */

/** Up to this length a loop over bytes is faster than `set`, which takes 13 ns. */
const WHOLE_LOOP_BYTES_MAX = 12;
/** The same if only a part of the source is copied: `set` needs a view of it, which takes 25 ns to make. */
const PART_LOOP_BYTES_MAX = 32;
/** Up to these lengths the loop over words of {@link storeWords} is faster. */
const WHOLE_WORDS_BYTES_MAX = 24;
const PART_WORDS_BYTES_MAX = 64;

/** Copies `byteLength` bytes between ranges that do not overlap, like memcpy; as fast as memcpy from 1 KiB up. */
export function copyBytes(target: Uint8Array, to: number, source: Uint8Array, from: number, byteLength: number): void {
  const isWhole = from === 0 && byteLength === source.length;
  if (byteLength <= (isWhole ? WHOLE_LOOP_BYTES_MAX : PART_LOOP_BYTES_MAX)) {
    for (let i = 0; i < byteLength; i++) target[to + i] = source[from + i]!;
  } else {
    target.set(isWhole ? source : source.subarray(from, from + byteLength), to);
  }
}

/** Holds a few bytes between their load and their store. */
const scratch = new Uint8Array(PART_LOOP_BYTES_MAX);

/** Like {@link copyBytes} for ranges that may overlap, like memmove. */
export function moveBytes(target: Uint8Array, to: number, source: Uint8Array, from: number, byteLength: number): void {
  const isWhole = from === 0 && byteLength === source.length;
  if (byteLength <= (isWhole ? WHOLE_LOOP_BYTES_MAX : PART_LOOP_BYTES_MAX)) {
    for (let i = 0; i < byteLength; i++) scratch[i] = source[from + i]!;
    for (let i = 0; i < byteLength; i++) target[to + i] = scratch[i]!;
  } else {
    target.set(isWhole ? source : source.subarray(from, from + byteLength), to);
  }
}

/**
 * Copies bytes to memory that another processor may be reading. Writes a few of them as whole words, because every separate store would have to fetch the
 * cache line back from the reader.
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
  const isWhole = from === 0 && byteLength === source.length;
  if (byteLength > (isWhole ? WHOLE_WORDS_BYTES_MAX : PART_WORDS_BYTES_MAX)) {
    bytes.set(isWhole ? source : source.subarray(from, from + byteLength), word * 4);
    return;
  }
  const rounded = byteLength & ~3;
  const end = from + rounded;
  let to = word;
  for (let at = from; at < end; at += 4, to++) {
    words[to] = source[at]! | (source[at + 1]! << 8) | (source[at + 2]! << 16) | (source[at + 3]! << 24);
  }
  for (let i = rounded; i < byteLength; i++) bytes[word * 4 + i] = source[from + i]!;
}
