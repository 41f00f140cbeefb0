/**
 * WIREUP and CLOSE: two workers make a connection and end it.
 *
 * WIREUP
 *   0     endpoint; NO_ENDPOINT in a REQUEST
 *   1     WireupCode
 *   2     endpoint of the sender
 *   3     number of the connection between the two workers
 *   4, 5  bytes that the sender accepts unsolicited
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

/*
 * CREDIT: returns credit to a sender, and lets a stream without credit continue. credit/ and stream/ decide when to send it.
 *
 *   0     endpoint
 *   1     CreditCode
 *   2, 3  bytes that have become free; 0 for the codes of streams
 *   4, 5  bytes of the window; 0 for the codes of streams
 */

/** Meanings of a CREDIT. */
export const CreditCode = {
  /** Returns free credit, and sets the size of the window. */
  RETURN: 0,
  /** As RETURN, but the receiver holds messages that use the rest of the credit: it is returned when the application receives them. */
  HELD: 1,
  /** The sender has bytes for the stream, and no credit is expected. */
  STREAM_WAITS: 2,
  /** The receiver requests one message of the stream, which needs no credit. */
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

/*
 * WITHDRAW: the sender of a rendezvous or synchronous message withdraws it. If the message is not matched yet, the peer drops it and sends a REPLY with
 * CANCELED; otherwise it ignores the WITHDRAW.
 *
 *   0     endpoint
 *   1     request of the sender
 */

export const WITHDRAW_BYTES = 8;
const WITHDRAW = new Int32Array(WITHDRAW_BYTES / 4);

/** Writes a WITHDRAW: valid until the next one. */
export function writeWithdraw(to: number, request: number): Int32Array {
  WITHDRAW[0] = to;
  WITHDRAW[1] = request;
  return WITHDRAW;
}

/** The request that a WITHDRAW names. */
export function readWithdraw({ words, offset }: AmFrame): number {
  return words[(offset >> 2) + 1]!;
}
