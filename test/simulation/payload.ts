/** The bytes of messages: identified by a number, and different at any other offset. */

import { createRandom } from '../../src/ucs/sys/random.ts';

const TABLE_BYTES = 2 ** 17;
const TABLE: Uint8Array = createRandom(20_240).bytes(TABLE_BYTES);
/** Period of the pattern: a prime number. */
const PERIOD = 65_521;
/** Contents of unwritten memory. */
export const UNTOUCHED = 0xee;
/** Bytes of the number at the beginning. */
export const ID_BYTES = 8;

/** The bytes of message `id`. An empty message has no number. */
export function payload(id: number, byteLength: number): Uint8Array {
  const bytes = streamBytes(id, 0, byteLength);
  if (byteLength >= ID_BYTES) new DataView(bytes.buffer).setFloat64(0, id, true);
  return bytes;
}

/** Bytes `[from, from + byteLength)` of the endless stream `id`. */
export function streamBytes(id: number, from: number, byteLength: number): Uint8Array {
  const bytes = new Uint8Array(byteLength);
  for (let done = 0; done < byteLength; ) {
    const start = (id * 977 + from + done) % PERIOD;
    const part = Math.min(byteLength - done, PERIOD - start);
    bytes.set(TABLE.subarray(start, start + part), done);
    done += part;
  }
  return bytes;
}

/** The number in the first bytes of a message. */
export function idOf(bytes: Uint8Array): number {
  return bytes.byteLength < ID_BYTES ? -1 : new DataView(bytes.buffer, bytes.byteOffset).getFloat64(0, true);
}

/** A description of different bytes; undefined if they are as expected. */
export function differenceOf(actual: Uint8Array, expected: Uint8Array): string | undefined {
  if (Buffer.compare(actual, expected) === 0) return undefined;
  const at = actual.findIndex((byte, i) => byte !== expected[i]);
  return `byte ${at} of ${expected.byteLength} (${actual.byteLength}) is ${actual[at]}, not ${expected[at]}`;
}

const NOTHING: Uint8Array = new Uint8Array(TABLE_BYTES).fill(UNTOUCHED);

/** Whether a part of memory that was created by {@link untouched} is unwritten. */
export function isUntouched(bytes: Uint8Array, from: number, to: number = bytes.byteLength): boolean {
  return Buffer.compare(bytes.subarray(from, to), NOTHING.subarray(0, to - from)) === 0;
}

/** New unwritten memory. */
export function untouched(byteLength: number): Uint8Array {
  return NOTHING.slice(0, byteLength);
}
