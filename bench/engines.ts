/**
 * Both engines compared with C UCX: `gaudi-ucx perftest` over the native engine and over libucp, and `ucx_perftest`, alternating on the same
 * processors, with the same
 * options. Separately: `npm run build && node dist/bench/engines.js [scale]`.
 */

import { argv } from 'node:process';
import { fileURLToPath } from 'node:url';
import { bareCallsNs } from './bare-calls.ts';
import { MIB, OURS, OVERALL_BANDWIDTH, OVERALL_LATENCY, runPair, sizeOf, THEIRS, ucxVersion } from './perftest-pair.ts';
import { formatResult, type Result } from './timing.ts';

const ROUNDS = 7;
/** C UCX's names of the shared-memory transports, and the names of this library. */
const SHM = 'posix,cma,self';
const TCP = 'tcp,self';

/** A test and the target of the engine over libucp. */
interface EngineCase {
  /** UCX_TLS of all three. */
  readonly transports: string;
  readonly test: string;
  readonly bytes: number;
  readonly iterations: number;
  /** Latency: at most this multiple of C UCX's. Bandwidth: at least this multiple. */
  readonly target: number;
}

/**
 * In all three, endpoints have no error handling and memory is that of ucp_mem_map with UCP_MEM_MAP_ALLOCATE; operations receive its address in C UCX
 * and its handle
 * here (-z). Contexts have only the feature that the test uses.
 */
const CASES: readonly EngineCase[] = [
  { transports: TCP, test: 'tag_lat', bytes: 8, iterations: 200_000, target: 1.2 },
  { transports: SHM, test: 'tag_lat', bytes: 8, iterations: 2_000_000, target: 2.5 },
  { transports: SHM, test: 'ucp_put_bw', bytes: MIB, iterations: 30_000, target: 0.8 },
  { transports: SHM, test: 'ucp_get', bytes: MIB, iterations: 30_000, target: 0.8 },
  { transports: TCP, test: 'ucp_put_bw', bytes: MIB, iterations: 3000, target: 0.8 },
  { transports: TCP, test: 'ucp_get', bytes: MIB, iterations: 3000, target: 0.8 },
];

/** Runs all comparisons. @param scale of the iterations; below 1 only to check that everything runs */
export async function benchEngines(scale = 1): Promise<Result[]> {
  if (ucxVersion() === undefined) {
    console.log('engines beside C UCX: left out, ucx_perftest (Debian package ucx-utils) is not installed');
    return [];
  }
  const results: Result[] = [];
  for (const engineCase of CASES) results.push(await compare(engineCase, scale));
  const bare = (await bareCallsNs(SHM)) / 1000;
  console.log(`${SHM} tag_lat 8 B by bare calls of libucp: ${bare.toFixed(3)} us, the best of its rounds`);
  return results;
}

async function compare({ transports, test, bytes, iterations, target }: EngineCase, scale: number): Promise<Result> {
  const isLatency = test.endsWith('_lat');
  const column = isLatency ? OVERALL_LATENCY : OVERALL_BANDWIDTH;
  const args = ['-t', test, '-s', String(bytes), '-n', String(Math.ceil(iterations * scale))];
  const env = { UCX_TLS: transports };
  const ours = [...args, '-z'];
  const [theirs, native, libucx]: [number[], number[], number[]] = [[], [], []];
  for (let round = 0; round < ROUNDS; round++) {
    theirs.push((await runPair(THEIRS, args, env))[column]!);
    native.push((await runPair(OURS, ours, { ...env, UCX_ENGINE: 'native' }))[column]!);
    libucx.push((await runPair(OURS, ours, { ...env, UCX_ENGINE: 'libucx' }))[column]!);
  }
  // The best of each, because the speed of a virtual machine differs between runs.
  const best = (values: readonly number[]): number => (isLatency ? Math.min(...values) : Math.max(...values));
  const [c, own, over] = [best(theirs), best(native), best(libucx)];
  const ratio = over / c;
  const unit = isLatency ? 'us' : 'MB/s';
  return {
    name: `libucx ${transports} ${test} ${sizeOf(bytes)} to C UCX`,
    value: `${over} to ${c} ${unit}, native ${own}`,
    ratio,
    target: `${isLatency ? '<=' : '>='} ${target}`,
    met: isLatency ? ratio <= target : ratio >= target,
  };
}

if (argv[1] === fileURLToPath(import.meta.url)) {
  for (const result of await benchEngines(Number(argv[2] ?? 1))) console.log(formatResult(result));
}
