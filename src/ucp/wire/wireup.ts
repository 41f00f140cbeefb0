/**
 * WIREUP and CLOSE: two workers make a connection and end it. They are handled in wireup/connections.ts.
 *
 * WIREUP
 *   0     endpoint; NO_ENDPOINT in a REQUEST
 *   1     WireupCode
 *   2     endpoint of the sender
 *   3     number of the connection between the two workers
 *   4, 5  bytes that the sender accepts before it asks for them
 *         payload of REQUEST and ATTACH: worker address of the sender
 *
 * CLOSE: the sender has closed its half
 *   0     endpoint
 *   1     0
 */

import { highOf, joinWords } from '../../ucs/type/int64.ts';
import type { AmFrame } from '../../uct/api/iface.ts';

/** Meanings of a WIREUP. */
export const WireupCode = { REQUEST: 0, REPLY: 1, ATTACH: 2 } as const;

export const WIREUP_BYTES = 24;
export const CLOSE_BYTES = 8;
const WIREUP = new Int32Array(WIREUP_BYTES / 4);
const CLOSE = new Int32Array(CLOSE_BYTES / 4);

/** The fields of a WIREUP. */
export interface WireupFields {
  readonly code: number;
  readonly from: number;
  readonly number: number;
  readonly windowBytes: number;
}

/** Writes the header of a WIREUP: valid until the next one. */
export function writeWireup(to: number, { code, from, number, windowBytes }: WireupFields): Int32Array {
  WIREUP[0] = to;
  WIREUP[1] = code;
  WIREUP[2] = from;
  WIREUP[3] = number;
  WIREUP[4] = windowBytes | 0;
  WIREUP[5] = highOf(windowBytes);
  return WIREUP;
}

/** Reads a WIREUP. */
export function readWireup({ words, offset }: AmFrame): WireupFields {
  const at = offset >> 2;
  const windowBytes = joinWords(words[at + 4]!, words[at + 5]!);
  return { code: words[at + 1]!, from: words[at + 2]!, number: words[at + 3]!, windowBytes };
}

/** Writes a CLOSE: valid until the next one. */
export function writeClose(to: number): Int32Array {
  CLOSE[0] = to;
  return CLOSE;
}
