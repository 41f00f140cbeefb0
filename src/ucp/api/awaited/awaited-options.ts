/** Defaults of the options of awaited operations, and their results. It runs nothing and does not check memory. */

import { checkOptions } from '../../../ucs/type/check-options.ts';
import { invalidParam } from '../../../ucs/type/error.ts';
import type { TransferOptions, TransferResult } from '../endpoint.ts';
import { byteLengthOf, bytesFrom, isList, isPiece, rangeOfPiece } from '../memory/local-bytes.ts';
import type { LocalBuffer, MessageBuffer, RemoteKey } from '../operation/memory.ts';
import type { Tag } from '../operation/tag.ts';
import type { Outcome } from './promise-tier.ts';

const TRANSFER_OPTIONS = ['offset', 'byteLength', 'remoteOffset', 'remoteAddress', 'signal'];

/** Bytes of local memory that is not checked yet. */
export function lengthOf(local: LocalBuffer): number {
  if (typeof local !== 'object' || local === null) {
    throw invalidParam('local', 'must be a Uint8Array, a memory handle or a list of pieces', local);
  }
  if (!isList(local)) return byteLengthOf(local);
  return local.reduce((sum, piece) => {
    const { memory, offset = 0, byteLength } = piece ?? {};
    // An invalid one may be a bigint or a symbol, which cannot be added.
    const bytes = byteLength === undefined ? bytesFrom(byteLengthOf(memory), offset) : byteLength;
    return typeof bytes === 'number' ? sum + bytes : sum;
  }, 0);
}

/** The memory of an awaited message, and the range of it that is moved. @throws UcxError ERR_INVALID_PARAM */
export function rangeOf(local: MessageBuffer): readonly [local: LocalBuffer, offset: number, byteLength: number] {
  return isPiece(local) ? rangeOfPiece(local) : [local, 0, lengthOf(local)];
}

/** The tag of a message. Null is no default: its check refuses it, as everywhere. */
export function tagOf({ tag = 0 }: { readonly tag?: Tag | undefined }): Tag {
  return tag;
}

/** The result of an awaited operation. */
export function resultOf({ transport, device, protocol }: Outcome, byteLength: number): TransferResult {
  return { byteLength, transport, device, protocol };
}

/**
 * Fills in the defaults of an awaited put or get. Memory and key are checked when it starts: an invalid one gives length 0 and offset 0 here.
 * @throws UcxError ERR_INVALID_PARAM
 */
export function resolveTransfer(
  local: LocalBuffer,
  rkey: RemoteKey,
  options: TransferOptions,
): { readonly localOffset: number; readonly byteLength: number; readonly remoteOffset: number } {
  checkOptions(options, 'options', TRANSFER_OPTIONS);
  const { offset: localOffset = 0, byteLength, remoteOffset = 0, remoteAddress } = options;
  if (remoteAddress !== undefined && typeof remoteAddress !== 'bigint') {
    throw invalidParam('remoteAddress', 'must be a bigint', remoteAddress);
  }
  return {
    localOffset,
    byteLength: byteLength === undefined ? Math.max(0, bytesFrom(lengthOf(local), localOffset)) : byteLength,
    remoteOffset: remoteAddress === undefined ? remoteOffset : offsetOf(remoteAddress, rkey),
  };
}

function offsetOf(remoteAddress: bigint, rkey: RemoteKey): number {
  const start: unknown = rkey?.address;
  return typeof start === 'bigint' ? Number(remoteAddress - start) : Number.NaN;
}
