/** Entries of lists, made from other forms of local memory. Their check is that of lists. */

import { invalidParam } from '../../../ucs/type/error.ts';
import { byteLengthOf, bytesFrom, checkPieceFields, isList } from '../memory/local-bytes.ts';
import type { TransferEntry } from '../operation/list.ts';
import type { LocalBuffer, RemoteKey } from '../operation/memory.ts';

/** One put or get as a list: the pieces of local memory are one range of remote memory, in order. */
export function entriesOf(
  local: LocalBuffer,
  localOffset: number,
  byteLength: number,
  rkey: RemoteKey,
  remoteOffset: number,
): readonly TransferEntry[] {
  if (!isList(local)) {
    // An entry may leave them out.
    if (localOffset === undefined) throw invalidParam('localOffset', 'must be an integer of 0 or more', localOffset);
    if (remoteOffset === undefined) throw invalidParam('remoteOffset', 'must be an integer of 0 or more', remoteOffset);
    return [{ local, localOffset, byteLength, rkey, remoteOffset }];
  }
  if (localOffset !== 0)
    throw invalidParam('localOffset', 'must be 0 with a list of pieces, which have their own', localOffset);
  if (!Number.isSafeInteger(remoteOffset) || remoteOffset < 0) {
    throw invalidParam('remoteOffset', 'must be an integer of 0 or more', remoteOffset);
  }
  let at = remoteOffset;
  return local.map((piece) => {
    checkPieceFields(piece);
    const { memory, offset = 0, byteLength: own } = piece;
    const bytes = own === undefined ? bytesFrom(byteLengthOf(memory), offset) : own;
    const entry = { local: memory, localOffset: offset, byteLength: bytes, rkey, remoteOffset: at };
    // An invalid one may be a bigint or a symbol, which cannot be added.
    if (typeof bytes === 'number') at += bytes;
    return entry;
  });
}
