/** Latency and garbage of an 8-byte put with its completion: ucp, gaudi_cpy, hlthunk, emulator, and back. */

import { Context, MemoryType } from '../src/index.ts';
import { median, type Result } from './timing.ts';

const SAMPLES = 50_000;
const WARM_UP = 100_000;
const LATENCY_US_MAX = 3;
const GARBAGE_BYTES_MAX = 1024;
const GARBAGE_OPERATIONS = 100_000;
const GARBAGE_ROUNDS = 7;

/** Runs both measurements. Needs --expose-gc. */
export async function benchSmallPut(): Promise<Result[]> {
  await using context = await Context.create();
  const worker = context.worker();
  const endpoint = worker.endpoint(worker.address());
  const memory = context.memMap({ allocate: 2 ** 20, memoryType: MemoryType.GAUDI });
  const key = endpoint.unpackRkey(context.packRkey(memory));
  const bytes = new Uint8Array(8).fill(7);
  const operation = (): void => {
    const status = endpoint.putNbx(bytes, 0, 8, key, 64);
    if (status !== 0) throw new Error(`put: ${String(status)}`);
    const flush = endpoint.flushNbx();
    if (typeof flush === 'number') {
      if (flush !== 0) throw new Error(`flush: ${flush}`);
      return;
    }
    while (!flush.isCompleted) worker.progress();
    flush.free();
  };
  for (let i = 0; i < WARM_UP; i++) operation();
  return [latency(operation), garbage(operation)];
}

function latency(operation: () => void): Result {
  const samples = new Float64Array(SAMPLES);
  for (let i = 0; i < SAMPLES; i++) {
    const begin = process.hrtime.bigint();
    operation();
    samples[i] = Number(process.hrtime.bigint() - begin);
  }
  samples.sort();
  const us = samples[SAMPLES >>> 1]! / 1000;
  const tail = samples[Math.floor(SAMPLES * 0.99)]! / 1000;
  return {
    name: '8-byte put + completion',
    value: `median ${us.toFixed(2)} us, p99 ${tail.toFixed(2)} us`,
    ratio: us / LATENCY_US_MAX,
    target: `<= ${LATENCY_US_MAX} us`,
    met: us <= LATENCY_US_MAX,
  };
}

/** Growth of the heap over many operations without a collection in between: the median, because V8's own allocations come in bursts. */
function garbage(operation: () => void): Result {
  const { gc } = globalThis;
  if (gc === undefined) throw new Error('run with --expose-gc');
  const rounds = Array.from({ length: GARBAGE_ROUNDS }, () => {
    gc();
    const before = process.memoryUsage().heapUsed;
    for (let i = 0; i < GARBAGE_OPERATIONS; i++) operation();
    return ((process.memoryUsage().heapUsed - before) / GARBAGE_OPERATIONS) * 1000;
  });
  const perThousand = median(rounds);
  return {
    name: 'garbage of 1000 put + completion',
    value: `${perThousand.toFixed(0)} bytes`,
    ratio: perThousand / GARBAGE_BYTES_MAX,
    target: `<= ${GARBAGE_BYTES_MAX} bytes`,
    met: perThousand <= GARBAGE_BYTES_MAX,
  };
}
