/** Memory of emulated cards between two processes: through host memory over a network or shared memory, and card to card on a node server, beside host memory and memcpy. */

import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { mapAnonymous, memcpy } from '../src/sys/index.ts';
import {
  type Environment,
  MAIN,
  MIB,
  OURS,
  OVERALL_BANDWIDTH,
  OVERALL_LATENCY,
  runPair,
  sizeOf,
} from './perftest-pair.ts';
import { median, medianPerCallNs, type Result } from './timing.ts';

const ROUNDS = 3;
const PUT_US_MAX = 5;
const SHARE_MIN = 0.85;

/** The receiver does not poll, because the emulated card needs its processor. */
const GAUDI_PUT: readonly string[] = ['-t', 'ucp_put_bw', '-m', 'gaudi,gaudi', '-o'];

/** Messages between the cards of two nodes, which go through host memory. */
interface StagedCase {
  readonly transports: string;
  readonly bytes: number;
  readonly iterations: number;
  /** Share of the bandwidth between host memory. */
  readonly target: number;
}

const STAGED_CASES: readonly StagedCase[] = [
  { transports: 'tcp,self,gaudi_cpy', bytes: 64 * MIB, iterations: 200, target: 0.85 },
  { transports: 'posix,cma,self,gaudi_cpy', bytes: 8 * MIB, iterations: 3000, target: 0.8 },
];

const IPC_CASES: readonly (readonly [bytes: number, iterations: number])[] = [
  [MIB, 20_000],
  [16 * MIB, 1000],
  [64 * MIB, 300],
];

/** Runs all comparisons. @param scale of the iterations; below 1 only to see that everything runs */
export async function benchDeviceMemory(scale = 1): Promise<Result[]> {
  const results: Result[] = [];
  for (const staged of STAGED_CASES) results.push(await againstHost(staged, scale));
  return [...results, ...(await cardToCard(scale))];
}

/** Both ends take a processor: their cards copy on it too. */
async function againstHost({ transports, bytes, iterations, target }: StagedCase, scale: number): Promise<Result> {
  const env = { UCX_TLS: transports, UCX_GAUDI_DRIVER: 'emulator' };
  const args = ['-t', 'tag_bw', '-s', String(bytes), '-n', String(Math.ceil(iterations * scale))];
  const [device, host]: [number[], number[]] = [[], []];
  for (let round = 0; round < ROUNDS; round++) {
    host.push((await runPair(OURS, [...args, '-m', 'host'], env))[OVERALL_BANDWIDTH]!);
    device.push((await runPair(OURS, [...args, '-m', 'gaudi'], env))[OVERALL_BANDWIDTH]!);
  }
  const [own, other] = [median(device), median(host)];
  const ratio = own / other;
  return {
    name: `${transports} tag_bw ${sizeOf(bytes)}, HBM->HBM to host->host`,
    value: `${own} to ${other} MB/s (emulated)`,
    ratio,
    target: `>= ${target}`,
    met: ratio >= target,
  };
}

async function cardToCard(scale: number): Promise<Result[]> {
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
