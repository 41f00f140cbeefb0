/**
 * The payload of a published key of gaudi_ipc, besides device and length: arena and offset of the memory, its card, and the channel service of its owner. It
 * contains no descriptors and no addresses.
 */

import { highOf, joinWords } from '../../../../ucs/type/int64.ts';
import { TAG_BYTES } from '../../../base/key/segment-name.ts';

/** Bytes of the tag in the name of a channel service. */
export const SERVICE_TAG_BYTES: number = TAG_BYTES;

const VERSION = 1;
const WORDS = 13;
const AT_VERSION = 0;
const AT_GENERATION = 1;
const AT_OFFSET = 3;
const AT_ARENA_LENGTH = 5;
const AT_BUS = 7;
const AT_SERVICE = 9;

/** The fields. */
export interface KeyPayload {
  /** Identifies the arena among those of its owner. */
  readonly arenaGeneration: number;
  /** Offset of the memory in the arena. */
  readonly arenaOffset: number;
  readonly arenaBytes: number;
  /** PCI address of the card as a number: domain, bus, device and function. */
  readonly busNumber: number;
  /** {@link SERVICE_TAG_BYTES}. */
  readonly serviceTag: Uint8Array;
}

/** Packs a payload. */
export function packPayload(payload: KeyPayload): Int32Array {
  const words = new Int32Array(WORDS);
  words[AT_VERSION] = VERSION;
  put64(words, AT_GENERATION, payload.arenaGeneration);
  put64(words, AT_OFFSET, payload.arenaOffset);
  put64(words, AT_ARENA_LENGTH, payload.arenaBytes);
  words[AT_BUS] = payload.busNumber;
  new Uint8Array(words.buffer).set(payload.serviceTag, AT_SERVICE * 4);
  return words;
}

/**
 * Unpacks a payload that another process has written.
 * @param byteLength length of the memory of the key
 * @returns undefined if it is not of this version, or its range is outside its arena
 */
export function unpackPayload(words: Int32Array, byteLength: number): KeyPayload | undefined {
  if (words.length < WORDS || words[AT_VERSION] !== VERSION) return undefined;
  const arenaOffset = get64(words, AT_OFFSET);
  const arenaBytes = get64(words, AT_ARENA_LENGTH);
  const arenaGeneration = get64(words, AT_GENERATION);
  const isExact = Number.isSafeInteger(arenaBytes) && Number.isSafeInteger(arenaGeneration);
  if (!isExact || arenaOffset + byteLength > arenaBytes) return undefined;
  const serviceTag = new Uint8Array(words.buffer, words.byteOffset + AT_SERVICE * 4, SERVICE_TAG_BYTES).slice();
  return { arenaGeneration, arenaOffset, arenaBytes, busNumber: words[AT_BUS]! >>> 0, serviceTag };
}

function put64(words: Int32Array, at: number, value: number): void {
  words[at] = value;
  words[at + 1] = highOf(value);
}

function get64(words: Int32Array, at: number): number {
  return joinWords(words[at]!, words[at + 1]!);
}
