/** Entries of lists, made from other forms of local memory. It checks nothing. */

import type { IovPiece, LocalBuffer, RemoteKey } from '../memory.ts';
import type { TransferEntry } from './list.ts';

/** One put or get as a list: the pieces of local memory are one range of remote memory, in order. */
export function entriesOf(
  local: LocalBuffer,
  localOffset: number,
  byteLength: number,
  rkey: RemoteKey,
  remoteOffset: number,
): readonly TransferEntry[] {
  if (!Array.isArray(local)) {
    return [{ local: local as TransferEntry['local'], localOffset, byteLength, rkey, remoteOffset }];
  }
  let at = remoteOffset;
  return (local as readonly IovPiece[]).map((piece) => {
    const { memory, offset = 0 } = piece ?? {};
    const bytes = piece?.byteLength ?? (memory?.byteLength ?? 0) - offset;
    const entry = { local: memory, localOffset: offset, byteLength: bytes, rkey, remoteOffset: at };
    at += bytes;
    return entry;
  });
}
