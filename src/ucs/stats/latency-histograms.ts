/**
 * Histograms of the latency of operations, by operation, transport and size class. While enabled, they subscribe to the ends of operations, so that every
 * operation has a request and reads the clock twice; otherwise they cost nothing.
 */

import { type OperationEnd, operationEnd } from '../debug/diagnostics.ts';

/** Upper bounds of the buckets in nanoseconds; one more bucket counts longer latencies. */
export const LATENCY_BOUNDS_NS: readonly number[] = [
  250, 500, 1e3, 2.5e3, 5e3, 10e3, 25e3, 50e3, 100e3, 250e3, 1e6, 2.5e6, 10e6, 100e6, 1e9,
];
/** Size classes: name and largest size in bytes. */
const SIZE_CLASSES: readonly (readonly [string, number])[] = [
  ['<=64', 64],
  ['<=1K', 1024],
  ['<=16K', 16_384],
  ['<=256K', 262_144],
  ['<=4M', 4_194_304],
  ['>4M', Number.POSITIVE_INFINITY],
];
/** Maximum number of combinations of operation, transport and size class; further ones are not measured. */
const HISTOGRAMS_MAX = 512;

/** The latencies of one kind of operation. */
export interface OperationLatencies {
  /** Protocol, such as `put/zcopy`. */
  readonly protocol: string;
  /** Such as `gaudi_cpy`; empty for an operation that several transports carried. */
  readonly transport: string;
  /** Size class, such as `<=1K`. */
  readonly size: string;
  /** Number of failed operations, which are not in the buckets. */
  readonly failures: number;
  /** Number of operations by bucket of {@link LATENCY_BOUNDS_NS}, the last one for longer latencies. */
  readonly buckets: readonly number[];
  /** Number and sum of all latencies. */
  readonly count: number;
  readonly sumNs: number;
  /** Bytes of all operations. */
  readonly bytes: number;
}

interface Histogram {
  readonly protocol: string;
  readonly transport: string;
  readonly size: string;
  failures: number;
  readonly buckets: number[];
  count: number;
  sumNs: number;
  bytes: number;
}

const histograms = new Map<string, Histogram>();
let users = 0;

/** Enables the histograms until {@link releaseLatencies} has been called as often as this function. */
export function acquireLatencies(): void {
  users += 1;
  if (users === 1) operationEnd.subscribe(onEnd);
}

/** Reverts one {@link acquireLatencies}; the histograms are kept. */
export function releaseLatencies(): void {
  users -= 1;
  if (users === 0) operationEnd.unsubscribe(onEnd);
}

/** The histograms of this thread; empty if they were never enabled. */
export function latencies(): OperationLatencies[] {
  return [...histograms.values()].map((each) => ({ ...each, buckets: [...each.buckets] }));
}

function onEnd({ protocol, transport = '', byteLength, status, startNs, endNs }: OperationEnd): void {
  const [size] = SIZE_CLASSES.find(([, bytesMax]) => byteLength <= bytesMax)!;
  const key = `${protocol} ${transport} ${size}`;
  let histogram = histograms.get(key);
  if (histogram === undefined) {
    if (histograms.size >= HISTOGRAMS_MAX) return;
    const buckets = new Array<number>(LATENCY_BOUNDS_NS.length + 1).fill(0);
    histogram = { protocol, transport, size, failures: 0, buckets, count: 0, sumNs: 0, bytes: 0 };
    histograms.set(key, histogram);
  }
  if (status < 0) {
    histogram.failures += 1;
    return;
  }
  const elapsedNs = Math.max(0, endNs - startNs);
  const bucket = LATENCY_BOUNDS_NS.findIndex((boundNs) => elapsedNs <= boundNs);
  histogram.buckets[bucket < 0 ? LATENCY_BOUNDS_NS.length : bucket]! += 1;
  histogram.count += 1;
  histogram.sumNs += elapsedNs;
  histogram.bytes += byteLength;
}
