/** Bandwidth of put and get through ucp, gaudi_cpy, hlthunk and the emulator, as a ratio to an in-thread memcpy of the same bytes. */

import {
  Context,
  type Endpoint,
  type MemoryHandle,
  MemoryType,
  type RemoteKey,
  type Request,
  type Worker,
} from '../src/index.ts';
import { memcpy } from '../src/sys/index.ts';
import { elapsedNs, median, type Result } from './timing.ts';

/** Larger than every cache, so that all measurements copy memory and not cache lines. */
const BUFFER_BYTES = 256 * 2 ** 20;
const ROUNDS = 5;
const WINDOW = 16;
const SIZES: readonly (readonly [bytes: number, ratioMin: number])[] = [
  [64 * 2 ** 10, 0.8],
  [2 ** 20, 0.9],
  [8 * 2 ** 20, 0.9],
  [64 * 2 ** 20, 0.9],
];

interface Setup {
  readonly worker: Worker;
  readonly endpoint: Endpoint;
  readonly source: MemoryHandle;
  readonly target: MemoryHandle;
  readonly first: MemoryHandle;
  readonly firstKey: RemoteKey;
  readonly secondKey: RemoteKey;
}

/** Runs all sizes and directions. */
export async function benchCopyBandwidth(): Promise<Result[]> {
  await using context = await Context.create({ config: { GAUDI_EMULATOR_CARDS: '1' } });
  const worker = context.worker();
  const endpoint = worker.endpoint(worker.address());
  const host = (): MemoryHandle => context.memMap({ allocate: BUFFER_BYTES });
  const device = (): MemoryHandle => context.memMap({ allocate: BUFFER_BYTES, memoryType: MemoryType.GAUDI });
  const [first, second] = [device(), device()];
  const setup: Setup = {
    worker,
    endpoint,
    source: host(),
    target: host(),
    first,
    firstKey: endpoint.unpackRkey(context.packRkey(first)),
    secondKey: endpoint.unpackRkey(context.packRkey(second)),
  };
  setup.source.view()!.fill(1);
  setup.target.view()!.fill(2);
  for (const run of directions(setup).values()) run(2 ** 20);
  return SIZES.flatMap(([bytes, ratioMin]) => benchSize(setup, bytes, ratioMin));
}

function benchSize(setup: Setup, bytes: number, ratioMin: number): Result[] {
  const results: Result[] = [];
  for (const [name, run] of directions(setup)) {
    const ratios: number[] = [];
    const rates: number[] = [];
    for (let round = 0; round < ROUNDS; round++) {
      // Reference and candidate alternate, so that both run under the same load.
      const reference = elapsedNs(() => copyAll(setup, bytes));
      const candidate = elapsedNs(() => run(bytes));
      ratios.push(reference / candidate);
      rates.push(BUFFER_BYTES / candidate);
    }
    const ratio = median(ratios);
    const value = `${median(rates).toFixed(2)} GB/s (emulated)`;
    results.push({
      name: `${name} ${bytes / 1024} KiB`,
      value,
      ratio,
      target: `>= ${ratioMin}`,
      met: ratio >= ratioMin,
    });
  }
  return results;
}

/** The three directions; each moves the whole buffer in pieces. */
function directions(setup: Setup): Map<string, (bytes: number) => void> {
  const { endpoint, source, target, first, firstKey, secondKey } = setup;
  return new Map([
    ['put host->HBM', (bytes) => transferAll(setup, bytes, (at) => endpoint.putNbx(source, at, bytes, firstKey, at))],
    ['get HBM->host', (bytes) => transferAll(setup, bytes, (at) => endpoint.getNbx(target, at, bytes, firstKey, at))],
    ['put HBM->HBM', (bytes) => transferAll(setup, bytes, (at) => endpoint.putNbx(first, at, bytes, secondKey, at))],
  ]);
}

function copyAll({ source, target }: Setup, bytes: number): void {
  const from = Number(source.address);
  const to = Number(target.address);
  for (let at = 0; at < BUFFER_BYTES; at += bytes) memcpy(to + at, from + at, bytes);
}

/** Keeps a window of requests in flight until the whole buffer has moved. */
function transferAll({ worker }: Setup, bytes: number, start: (at: number) => number | Request): void {
  const window: (Request | undefined)[] = new Array(WINDOW).fill(undefined);
  let slot = 0;
  for (let at = 0; at < BUFFER_BYTES; at += bytes) {
    finish(worker, window[slot]);
    const started = start(at);
    if (typeof started === 'number' && started < 0) throw new Error(`status ${started}`);
    window[slot] = typeof started === 'number' ? undefined : started;
    slot = (slot + 1) % WINDOW;
  }
  for (const request of window) finish(worker, request);
}

function finish(worker: Worker, request: Request | undefined): void {
  if (request === undefined) return;
  while (!request.isCompleted) worker.progress();
  if (request.status < 0) throw new Error(`status ${request.status}`);
  request.free();
}
