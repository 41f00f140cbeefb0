/** The interface of lists of puts and gets. Types only. */

import type { LocalMemory, RemoteKey } from './memory.ts';
import type { PutParams, RequestParams } from './request.ts';

/** A block of a list: a range of local memory and one of the same length in remote memory; or `count` such blocks at regular distances. */
export interface TransferEntry {
  /** Host bytes or mapped memory. */
  readonly local: LocalMemory;
  /** First byte in the local memory. Default 0. */
  readonly offset?: number | undefined;
  /** Key of the remote memory, unpacked by the endpoint of the list. */
  readonly rkey: RemoteKey;
  /** First byte in the remote memory. Default 0. */
  readonly remoteOffset?: number | undefined;
  /** Bytes of each block; a block of 0 bytes moves nothing. */
  readonly byteLength: number;
  /** Number of blocks. Default 1. */
  readonly count?: number | undefined;
  /** Bytes from the beginning of one local block to that of the next. Default `byteLength`. */
  readonly localStride?: number | undefined;
  /** The same in the remote memory. Default `byteLength`. */
  readonly remoteStride?: number | undefined;
}

/** Options of checking a list. */
export interface ListCheckOptions {
  /**
   * Refuses lists in which two blocks write the same byte. Without it, the order of such writes is undefined. Default false.
   */
  readonly strict?: boolean | undefined;
}

/** Parameters of lists of the nbx tier. */
export interface ListParams extends PutParams, ListCheckOptions {
  /** The request ends only when every byte is visible in remote memory; without it, when the local memory can be reused. Default false. */
  readonly flush?: boolean | undefined;
  /** For a prepared list: the blocks to move, by their numbers. Default: all. */
  readonly blocks?: ArrayLike<number> | undefined;
}

/** Options of awaited lists. */
export interface ListOptions extends Omit<ListParams, keyof RequestParams | 'flush'> {
  /** Cancels the operation, unless it is too late for that (see `Request.cancel`): its promise rejects with an AbortError. */
  readonly signal?: AbortSignal | undefined;
}

/** A list that was checked once, and can be moved many times. The mapped memory and keys that it names must be kept. */
export interface PreparedList {
  /** Operation that it was prepared for. */
  readonly operation: 'put' | 'get';
  /** Number of blocks: those of neighbouring entries that are adjacent in both memories are one. */
  readonly blockCount: number;
  /** Bytes of all blocks. */
  readonly byteLength: number;
}

/** Longest notification. */
export const NOTIFICATION_BYTES_MAX = 4096;
/** Maximum number of blocks of a list, before adjacent ones are merged. */
export const LIST_BLOCKS_MAX: number = 2 ** 20;
