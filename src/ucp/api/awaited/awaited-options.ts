/** What the awaited operations leave out is filled in here, and what they tell is picked: nothing is run and no memory is checked. */

import { invalidParam } from '../../../ucs/type/error.ts';
import { checkOptions } from '../check-options.ts';
import type { TransferOptions, TransferResult } from '../endpoint.ts';
import type { IovPiece, LocalBuffer, LocalMemory, RemoteKey } from '../memory.ts';
import type { Outcome } from './promise-tier.ts';

const TRANSFER_OPTIONS = ['localOffset', 'byteLength', 'remoteOffset', 'remoteAddress', 'signal'];

/** Bytes of local memory that was not checked yet. */
export function lengthOf(local: LocalBuffer): number {
  if (typeof local !== 'object' || local === null) {
    throw invalidParam('local', 'must be a Uint8Array, a memory handle or a list of pieces', local);
  }
  if (!Array.isArray(local)) return (local as LocalMemory).byteLength;
  const pieces: readonly IovPiece[] = local;
  return pieces.reduce((sum, piece) => {
    const { memory, offset = 0, byteLength } = piece ?? {};
    return sum + (byteLength ?? (memory?.byteLength ?? 0) - offset);
  }, 0);
}

/** What the caller of an awaited operation is told. */
export function resultOf({ transport, device, protocol }: Outcome, byteLength: number): TransferResult {
  return { byteLength, transport, device, protocol };
}

/**
 * Fills in what an awaited put or get leaves out. Memory and key are checked when it starts: what is none makes no length and no offset here.
 * @throws UcxError ERR_INVALID_PARAM
 */
export function resolveTransfer(
  local: LocalMemory,
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
    byteLength: options.byteLength ?? Math.max(0, lengthOf(local) - localOffset),
    remoteOffset: remoteAddress === undefined ? (options.remoteOffset ?? 0) : offsetOf(remoteAddress, rkey),
  };
}

function offsetOf(remoteAddress: bigint, rkey: RemoteKey): number {
  const start: unknown = rkey?.address;
  return typeof start === 'bigint' ? Number(remoteAddress - start) : Number.NaN;
}
