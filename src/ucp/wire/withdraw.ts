/**
 * WITHDRAW: the sender of a message that it offers, or that it wants to be told of, takes it back if it was not matched yet. The peer answers with a REPLY of
 * CANCELED then, and ignores it otherwise.
 *
 *   0     endpoint
 *   1     request of the sender
 */

import type { AmFrame } from '../../uct/api/iface.ts';

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
