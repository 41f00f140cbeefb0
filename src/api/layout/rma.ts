/**
 * PUT, GET and GET_READY: software put and get, for memory that no transport reaches. Over libucp the reply to a GET is DATA and REPLY.
 *
 * PUT, GET
 *   0     endpoint
 *   1     request of the sender
 *   2, 3  first byte in the memory of the key
 *   4, 5  bytes
 *         payload: key of the memory; then, for a list, the blocks after the first one, 16 bytes each:
 *   0, 1  first byte in the memory of the key
 *   2, 3  bytes
 *
 * GET_READY: the reply to a GET
 *   0     endpoint
 *   1     request of the getter
 *   2     request of the sender, which offers the bytes; 0 for a failure
 *   3     status
 */

import { highOf, highWord, joinBig, joinWords, lowWord } from '../../ucs/type/int64.ts';
import type { Status } from '../../ucs/type/status.ts';
import type { AmFrame } from '../../uct/api/iface.ts';
import { endingOf } from './frame.ts';

export const RMA_BYTES = 24;
/** Bytes of one more block. */
export const RMA_BLOCK_BYTES = 16;
export const GET_READY_BYTES = 16;
const RMA = new Int32Array(RMA_BYTES / 4);
const READY = new Int32Array(GET_READY_BYTES / 4);

/** The fields of a PUT or GET. */
export interface RmaFields {
  readonly request: number;
  readonly remoteOffset: number;
  readonly byteLength: number;
}

/** A received PUT or GET; its key and further blocks are `keyBytes` bytes of the frame from byte `keyAt` on. */
export interface AskedRma extends RmaFields {
  readonly keyAt: number;
  readonly keyBytes: number;
}

/** A range of the memory behind the key. */
export interface RmaBlock {
  readonly remoteOffset: number;
  readonly byteLength: number;
}

/** The fields of a GET_READY. */
export interface GetReadyFields {
  readonly request: number;
  readonly peerRequest: number;
  readonly status: Status;
}

/** Writes the header of a PUT or GET: valid until the next one. */
export function writeRma(to: number, { request, remoteOffset, byteLength }: RmaFields): Int32Array {
  RMA[0] = to;
  RMA[1] = request;
  RMA[2] = remoteOffset | 0;
  RMA[3] = highOf(remoteOffset);
  RMA[4] = byteLength | 0;
  RMA[5] = highOf(byteLength);
  return RMA;
}

/** Reads a PUT or GET. */
export function readRma(frame: AmFrame): AskedRma {
  const { words, offset } = frame;
  const at = offset >> 2;
  return {
    request: words[at + 1]!,
    remoteOffset: joinWords(words[at + 2]!, words[at + 3]!),
    byteLength: joinWords(words[at + 4]!, words[at + 5]!),
    keyAt: offset + RMA_BYTES,
    keyBytes: frame.byteLength - RMA_BYTES,
  };
}

/** The payload of a PUT or GET: the key, and the blocks after the first one. */
export function writeRmaBlocks(key: Uint8Array, blocks: readonly RmaBlock[]): Uint8Array {
  const payload = new Uint8Array(key.byteLength + (blocks.length - 1) * RMA_BLOCK_BYTES);
  payload.set(key);
  const view = new DataView(payload.buffer, key.byteLength);
  for (let i = 1; i < blocks.length; i++) {
    const { remoteOffset, byteLength } = blocks[i]!;
    const at = (i - 1) * RMA_BLOCK_BYTES;
    view.setInt32(at, remoteOffset | 0, true);
    view.setInt32(at + 4, highOf(remoteOffset), true);
    view.setInt32(at + 8, byteLength | 0, true);
    view.setInt32(at + 12, highOf(byteLength), true);
  }
  return payload;
}

/** Reads the blocks of a PUT or GET whose key has `keyBytes` bytes; undefined if they are truncated. */
export function readRmaBlocks({ bytes }: AmFrame, asked: AskedRma, keyBytes: number): readonly RmaBlock[] | undefined {
  const { remoteOffset, byteLength } = asked;
  const blocks: RmaBlock[] = [{ remoteOffset, byteLength }];
  const rest = asked.keyBytes - keyBytes;
  if (rest < 0 || rest % RMA_BLOCK_BYTES !== 0) return undefined;
  const view = new DataView(bytes.buffer, bytes.byteOffset + asked.keyAt + keyBytes, rest);
  for (let at = 0; at < rest; at += RMA_BLOCK_BYTES) {
    blocks.push({
      remoteOffset: joinWords(view.getInt32(at, true), view.getInt32(at + 4, true)),
      byteLength: joinWords(view.getInt32(at + 8, true), view.getInt32(at + 12, true)),
    });
  }
  return blocks;
}

/** Writes a GET_READY: valid until the next one. */
export function writeGetReady(to: number, { request, peerRequest, status }: GetReadyFields): Int32Array {
  READY[0] = to;
  READY[1] = request;
  READY[2] = peerRequest;
  READY[3] = status;
  return READY;
}

/** Reads a GET_READY. */
export function readGetReady({ words, offset }: AmFrame): GetReadyFields {
  const at = offset >> 2;
  return { request: words[at + 1]!, peerRequest: words[at + 2]!, status: endingOf(words[at + 3]!) };
}

/*
 * ATOMIC: the peer requests an operation on a word of this worker's memory, and gets a REPLY. amo/atomics.ts executes it.
 *
 *   0     endpoint
 *   1     request of the sender
 *   2, 3  byte in the memory of the key
 *   4     AtomicOperation
 *   5     bytes of the word: 4 or 8
 *   6, 7  value
 *   8, 9  compare
 *         payload: key of the memory
 */

export const ATOMIC_BYTES = 40;
const ATOMIC = new Int32Array(ATOMIC_BYTES / 4);

/** The fields of an ATOMIC. */
export interface AtomicFields {
  readonly request: number;
  readonly remoteOffset: number;
  readonly operation: number;
  readonly wordBytes: number;
  readonly value: bigint;
  readonly compare: bigint;
}

/** Writes the header of an ATOMIC: valid until the next one. */
export function writeAtomic(to: number, atomic: AtomicFields): Int32Array {
  ATOMIC[0] = to;
  ATOMIC[1] = atomic.request;
  ATOMIC[2] = atomic.remoteOffset | 0;
  ATOMIC[3] = highOf(atomic.remoteOffset);
  ATOMIC[4] = atomic.operation;
  ATOMIC[5] = atomic.wordBytes;
  ATOMIC[6] = lowWord(atomic.value);
  ATOMIC[7] = highWord(atomic.value);
  ATOMIC[8] = lowWord(atomic.compare);
  ATOMIC[9] = highWord(atomic.compare);
  return ATOMIC;
}

/** Reads an ATOMIC; its key is `keyBytes` bytes of the frame from byte `keyAt` on. */
export function readAtomic(frame: AmFrame): AtomicFields & { readonly keyAt: number; readonly keyBytes: number } {
  const { words, offset } = frame;
  const at = offset >> 2;
  return {
    request: words[at + 1]!,
    remoteOffset: joinWords(words[at + 2]!, words[at + 3]!),
    operation: words[at + 4]!,
    wordBytes: words[at + 5]!,
    value: joinBig(words[at + 6]!, words[at + 7]!),
    compare: joinBig(words[at + 8]!, words[at + 9]!),
    keyAt: offset + ATOMIC_BYTES,
    keyBytes: frame.byteLength - ATOMIC_BYTES,
  };
}
