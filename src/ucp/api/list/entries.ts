/** Entries of lists, made from other forms of local memory. Their check is that of lists. */

import { invalidParam } from '../../../ucs/type/error.ts';
import { byteLengthOf, bytesFrom, checkPieceFields, isList } from '../memory/local-bytes.ts';
import type { TransferEntry } from '../operation/list.ts';
import type { LocalBuffer, RemoteKey } from '../operation/memory.ts';

/** One put or get as a list: the pieces of local memory are one range of remote memory, in order. */
export function entriesOf(
  local: LocalBuffer,
  offset: number,
  byteLength: number,
  rkey: RemoteKey,
  remoteOffset: number,
): readonly TransferEntry[] {
  if (!isList(local)) {
    // An entry may leave them out.
    if (offset === undefined) throw invalidParam('offset', 'must be an integer of 0 or more', offset);
    if (remoteOffset === undefined) throw invalidParam('remoteOffset', 'must be an integer of 0 or more', remoteOffset);
    return [{ local, offset, byteLength, rkey, remoteOffset }];
  }
  if (offset !== 0) throw invalidParam('offset', 'must be 0 with a list of pieces, which have their own', offset);
  if (!Number.isSafeInteger(remoteOffset) || remoteOffset < 0) {
    throw invalidParam('remoteOffset', 'must be an integer of 0 or more', remoteOffset);
  }
  let at = remoteOffset;
  return local.map((piece, index) => {
    checkPieceFields(piece, index);
    const { memory, offset = 0, byteLength: own } = piece;
    const bytes = own === undefined ? Math.max(0, bytesFrom(byteLengthOf(memory), offset)) : own;
    const entry = { local: memory, offset, byteLength: bytes, rkey, remoteOffset: at };
    // An invalid one may be a bigint or a symbol, which cannot be added.
    if (typeof bytes === 'number') at += bytes;
    return entry;
  });
}
