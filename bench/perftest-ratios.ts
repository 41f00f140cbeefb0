/**
 * `gaudi-ucx perftest` compared with `ucx_perftest` of C UCX over shared memory and TCP, alternating on the same processors; and device memory of
 * another process
 * of a node server compared with memcpy.
 */

import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { mapAnonymous, memcpy } from '../src/sys/index.ts';
import {
  type Environment,
  hasUcxPerftest,
  MAIN,
  MIB,
  OURS,
  OVERALL_BANDWIDTH,
  OVERALL_LATENCY,
  runPair,
  sizeOf,
  THEIRS,
} from './perftest-pair.ts';
import { median, medianPerCallNs, type Result } from './timing.ts';

const ROUNDS = 3;
const PUT_US_MAX = 5;
const SHARE_MIN = 0.8;

/** The receiver does not poll, because the emulated card needs its processor. */
const GAUDI_PUT: readonly string[] = ['-t', 'ucp_put_bw', '-m', 'gaudi,gaudi', '-o'];

/** A test and its target. */
interface RatioCase {
  /** UCX_TLS of both tools, and the label of the results. */
  readonly transports: string;
  readonly test: string;
  readonly bytes: number;
  readonly iterations: number;
  /** Latency: at most this multiple of C UCX's. Bandwidth: at least this multiple. */
  readonly target: number;
}

const SHM = 'posix,cma,self';
const RATIO_CASES: readonly RatioCase[] = [
  { transports: SHM, test: 'ucp_put_lat', bytes: 8, iterations: 3_000_000, target: 1.5 },
  { transports: SHM, test: 'ucp_am_lat', bytes: 8, iterations: 3_000_000, target: 2 },
  { transports: SHM, test: 'tag_lat', bytes: 8, iterations: 3_000_000, target: 2 },
  { transports: SHM, test: 'tag_bw', bytes: MIB, iterations: 10_000, target: 1 },
  { transports: SHM, test: 'ucp_put_bw', bytes: MIB, iterations: 30_000, target: 0.8 },
  { transports: 'tcp', test: 'tag_lat', bytes: 8, iterations: 200_000, target: 1 },
  { transports: 'tcp', test: 'ucp_am_lat', bytes: 8, iterations: 200_000, target: 1.1 },
  { transports: 'tcp', test: 'tag_bw', bytes: MIB, iterations: 5000, target: 0.9 },
  { transports: 'tcp', test: 'ucp_put_bw', bytes: MIB, iterations: 5000, target: 4 },
  // A put ends with its flush in both tools.
  { transports: 'tcp', test: 'ucp_put_lat', bytes: 8, iterations: 100_000, target: 1 },
];

const IPC_CASES: readonly (readonly [bytes: number, iterations: number])[] = [
  [MIB, 20_000],
  [16 * MIB, 1000],
  [64 * MIB, 300],
];

/** Runs all comparisons. @param scale of the iterations; below 1 only to check that everything runs */
export async function benchPerftestRatios(scale = 1): Promise<Result[]> {
  const results: Result[] = [];
  if (hasUcxPerftest()) {
    for (const ratioCase of RATIO_CASES) results.push(await compare(ratioCase, scale));
  } else console.log('perftest ratios to C UCX: left out, ucx_perftest (Debian package ucx-utils) is not installed');
  return [...results, await networkPipeline(scale), ...(await deviceMemory(scale))];
}

async function compare({ transports, test, bytes, iterations, target }: RatioCase, scale: number): Promise<Result> {
  const isLatency = test.endsWith('_lat');
  const column = isLatency ? OVERALL_LATENCY : OVERALL_BANDWIDTH;
  const args = ['-t', test, '-s', String(bytes), '-n', String(Math.ceil(iterations * scale))];
  const env = { UCX_TLS: transports };
  const [ours, theirs]: [number[], number[]] = [[], []];
  for (let round = 0; round < ROUNDS; round++) {
    theirs.push((await runPair(THEIRS, args, env))[column]!);
    ours.push((await runPair(OURS, args, env))[column]!);
  }
  const [own, other] = [median(ours), median(theirs)];
  const ratio = own / other;
  const unit = isLatency ? 'us' : 'MB/s';
  return {
    name: `${transports} ${test} ${sizeOf(bytes)} to C UCX`,
    value: `${own} to ${other} ${unit}`,
    ratio,
    target: `${isLatency ? '<=' : '>='} ${target}`,
    met: isLatency ? ratio <= target : ratio >= target,
  };
}

