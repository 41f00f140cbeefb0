/** Options and results of the awaited operations of an endpoint: what is left out is filled in here, nothing is run. */

import { invalidParam } from '../../ucs/error.ts';
import { checkLocal, type IovPiece, type LocalBuffer } from '../mem/local-bytes.ts';
import type { LocalMemory } from '../mem/memory-handle.ts';
import type { RemoteKey } from '../mem/remote-key.ts';
import { checkRemote } from '../rma/put-get.ts';
import type { Tag } from '../tag/tag-value.ts';
import type { Outcome } from './promise-tier.ts';

/** Options of an awaited put or get. */
export interface TransferOptions {
  /** Byte of the local memory to start at. Default 0. */
  readonly localOffset?: number;
  /** Bytes to move. Default: what the local memory has from `localOffset` on. */
  readonly byteLength?: number;
  /** Byte of the remote memory to start at. Default 0. */
  readonly remoteOffset?: number;
  /** Remote address instead of `remoteOffset`: an address inside the remote memory. */
  readonly remoteAddress?: bigint;
  readonly signal?: AbortSignal;
}

/** Options of an awaited message. */
export interface SendOptions {
  readonly signal?: AbortSignal;
}

/** Options of an awaited tagged message. */
export interface TagSendOptions extends SendOptions {
  /** Tag, 0 to 2^64 - 1. Default 0. */
  readonly tag?: Tag;
}

/** Options of an awaited receive. */
export interface TagRecvOptions {
  /** Tag to receive. Default 0. */
  readonly tag?: Tag;
  /** Bits of the tag that count. Default all. */
  readonly mask?: Tag;
  readonly signal?: AbortSignal;
}

/** What an awaited receive has got. */
export interface TagRecvResult {
  readonly senderTag: bigint;
  readonly byteLength: number;
}

/** Options of an awaited active message. */
export interface AmSendOptions extends SendOptions {
  /** At most 4096 bytes. */
  readonly header?: Uint8Array;
  /** See AmSendParams. */
  readonly protocol?: 'eager' | 'rendezvous';
}

/** Options of an awaited atomic operation. */
export interface AtomicOptions {
  /** Byte of the remote memory, a multiple of the word. Default 0. */
  readonly remoteOffset?: number;
  readonly bits?: 32 | 64;
  readonly compare?: number | bigint;
  readonly signal?: AbortSignal;
}

/** What an awaited operation tells about itself. */
export interface TransferResult {
  readonly byteLength: number;
  /** Transport, device and protocol that moved the bytes; undefined where there was nothing to move, or messages carried them. */
  readonly transport: string | undefined;
  readonly device: string | undefined;
  readonly protocol: string | undefined;
}

/** Bytes of local memory that nobody has checked yet. */
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
 * Fills in what an awaited put or get leaves out.
 * @throws UcxError ERR_INVALID_PARAM, ERR_CLOSED for a side that is none
 */
export function resolveTransfer(
  owner: object,
  connection: object,
  local: LocalMemory,
  rkey: RemoteKey,
  options: TransferOptions,
): { readonly localOffset: number; readonly byteLength: number; readonly remoteOffset: number } {
  const { localOffset = 0, remoteAddress } = options;
  checkLocal(owner, local, 0, 0);
  checkRemote(connection, rkey, 0, 0);
  if (remoteAddress !== undefined && typeof remoteAddress !== 'bigint') {
    throw invalidParam('remoteAddress', 'must be a bigint', remoteAddress);
  }
  return {
    localOffset,
    byteLength: options.byteLength ?? Math.max(0, local.byteLength - localOffset),
    remoteOffset: remoteAddress === undefined ? (options.remoteOffset ?? 0) : Number(remoteAddress - rkey.address),
  };
}
