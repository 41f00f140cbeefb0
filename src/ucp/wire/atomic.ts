/**
 * ATOMIC: the peer asks this worker for an operation on a word of its memory, and gets a REPLY. How it runs is in amo/atomics.ts.
 *
 *   0     endpoint
 *   1     request of the sender
 *   2, 3  byte in the memory of the key
 *   4     AtomicOperation
 *   5     bytes of the word: 4 or 8
 *   6, 7  value
 *   8, 9  compare
 *         payload: key of the memory
 */

import { highOf, highWord, joinBig, joinWords, lowWord } from '../../ucs/type/int64.ts';
import type { AmFrame } from '../../uct/api/iface.ts';

export const ATOMIC_BYTES = 40;
const ATOMIC = new Int32Array(ATOMIC_BYTES / 4);

/** The fields of an ATOMIC. */
export interface AtomicFields {
  readonly request: number;
  readonly remoteOffset: number;
  readonly operation: number;
  readonly wordBytes: number;
  readonly value: bigint;
  readonly compare: bigint;
}

/** Writes the header of an ATOMIC: valid until the next one. */
export function writeAtomic(to: number, atomic: AtomicFields): Int32Array {
  ATOMIC[0] = to;
  ATOMIC[1] = atomic.request;
  ATOMIC[2] = atomic.remoteOffset | 0;
  ATOMIC[3] = highOf(atomic.remoteOffset);
  ATOMIC[4] = atomic.operation;
  ATOMIC[5] = atomic.wordBytes;
  ATOMIC[6] = lowWord(atomic.value);
  ATOMIC[7] = highWord(atomic.value);
  ATOMIC[8] = lowWord(atomic.compare);
  ATOMIC[9] = highWord(atomic.compare);
  return ATOMIC;
}

/** Reads an ATOMIC; its key is `keyBytes` bytes of the frame from byte `keyAt` on. */
export function readAtomic(frame: AmFrame): AtomicFields & { readonly keyAt: number; readonly keyBytes: number } {
  const { words, offset } = frame;
  const at = offset >> 2;
  return {
    request: words[at + 1]!,
    remoteOffset: joinWords(words[at + 2]!, words[at + 3]!),
    operation: words[at + 4]!,
    wordBytes: words[at + 5]!,
    value: joinBig(words[at + 6]!, words[at + 7]!),
    compare: joinBig(words[at + 8]!, words[at + 9]!),
    keyAt: offset + ATOMIC_BYTES,
    keyBytes: frame.byteLength - ATOMIC_BYTES,
  };
}
