/** Collective operations of several processes on one emulated node, as a ratio to a memcpy of the bytes that they move, by one thread. */

import { spawnSync } from 'node:child_process';
import { allocateScratch, memcpy } from '../src/sys/index.ts';
import { elapsedNs, median, type Result } from './timing.ts';

const MAIN = new URL('../lib/main.js', import.meta.url).pathname;
const MIB = 2 ** 20;
/** Larger than every cache. */
const COPY_BYTES = 128 * MIB;
const COPY_ROUNDS = 5;
/** Iterations before those that are timed: V8 compiles meanwhile. */
const WARM_UP = 10;

interface CollectiveCase {
  readonly test: string;
  readonly ranks: number;
  readonly memory: 'host' | 'gaudi';
  /** `--size`: for all_gather and all_to_all the bytes of all ranks together. */
  readonly size: number;
  readonly iterations: number;
  /** Bytes that all ranks write. */
  readonly moved: number;
  /** Share of the rate of memcpy. */
  readonly target: number;
}

const CASES: readonly CollectiveCase[] = [
  ...['all_gather', 'all_to_all'].map((test) => ({
    test,
    ranks: 8,
    memory: 'gaudi' as const,
    size: 64 * MIB,
    iterations: 40,
    moved: 8 * 64 * MIB,
    target: 0.8,
  })),
  // A ring of two: each rank receives one half, adds it, and receives the other half.
  { test: 'all_reduce', ranks: 2, memory: 'host', size: 64 * MIB, iterations: 100, moved: 2 * 64 * MIB, target: 0.5 },
];

/** Runs all of them, and a barrier. */
export function benchCollectives(): Result[] {
  const copyNs = copyNsPerByte();
  const results = CASES.map((each) => benchCase(each, copyNs));
  const barrierUs = run('barrier', 8, 'host', 0, 200) / 1000;
  return [
    ...results,
    {
      name: 'barrier, 8 processes',
      value: `${barrierUs.toFixed(0)} us`,
      ratio: undefined,
      target: 'reported',
      met: true,
    },
  ];
}

function benchCase({ test, ranks, memory, size, iterations, moved, target }: CollectiveCase, copyNs: number): Result {
  const ns = run(test, ranks, memory, size, iterations);
  const ratio = (moved * copyNs) / ns;
  return {
    name: `${test} ${ranks} ranks, ${size / MIB} MiB ${memory}`,
    value: `${(ns / 1e6).toFixed(1)} ms, ${(moved / ns).toFixed(2)} GB/s`,
    ratio,
    target: `>= ${target} memcpy`,
    met: ratio >= target,
  };
}

/** Time of one operation in nanoseconds, by the command line. */
function run(test: string, ranks: number, memory: string, size: number, iterations: number): number {
  const sizes = size === 0 ? [] : ['--size', String(size)];
  const args = ['coll', '--test', test, '--ranks', String(ranks), '-m', memory, ...sizes, '-n', String(iterations)];
  const { status, stdout, stderr } = spawnSync(process.execPath, [MAIN, ...args, '-w', String(WARM_UP), '--json'], {
    encoding: 'utf8',
  });
  if (status !== 0) throw new Error(`${args.join(' ')}: ${stderr}`);
  const { results } = JSON.parse(stdout) as { results: readonly { readonly timeNs: number; readonly wrong: number }[] };
  const [result] = results;
  if (result === undefined || result.wrong !== 0) throw new Error(`${args.join(' ')}: wrong data`);
  return result.timeNs;
}

function copyNsPerByte(): number {
  const [source, target] = [allocateScratch(COPY_BYTES), allocateScratch(COPY_BYTES)];
  source.u8.fill(1);
  const copy = (): void => memcpy(target.address, source.address, COPY_BYTES);
  copy();
  const ns = median(Array.from({ length: COPY_ROUNDS }, () => elapsedNs(copy)));
  source.free();
  target.free();
  return ns / COPY_BYTES;
}
