/**
 * Gaudi3, whose channels a process drives, beside gaudi2, whose driver takes submissions: the same operations of ucp in the same run, one round of each in turn.
 * All cards are emulated.
 */

import { Context, type Endpoint, MemoryType, type RemoteKey, type Request, type Worker } from '../src/index.ts';
import { elapsedNs, median, type Result } from './timing.ts';

const ROUNDS = 9;
const SHORT_BYTES = 8;
const SHORT_OPERATIONS = 20_000;
const LONG_BYTES = 2 ** 20;
const LONG_OPERATIONS = 256;
const WINDOW = 64;
const WARM_UP = 50_000;
const GARBAGE_OPERATIONS = 100_000;
/** A multiple of the latency of gaudi2 at most; parts of its rates at least; bytes of garbage per operation. */
const LATENCY_MAX = 1.3;
const RATE_MIN = 0.95;
const GARBAGE_MAX = 1;
/** Wakes of an engine that sleeps: more bytes than are moved in the submitting thread, after a pause longer than an engine spins. */
const WAKES = 200;
const WAKE_BYTES = 8192;
const WAKE_PAUSE_MS = 2;
const WAKE_US_MAX = 50;

/** One context on a card of a generation. */
interface Side {
  readonly context: Context;
  readonly worker: Worker;
  readonly endpoint: Endpoint;
  readonly key: RemoteKey;
  readonly short: Uint8Array;
  readonly long: Uint8Array;
}

/** Runs all comparisons. Needs --expose-gc. */
export async function benchGenerations(): Promise<Result[]> {
  await using older = await Context.create({ config: { GAUDI_EMULATOR_CARDS: '1', GAUDI_EMULATOR_ASIC: 'gaudi2' } });
  await using newer = await Context.create({ config: { GAUDI_EMULATOR_CARDS: '1', GAUDI_EMULATOR_ASIC: 'gaudi3' } });
  const [gaudi2, gaudi3] = [sideOf(older), sideOf(newer)];
  for (const side of [gaudi2, gaudi3]) {
    for (let n = 0; n < WARM_UP; n++) shortPut(side);
    run(side, 'put', WINDOW);
    run(side, 'get', WINDOW);
  }
  const compare = (measure: (side: Side) => number): readonly [number, number] => {
    const ratios: number[] = [];
    const values: number[] = [];
    for (let round = 0; round < ROUNDS; round++) {
      const [old, fresh] = [measure(gaudi2), measure(gaudi3)];
      ratios.push(fresh / old);
      values.push(fresh);
    }
    return [median(values), median(ratios)];
  };
  const [latency, latencyRatio] = compare((side) => {
    const ns = elapsedNs(() => {
      for (let n = 0; n < SHORT_OPERATIONS; n++) shortPut(side);
    });
    return ns / SHORT_OPERATIONS;
  });
  const results: Result[] = [
    {
      name: 'gaudi3: 8-byte put + completion, to gaudi2',
      value: `${(latency / 1000).toFixed(2)} us`,
      ratio: latencyRatio,
      target: `<= ${LATENCY_MAX}`,
      met: latencyRatio <= LATENCY_MAX,
    },
  ];
  for (const kind of ['put', 'get'] as const) {
    for (const window of [1, WINDOW]) {
      const [rate, ratio] = compare(
        (side) => (LONG_OPERATIONS * LONG_BYTES) / elapsedNs(() => run(side, kind, window)),
      );
      results.push({
        name: `gaudi3: ${kind} of 1 MiB, ${window} in flight, to gaudi2`,
        value: `${rate.toFixed(2)} GB/s`,
        ratio,
        target: `>= ${RATE_MIN}`,
        met: ratio >= RATE_MIN,
      });
    }
  }
  results.push(garbage(gaudi3), await wakeResult(gaudi3, gaudi2));
  return results;
}

function sideOf(context: Context): Side {
  const worker = context.worker();
  const endpoint = worker.endpoint(worker.address());
  const memory = context.memMap({ allocate: WINDOW * LONG_BYTES, memoryType: MemoryType.GAUDI });
  const key = endpoint.unpackRkey(context.packRkey(memory));
  return { context, worker, endpoint, key, short: new Uint8Array(SHORT_BYTES), long: new Uint8Array(LONG_BYTES) };
}

function shortPut({ worker, endpoint, short, key }: Side): void {
  finish(worker, endpoint.putNbx(short, 0, SHORT_BYTES, key, 64));
  finish(worker, endpoint.flushNbx());
}

/** Transfers {@link LONG_OPERATIONS} of 1 MiB, `window` at a time. */
function run({ worker, endpoint, long, key }: Side, kind: 'put' | 'get', window: number): void {
  const requests: (Request | number)[] = [];
  for (let n = 0; n < LONG_OPERATIONS; n++) {
    const offset = (n % WINDOW) * LONG_BYTES;
    requests.push(
      kind === 'put'
        ? endpoint.putNbx(long, 0, LONG_BYTES, key, offset)
        : endpoint.getNbx(long, 0, LONG_BYTES, key, offset),
    );
    if (requests.length === window) for (const request of requests.splice(0)) finish(worker, request);
  }
  finish(worker, endpoint.flushNbx());
}

function finish(worker: Worker, request: Request | number): void {
  if (typeof request === 'number') {
    if (request !== 0) throw new Error(`status ${request}`);
    return;
  }
  while (!request.isCompleted) worker.progress();
  if (request.status !== 0) throw new Error(`status ${request.status}`);
  request.free();
}

function garbage(side: Side): Result {
  const { gc } = globalThis;
  if (gc === undefined) throw new Error('run with --expose-gc');
  const rounds = Array.from({ length: ROUNDS }, () => {
    gc();
    const before = process.memoryUsage().heapUsed;
    for (let n = 0; n < GARBAGE_OPERATIONS; n++) shortPut(side);
    return (process.memoryUsage().heapUsed - before) / GARBAGE_OPERATIONS;
  });
  const bytes = median(rounds);
  return {
    name: 'gaudi3: garbage of an 8-byte put + completion',
    value: `${bytes.toFixed(2)} bytes`,
    ratio: bytes / GARBAGE_MAX,
    target: `<= ${GARBAGE_MAX} byte`,
    met: bytes <= GARBAGE_MAX,
  };
}

/** Time of a put to an idle card, whose engine has to wake; beside it that of gaudi2. */
async function wakeResult(gaudi3: Side, gaudi2: Side): Promise<Result> {
  const [us, beside] = [await wakeUs(gaudi3), await wakeUs(gaudi2)];
  return {
    name: 'gaudi3: put of 8 KiB to an idle card',
    value: `${us.toFixed(0)} us, gaudi2 ${beside.toFixed(0)} us`,
    ratio: us / WAKE_US_MAX,
    target: `<= ${WAKE_US_MAX} us`,
    met: us <= WAKE_US_MAX,
  };
}

async function wakeUs({ worker, endpoint, long, key }: Side): Promise<number> {
  const samples: number[] = [];
  for (let n = 0; n < WAKES; n++) {
    await new Promise((resolve) => setTimeout(resolve, WAKE_PAUSE_MS));
    samples.push(
      elapsedNs(() => {
        finish(worker, endpoint.putNbx(long, 0, WAKE_BYTES, key, 0));
        finish(worker, endpoint.flushNbx());
      }),
    );
  }
  return median(samples) / 1000;
}
