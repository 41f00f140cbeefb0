/** Entries of lists, made from other forms of local memory. It checks nothing. */

import { bytesFrom, isList } from '../memory/local-bytes.ts';
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
  if (!isList(local)) return [{ local, localOffset, byteLength, rkey, remoteOffset }];
  let at = remoteOffset;
  return local.map((piece) => {
    const { memory, offset = 0, byteLength: own } = piece ?? {};
    const bytes = own === undefined ? bytesFrom(memory?.byteLength ?? 0, offset) : own;
    const entry = { local: memory, localOffset: offset, byteLength: bytes, rkey, remoteOffset: at };
    // An invalid one may be a bigint, which would not be added.
    at += Number(bytes);
    return entry;
  });
}