/**
 * Messages from HBM to HBM of two emulated nodes over TCP, compared with those of host memory. Both ends need a processor, on which their cards copy
 * too.
 */
async function networkPipeline(scale: number): Promise<Result> {
  const env = { UCX_TLS: 'tcp,self,gaudi_cpy', UCX_GAUDI_DRIVER: 'emulator', UCX_GAUDI_EMULATOR_DMA_THREADS: '0' };
  const args = ['-t', 'tag_bw', '-s', String(64 * MIB), '-n', String(Math.ceil(60 * scale)), '-w', '4'];
  const [device, host]: [number[], number[]] = [[], []];
  for (let round = 0; round < ROUNDS; round++) {
    host.push((await runPair(OURS, [...args, '-m', 'host'], env))[OVERALL_BANDWIDTH]!);
    device.push((await runPair(OURS, [...args, '-m', 'gaudi'], env))[OVERALL_BANDWIDTH]!);
  }
  const [own, other] = [median(device), median(host)];
  const ratio = own / other;
  return {
    name: 'tcp tag_bw 64 MiB, HBM->HBM to host->host',
    value: `${own} to ${other} MB/s (emulated)`,
    ratio,
    target: `>= ${SHARE_MIN}`,
    met: ratio >= SHARE_MIN,
  };
}

async function deviceMemory(scale: number): Promise<Result[]> {
  const folder = mkdtempSync(join(tmpdir(), 'gaudi-ucx-bench-'));
  const socket = join(folder, 'node.sock');
  const args = ['node', 'up', '--foreground', '--cards', '2', '--socket', socket];
  const node = spawn(process.execPath, [MAIN, ...args], { stdio: ['ignore', 'pipe', 'inherit'] });
  try {
    await once(node.stdout, 'data');
    const env = { UCX_GAUDI_DRIVER: `emulator:${socket}` };
    const results: Result[] = [];
    for (const [bytes, iterations] of IPC_CASES) {
      results.push(await againstMemcpy(bytes, Math.ceil(iterations * scale), env));
    }
    results.push(await smallPut(Math.ceil(200_000 * scale), env));
    return results;
  } finally {
    const end = once(node, 'exit');
    node.kill();
    await end;
    rmSync(folder, { recursive: true });
  }
}

async function againstMemcpy(bytes: number, iterations: number, env: Environment): Promise<Result> {
  const args = [...GAUDI_PUT, '-s', String(bytes), '-n', String(iterations)];
  const [from, to] = [0, 1].map(() => mapAnonymous(bytes, { populate: true }));
  const copies = Math.max(1, Math.ceil(iterations / ROUNDS));
  const [puts, memcpys]: [number[], number[]] = [[], []];
  for (let round = 0; round < ROUNDS; round++) {
    memcpys.push(bytes / medianPerCallNs(1, copies, () => memcpy(to!.address, from!.address, bytes)));
    puts.push(((await runPair(OURS, args, env))[OVERALL_BANDWIDTH]! * MIB) / 1e9);
  }
  for (const each of [from, to]) each!.close();
  const [put, copy] = [median(puts), median(memcpys)];
  const share = put / copy;
  return {
    name: `gaudi_ipc HBM->HBM ${sizeOf(bytes)}`,
    value: `${put.toFixed(1)} of ${copy.toFixed(1)} GB/s (emulated)`,
    ratio: share,
    target: `>= ${SHARE_MIN}`,
    met: share >= SHARE_MIN,
  };
}

/** One put after the other, each with its completion; the key is unpacked and its memory imported before. */
async function smallPut(iterations: number, env: Environment): Promise<Result> {
  const args = [...GAUDI_PUT, '-s', '8', '-O', '1', '-n', String(iterations)];
  const times: number[] = [];
  for (let round = 0; round < ROUNDS; round++) times.push((await runPair(OURS, args, env))[OVERALL_LATENCY]!);
  const us = median(times);
  return {
    name: 'gaudi_ipc put 8 B + completion',
    value: `${us.toFixed(2)} us (emulated)`,
    ratio: us / PUT_US_MAX,
    target: `<= ${PUT_US_MAX} us`,
    met: us <= PUT_US_MAX,
  };
}
