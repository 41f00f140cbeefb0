/** Defaults of the options of awaited operations, and their results. It runs nothing and does not check memory. */

import { checkOptions } from '../../../ucs/type/check-options.ts';
import { invalidParam } from '../../../ucs/type/error.ts';
import type { TransferOptions, TransferResult } from '../endpoint.ts';
import { bytesFrom, isList } from '../memory/local-bytes.ts';
import type { LocalBuffer, RemoteKey } from '../operation/memory.ts';
import type { Outcome } from './promise-tier.ts';

const TRANSFER_OPTIONS = ['localOffset', 'byteLength', 'remoteOffset', 'remoteAddress', 'signal'];

/** Bytes of local memory that is not checked yet. */
export function lengthOf(local: LocalBuffer): number {
  if (typeof local !== 'object' || local === null) {
    throw invalidParam('local', 'must be a Uint8Array, a memory handle or a list of pieces', local);
  }
  if (!isList(local)) return local.byteLength;
  return local.reduce((sum, piece) => {
    const { memory, offset = 0, byteLength } = piece ?? {};
    // An invalid one may be a bigint, which would not be added.
    return sum + Number(byteLength ?? bytesFrom(memory?.byteLength ?? 0, offset));
  }, 0);
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
  const { localOffset = 0, remoteAddress } = options;
  if (remoteAddress !== undefined && typeof remoteAddress !== 'bigint') {
    throw invalidParam('remoteAddress', 'must be a bigint', remoteAddress);
  }
  return {
    localOffset,
    byteLength: options.byteLength ?? Math.max(0, bytesFrom(lengthOf(local), localOffset)),
    remoteOffset: remoteAddress === undefined ? (options.remoteOffset ?? 0) : offsetOf(remoteAddress, rkey),
  };
}

function offsetOf(remoteAddress: bigint, rkey: RemoteKey): number {
  const start: unknown = rkey?.address;
  return typeof start === 'bigint' ? Number(remoteAddress - start) : Number.NaN;
}
