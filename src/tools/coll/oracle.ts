/**
 * Serial oracle of collective operations: contents of the memory of every rank before and after an operation, as repeating patterns. All values are small, so
 * that reductions of every type are exact.
 */

import type { Collective } from '../../coll/choice/problem.ts';
import { type Dtype, dtypeBytes, type ReduceOp, readElement, writeElement } from '../../coll/dtype/dtype.ts';

/** Elements after which all contents repeat. */
const PERIOD = 8;
/** Bytes per comparison. */
const CHUNK_BYTES = 65_536;

/** Consecutive elements with a rule for their values. */
export interface Segment {
  readonly count: number;
  /** Value of an element; it repeats after 8. */
  readonly valueAt: (index: number) => number;
}

/** A collective operation with a known result. */
export interface KnownOperation {
  readonly collective: Collective;
  readonly size: number;
  readonly dtype: Dtype;
  readonly op: ReduceOp;
  readonly root: number;
  /** Elements of a block, or of the whole vector for broadcast, reduce and allReduce. */
  readonly count: number;
  /** Elements of every rank's block of allGather; replaces `count`. */
  readonly recvCounts?: readonly number[];
  /** Distinguishes the contents of several operations. */
  readonly seed: number;
}

/** A difference between result and oracle. */
export interface Difference {
  /** Element index in the buffer. */
  readonly index: number;
  readonly expected: number;
  readonly found: number;
}

const SENDS_ALL: ReadonlySet<Collective> = new Set<Collective>(['allToAll', 'reduceScatter']);

/** Number of elements that a rank sends; broadcast uses `recv` for sending. */
export function sendCount({ collective, size, root, count, recvCounts }: KnownOperation, rank: number): number {
  if (collective === 'barrier' || collective === 'broadcast') return 0;
  if (collective === 'scatter') return rank === root ? size * count : 0;
  return SENDS_ALL.has(collective) ? size * count : (recvCounts?.[rank] ?? count);
}

/** Number of elements in the result of a rank. */
export function recvCount(operation: KnownOperation, rank: number): number {
  const { collective, size, root, count, recvCounts } = operation;
  switch (collective) {
    case 'barrier':
      return 0;
    case 'gather':
      return rank === root ? size * count : 0;
    case 'reduce':
      return rank === root ? count : 0;
    case 'allGather':
      return recvCounts?.reduce((sum, one) => sum + one, 0) ?? size * count;
    case 'allToAll':
      return size * count;
    default:
      return count;
  }
}

/** Contents of a rank's send buffer. */
export function sentBy(operation: KnownOperation, rank: number, count: number = sendCount(operation, rank)): Segment {
  return { count, valueAt: (index) => elementOf(operation, rank, index) };
}

/** Expected contents of a rank's result. */
export function expectedAt(operation: KnownOperation, rank: number): readonly Segment[] {
  const { collective, size, root, count } = operation;
  const ranks = Array.from({ length: size }, (_, index) => index);
  const from = (sender: number, start: number, length: number): Segment => ({
    count: length,
    valueAt: (index) => elementOf(operation, sender, start + index),
  });
  const reduced = (start: number): Segment => ({ count, valueAt: (index) => reducedValue(operation, start + index) });
  switch (collective) {
    case 'barrier':
      return [];
    case 'broadcast':
      return [from(root, 0, count)];
    case 'gather':
      return rank === root ? ranks.map((sender) => from(sender, 0, count)) : [];
    case 'scatter':
      return [from(root, rank * count, count)];
    case 'allGather':
      return ranks.map((sender) => from(sender, 0, operation.recvCounts?.[sender] ?? count));
    case 'allToAll':
      return ranks.map((sender) => from(sender, rank * count, count));
    case 'reduce':
      return rank === root ? [reduced(0)] : [];
    case 'reduceScatter':
      return [reduced(rank * count)];
    case 'allReduce':
      return [reduced(0)];
  }
}

/** Fills host bytes. */
export function fillSegment(bytes: Uint8Array, dtype: Dtype, segment: Segment): void {
  const pattern = patternOf(dtype, segment);
  const length = segment.count * dtypeBytes(dtype);
  bytes.set(pattern.subarray(0, Math.min(length, pattern.byteLength)));
  for (let done = pattern.byteLength; done < length; done *= 2) {
    bytes.copyWithin(done, 0, Math.min(done, length - done));
  }
}

/** First element that differs from the expected result; undefined if none differs. */
export function findDifference(bytes: Uint8Array, dtype: Dtype, segments: readonly Segment[]): Difference | undefined {
  const unit = dtypeBytes(dtype);
  const expected = new Uint8Array(CHUNK_BYTES);
  let start = 0;
  for (const segment of segments) {
    fillSegment(expected, dtype, { ...segment, count: CHUNK_BYTES / unit });
    const end = start + segment.count * unit;
    for (let at = start; at < end; at += CHUNK_BYTES) {
      const length = Math.min(CHUNK_BYTES, end - at);
      const found = bytes.subarray(at, at + length);
      const wanted = expected.subarray(0, length);
      if (Buffer.compare(found, wanted) !== 0) return differenceIn(found, wanted, dtype, at / unit);
    }
    start = end;
  }
  return undefined;
}

function differenceIn(found: Uint8Array, wanted: Uint8Array, dtype: Dtype, first: number): Difference {
  const byte = wanted.findIndex((value, index) => value !== found[index]);
  const index = Math.floor(byte / dtypeBytes(dtype));
  return {
    index: first + index,
    expected: readElement(wanted, dtype, index),
    found: readElement(found, dtype, index),
  };
}

function patternOf(dtype: Dtype, { valueAt }: Segment): Uint8Array {
  const pattern = new Uint8Array(PERIOD * dtypeBytes(dtype));
  for (let index = 0; index < PERIOD; index++) writeElement(pattern, dtype, index, valueAt(index));
  return pattern;
}

function elementOf({ op, seed, collective }: KnownOperation, rank: number, index: number): number {
  const phase = (rank * 3 + index + seed) % PERIOD;
  const isProduct = op === 'product' && /reduce/i.test(collective);
  return isProduct ? 1 + (phase % 2) : phase;
}

function reducedValue(operation: KnownOperation, index: number): number {
  let result = elementOf(operation, 0, index);
  for (let rank = 1; rank < operation.size; rank++) {
    const value = elementOf(operation, rank, index);
    switch (operation.op) {
      case 'sum':
        result += value;
        break;
      case 'product':
        result *= value;
        break;
      case 'min':
        result = Math.min(result, value);
        break;
      case 'max':
        result = Math.max(result, value);
        break;
    }
  }
  return result;
}
