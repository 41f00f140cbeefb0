/** The memory of the peer for a message, by the keys that the peer has sent: one range, or several in the order of the message. */

import type { ProtocolContext, ProtocolHost } from '../base/protocol-host.ts';
import type { Connection } from '../base/request/request.ts';
import type { LocalPiece } from '../mem/memory-handle.ts';
import type { RemoteKey } from '../mem/remote-key.ts';
import type { Operation } from '../proto/selection.ts';
import type { RmaPlace } from '../rma/internal-rma.ts';
import { KEY_LIST, type KeyRange, unpackKeyList } from './key-list.ts';
import { transfersOf } from './remote-move.ts';

/** A range, whose key is kept by the connection. */
export interface RemoteRange {
  readonly rkey: RemoteKey;
  /** Byte of the memory of the key at which it begins. */
  readonly offset: number;
  /** First byte of the message, and how many. */
  readonly from: number;
  readonly byteLength: number;
}

/** A key as it is in a message, or a list of them. */
export interface SentKey {
  readonly packed: Uint8Array;
  readonly offset: number;
}

/** The ranges for a message of this length; undefined for keys that no lane can use. {@link releaseRanges} gives them back. */
export function acquireRanges(
  context: ProtocolContext,
  connection: Connection,
  { packed, offset }: SentKey,
  byteLength: number,
): readonly RemoteRange[] | undefined {
  const sent: readonly KeyRange[] | undefined =
    offset === KEY_LIST ? unpackKeyList(packed, byteLength) : [{ packed, offset, byteLength }];
  if (sent === undefined) return undefined;
  const ranges: RemoteRange[] = [];
  let from = 0;
  for (const range of sent) {
    const rkey = acquirePeerKey(context, connection, range.packed);
    if (rkey === undefined) {
      releaseRanges(connection, ranges);
      return undefined;
    }
    ranges.push({ rkey, offset: range.offset, from, byteLength: range.byteLength });
    from += range.byteLength;
  }
  return ranges;
}

/** Gives keys back. @param isStale the memory behind them may be gone: they are not kept */
export function releaseRanges({ rkeys }: Connection, ranges: readonly RemoteRange[], isStale = false): void {
  for (const { rkey } of ranges) rkeys.release(rkey, isStale);
}

/** The transfers between the pieces of a message and all ranges; undefined if lanes do not move all of the bytes by themselves. */
export function rangeTransfers(
  host: ProtocolHost,
  [operation, connection]: readonly [Operation, Connection],
  pieces: readonly LocalPiece[],
  ranges: readonly RemoteRange[],
): readonly RmaPlace[] | undefined {
  const transfers: RmaPlace[] = [];
  for (const range of ranges) {
    const found = transfersOf(host, { operation, connection, pieces, ...range });
    if (found === undefined) return undefined;
    transfers.push(...found);
  }
  return transfers;
}

/** A key of the peer, kept or unpacked now, for lanes only; `connection.rkeys.release` gives it back. Undefined for one that no lane can use. */
export function acquirePeerKey(
  context: ProtocolContext,
  connection: Connection,
  packed: Uint8Array,
): RemoteKey | undefined {
  try {
    return connection.rkeys.acquire(packed, (kept) => context.unpackRkey(kept, connection, { messages: false }));
  } catch {
    // Without a usable key, the bytes still come in messages.
    return undefined;
  }
}
