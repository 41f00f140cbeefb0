/** The tests that `gaudi-ucx perftest` and `ucx_perftest` have in common, and the ratios that are aimed at. It runs nothing. */

/** What is compared: the time of one message, or messages or bytes per second. */
export type Measure = 'latency' | 'rate';

/** Transports under their name in tables. */
export interface TransportSet {
  readonly name: string;
  /** UCX_TLS of both tools. */
  readonly tls: string;
  /** Bytes that are moved in a run, and what a message costs beside its bytes, in bytes. */
  readonly budgetBytes: number;
  readonly messageBytes: number;
}

export const SHM: TransportSet = {
  name: 'shm',
  tls: 'posix,cma,self',
  budgetBytes: 64e9,
  messageBytes: 65_536,
};
export const TCP: TransportSet = { name: 'tcp', tls: 'tcp', budgetBytes: 16e9, messageBytes: 49_152 };
export const TRANSPORT_SETS: readonly TransportSet[] = [SHM, TCP];

/** One test at one size. */
export interface Case {
  readonly transports: TransportSet;
  readonly test: string;
  readonly bytes: number;
}

/** A case with its aim: a latency of at most, or a rate of at least, so many times that of C UCX. */
export interface Target extends Case {
  readonly ratio: number;
}

const KIB = 1024;
const MIB = 2 ** 20;

/** The targets by transports: test, size, ratio. */
const TARGETS: readonly (readonly [TransportSet, readonly (readonly [string, number, number])[]])[] = [
  [
    SHM,
    [
      ['ucp_put_lat', 8, 1.3],
      ['ucp_am_lat', 8, 1.2],
      ['tag_lat', 8, 1.4],
      ['tag_lat', 4 * KIB, 1.2],
      ['tag_lat', 64 * KIB, 1],
      ['stream_lat', 8, 1.8],
      ['ucp_get', 8, 3],
      ['ucp_fadd', 8, 2.5],
      ['ucp_add', 8, 0.5],
      ['tag_bw', 8, 1],
      ['ucp_put_bw', 8, 0.7],
      ['ucp_am_bw', 8, 0.9],
      ['tag_bw', 4 * KIB, 0.8],
      ['tag_bw', 64 * KIB, 1],
      ['tag_bw', MIB, 1.2],
      ['ucp_put_bw', MIB, 0.97],
      ['ucp_get', MIB, 1.03],
      ['ucp_am_bw', MIB, 1.28],
      ['stream_bw', MIB, 0.5],
    ],
  ],
  [
    TCP,
    [
      ['ucp_put_lat', 8, 0.44],
      ['ucp_am_lat', 8, 1],
      ['tag_lat', 8, 0.95],
      ['tag_lat', 4 * KIB, 1],
      ['tag_lat', 64 * KIB, 1],
      ['stream_lat', 8, 1],
      ['tag_bw', 8, 1.1],
      ['tag_bw', 4 * KIB, 1],
      ['tag_bw', 64 * KIB, 1],
      ['tag_bw', MIB, 1],
      ['ucp_put_bw', MIB, 9.2],
      ['ucp_am_bw', MIB, 1],
      ['stream_bw', MIB, 0.9],
    ],
  ],
];

/** All targets of the table. */
export const ALL_TARGETS: readonly Target[] = TARGETS.flatMap(([transports, rows]) =>
  rows.map(([test, bytes, ratio]) => ({ transports, test, bytes, ratio })),
);

/** The tests that are measured at every size. */
export const CURVE_TESTS: readonly string[] = [
  'tag_lat',
  'tag_bw',
  'ucp_put_lat',
  'ucp_put_bw',
  'ucp_am_lat',
  'ucp_am_bw',
];

/** Bounds for the tests that are measured at every size: of the geometric mean, and of the worst single size. */
export const CURVE_BOUNDS: Readonly<Record<Measure, { readonly mean: number; readonly worst: number }>> = {
  latency: { mean: 1.3, worst: 2 },
  rate: { mean: 0.9, worst: 0.5 },
};

/** Powers of two from 1 byte to `bytesMax`. */
export function sizesTo(bytesMax: number): number[] {
  return Array.from({ length: Math.log2(bytesMax) + 1 }, (_, power) => 2 ** power);
}

/** Latencies are of operations that are waited for one by one; `ucp_add` has no result, and runs as fast as it can. */
export function measureOf(test: string): Measure {
  return test.endsWith('_bw') || test === 'ucp_add' ? 'rate' : 'latency';
}

/** Iterations of a run of about a second: in a shorter one, the time in which V8 compiles counts. */
export function iterationsOf({ transports, bytes }: Case): number {
  const { budgetBytes, messageBytes } = transports;
  return Math.max(10, Math.round(budgetBytes / (bytes + messageBytes)));
}

/** Whether a ratio of ours to theirs reaches a target. */
export function isMet(measure: Measure, ratio: number, target: number): boolean {
  return measure === 'latency' ? ratio <= target : ratio >= target;
}
