/**
 * `gaudi-ucx perftest` beside `ucx_perftest` of C UCX, each with its own best settings: the table of targets, and all sizes of the tests that are used most. Prints lines,
 * and writes the figures as JSON and as a page with charts.
 */

import { mkdirSync, writeFileSync } from 'node:fs';
import os from 'node:os';
import { join } from 'node:path';
import { benchDeviceMemory } from '../device-memory.ts';
import { sizeOf, ucxVersion } from '../perftest-pair.ts';
import type { Result } from '../timing.ts';
import {
  ALL_TARGETS,
  CURVE_BOUNDS,
  CURVE_TESTS,
  isMet,
  type Measure,
  measureOf,
  sizesTo,
  TRANSPORT_SETS,
  type TransportSet,
} from './cases.ts';
import { type Comparison, compare, geometricMean } from './measure.ts';
import { comparisonPage } from './page.ts';

/** How much is measured. */
export interface Extent {
  /** Runs of each tool and case. */
  readonly rounds: number;
  /** Of the iterations. */
  readonly scale: number;
  /** Whether the rows of emulated cards are measured, beside host memory and memcpy. */
  readonly cards: boolean;
  /** Longest message of the tests that are measured at every size; 0 for none of these. */
  readonly curveBytesMax: number;
  /** Folder for the JSON and the page; undefined for none. */
  readonly folder: string | undefined;
}

/** What `npm run bench -- c-ucx` measures. */
export const WHOLE: Extent = {
  rounds: 3,
  scale: 1,
  cards: true,
  curveBytesMax: 64 * 2 ** 20,
  folder: 'dist/bench-results',
};

/** The table of targets only; its rows of cards are those of `device-memory`. */
export const TABLE_ONLY: Extent = { ...WHOLE, cards: false, curveBytesMax: 0, folder: undefined };

/** The table and every size to 16 MiB, in short runs: the shape of the curves in a quarter of an hour, and not their last digits. */
export const SIZES_ONCE: Extent = { ...WHOLE, rounds: 1, scale: 0.15, cards: false, curveBytesMax: 16 * 2 ** 20 };

/** Measures everything, and gives what has a target as soon as it is known. */
export async function* benchCUcx(extent: Extent = WHOLE): AsyncGenerator<Result> {
  const { rounds, scale, curveBytesMax, folder } = extent;
  const version = ucxVersion();
  if (version === undefined) {
    console.log('c-ucx: left out, ucx_perftest (Debian package ucx-utils) is not installed');
    return;
  }
  const table: Comparison[] = [];
  for (const target of ALL_TARGETS) {
    const comparison = await compare(target, rounds, scale);
    table.push(comparison);
    yield resultOf(comparison, target.ratio);
  }
  const cards = extent.cards ? await benchDeviceMemory(scale) : [];
  yield* cards;
  const curves: Comparison[] = [];
  for (const transports of curveBytesMax > 0 ? TRANSPORT_SETS : []) {
    for (const test of CURVE_TESTS) {
      const points = await curveOf(transports, test, curveBytesMax, rounds, scale);
      curves.push(...points);
      yield* boundsOf(transports.name, test, points);
    }
  }
  if (folder !== undefined) {
    mkdirSync(folder, { recursive: true });
    const time = new Date();
    const cpu = `${os.cpus().length} x ${os.cpus()[0]?.model}`;
    const facts = { time, cpu, versions: `Node.js ${process.version}, UCX ${version}` };
    writeFileSync(join(folder, 'c-ucx.json'), `${JSON.stringify({ ...facts, table, cards, curves }, undefined, 1)}\n`);
    writeFileSync(join(folder, 'c-ucx.html'), comparisonPage(facts, table, cards, curves));
    console.log(`c-ucx: figures in ${join(folder, 'c-ucx.json')}, charts in ${join(folder, 'c-ucx.html')}`);
  }
}

/** All sizes of a test. One stall of either tool spoils a short run: what is beyond the bound of single sizes is measured again, in several rounds. */
async function curveOf(
  transports: TransportSet,
  test: string,
  bytesMax: number,
  rounds: number,
  scale: number,
): Promise<Comparison[]> {
  const measure = measureOf(test);
  const points: Comparison[] = [];
  for (const bytes of sizesTo(bytesMax)) {
    const each = { transports, test, bytes };
    const point = await compare(each, rounds, scale);
    const isPlausible = rounds >= WHOLE.rounds || isMet(measure, point.ratio, CURVE_BOUNDS[measure].worst);
    points.push(isPlausible ? point : await compare(each, WHOLE.rounds, scale));
  }
  return points;
}

export function resultOf(
  { transports, test, bytes, measure, ours, theirs, ratio }: Comparison,
  target: number,
): Result {
  return {
    name: `${transports} ${test} ${sizeOf(bytes)} to C UCX`,
    value: `${printed(measure, ours, bytes)} to ${printed(measure, theirs, bytes)}`,
    ratio,
    target: aim(measure, target),
    met: isMet(measure, ratio, target),
  };
}

/** The two bounds of a test that was measured at every size. */
function boundsOf(transports: string, test: string, points: readonly Comparison[]): Result[] {
  const measure = measureOf(test);
  const { mean: meanBound, worst: worstBound } = CURVE_BOUNDS[measure];
  const mean = geometricMean(points.map(({ ratio }) => ratio));
  const sign = measure === 'latency' ? -1 : 1;
  const worst = [...points].sort((one, other) => sign * (one.ratio - other.ratio))[0]!;
  const name = `${transports} ${test} all sizes to C UCX`;
  return [
    {
      name,
      value: 'geometric mean',
      ratio: mean,
      target: aim(measure, meanBound),
      met: isMet(measure, mean, meanBound),
    },
    {
      name,
      value: `worst: ${sizeOf(worst.bytes)}`,
      ratio: worst.ratio,
      target: aim(measure, worstBound),
      met: isMet(measure, worst.ratio, worstBound),
    },
  ];
}

function aim(measure: Measure, target: number): string {
  return `${measure === 'latency' ? '<=' : '>='} ${target}`;
}

function printed(measure: Measure, value: number, bytes: number): string {
  if (measure === 'latency') return `${value.toPrecision(3)} us`;
  if (bytes < 1024) return `${(value / 1e6).toPrecision(3)} M/s`;
  return `${((value * bytes) / 1e9).toPrecision(3)} GB/s`;
}
