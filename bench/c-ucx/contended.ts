/** `gaudi-ucx perftest` beside `ucx_perftest` where processors are scarce: both ends on one, or a third program that computes. Reported, without targets. */

import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { availableParallelism } from 'node:os';
import { ucxVersion } from '../perftest-pair.ts';
import type { Result } from '../timing.ts';
import { resultOf } from './c-ucx.ts';
import { type Case, SHM, TCP } from './cases.ts';
import { compare } from './measure.ts';

const MIB = 2 ** 20;
const ROUNDS = 3;
/** Of the iterations: a message may take a time slice of several milliseconds. */
const TOGETHER_SCALE = 5e-4;
const BUSY_SCALE = 0.02;

const TOGETHER: readonly Case[] = [
  { transports: SHM, test: 'tag_lat', bytes: 8 },
  { transports: SHM, test: 'ucp_put_lat', bytes: 8 },
  { transports: TCP, test: 'tag_lat', bytes: 8 },
];
const BUSY: readonly Case[] = [
  { transports: SHM, test: 'tag_lat', bytes: 8 },
  { transports: SHM, test: 'tag_bw', bytes: 65_536 },
  { transports: TCP, test: 'tag_lat', bytes: 8 },
  { transports: TCP, test: 'tag_bw', bytes: MIB },
];

/** Runs the measurements. */
export async function benchContended(): Promise<Result[]> {
  if (ucxVersion() === undefined) {
    console.log('c-ucx-contended: left out, ucx_perftest (Debian package ucx-utils) is not installed');
    return [];
  }
  const results: Result[] = [];
  for (const each of TOGETHER) {
    results.push(
      reported(await compare(each, ROUNDS, TOGETHER_SCALE, { placement: 'together' }), 'both on one processor'),
    );
  }
  // One program for every second processor: with two, both ends share what is left with it.
  const others = Array.from({ length: Math.ceil(availableParallelism() / 2) }, () =>
    spawn(process.execPath, ['-e', 'for (;;);'], { stdio: 'ignore' }),
  );
  try {
    for (const each of BUSY) results.push(reported(await compare(each, ROUNDS, BUSY_SCALE), 'beside a busy program'));
  } finally {
    for (const other of others) {
      other.kill('SIGKILL');
      await once(other, 'exit');
    }
  }
  return results;
}

function reported(comparison: Parameters<typeof resultOf>[0], where: string): Result {
  const { name, ...rest } = resultOf(comparison, comparison.ratio);
  return { ...rest, name: `${name}, ${where}`, target: 'none', met: true };
}
