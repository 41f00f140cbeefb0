/**
 * CREDIT: returns credit to a sender, and lets a stream without credit continue. When it is sent is decided in credit/ and stream/.
 *
 *   0     endpoint
 *   1     CreditCode
 *   2, 3  bytes that have become free; 0 for the codes of streams
 *   4, 5  bytes of the window; 0 for the codes of streams
 */

import { highOf, joinWords } from '../../ucs/type/int64.ts';
import type { AmFrame } from '../../uct/api/iface.ts';

/** Meanings of a CREDIT. */
export const CreditCode = {
  /** Returns free credit, and sets the size of the window. */
  RETURN: 0,
  /** The same, and the receiver holds messages that use the rest: it is returned when the application receives them. */
  HELD: 1,
  /** The sender has bytes for the stream, and no credit will come by itself. */
  STREAM_WAITS: 2,
  /** The receiver asks for one message of the stream, which needs no credit. */
  STREAM_TAKE: 3,
} as const;

export const CREDIT_BYTES = 24;
const CREDIT = new Int32Array(CREDIT_BYTES / 4);

/** The fields of a CREDIT. */
export interface CreditFields {
  readonly code: number;
  readonly returnedBytes: number;
  readonly windowBytes: number;
}

/** Writes a CREDIT: valid until the next one. */
export function writeCredit(to: number, code: number, returnedBytes: number, windowBytes: number): Int32Array {
  CREDIT[0] = to;
  CREDIT[1] = code;
  CREDIT[2] = returnedBytes | 0;
  CREDIT[3] = highOf(returnedBytes);
  CREDIT[4] = windowBytes | 0;
  CREDIT[5] = highOf(windowBytes);
  return CREDIT;
}

/** Reads a CREDIT. */
export function readCredit({ words, offset }: AmFrame): CreditFields {
  const at = offset >> 2;
  const returnedBytes = joinWords(words[at + 2]!, words[at + 3]!);
  return { code: words[at + 1]!, returnedBytes, windowBytes: joinWords(words[at + 4]!, words[at + 5]!) };
}
