/** Garbage of one operation of the nbx tier in steady state: none, but for the bigint that `Atomics` of 64 bits return. */

import { Context, type Request, type Status } from '../src/index.ts';
import type { Result } from './timing.ts';

const WARM_UP = 300_000;
const OPERATIONS = 20_000;
/** V8 compiles late on a busy machine: rounds after the first without garbage are not needed. */
const ROUNDS_MAX = 60;
/** V8's own allocations come in bursts: less than this for each operation is none. */
const NOISE_BYTES = 2;
/** A bigint of 64 bits in V8. */
const BIGINT_BYTES = 24;
const BYTES = 8;
const AM_ID = 3;

/** Runs the measurement, over shared memory between two contexts. Needs --expose-gc. */
export async function benchGarbage(): Promise<Result[]> {
  const config = { TLS: 'posix,self' };
  await using own = await Context.create({ config });
  await using other = await Context.create({ config });
  const [one, two] = [own.worker(), other.worker()];
  const [there, back] = [one.endpoint(two.address()), two.endpoint(one.address())];
  const key = there.unpackRkey(other.packRkey(other.memMap({ allocate: 4096 })));
  const mapped = own.memMap({ allocate: 4096 });
  const list = there.prepareList('put', [
    { local: mapped, rkey: key, byteLength: BYTES, count: 4, localStride: 64, remoteStride: 64 },
  ]);
  const part = { blocks: new Int32Array([1, 3]) } as const;
  const flushed = { flush: true } as const;
  const local = new Uint8Array(BYTES);
  const target = new Uint8Array(BYTES);
  let handled = 0;
  two.setAmHandler(AM_ID, () => {
    handled += 1;
  });

  const progress = (): void => {
    one.progress();
    two.progress();
  };
  const end = (started: Status | Request): void => {
    if (typeof started === 'number') {
      if (started !== 0) throw new Error(`an operation ended with ${started}`);
      return;
    }
    while (!started.isCompleted) progress();
    if (started.status !== 0) throw new Error(`a request ended with ${started.status}`);
    started.free();
  };
  const message = (received: Status | Request, sent: Status | Request): void => {
    end(sent);
    end(received);
    // Takes the credit that the receiver has returned.
    one.progress();
  };
  const activeMessage = (): void => {
    const wanted = handled + 1;
    end(there.amSendNbx(AM_ID, undefined, local, 0, BYTES));
    while (handled < wanted) progress();
  };
  const word = { bits: 32 } as const;
  const fetchedWord = { bits: 32, callback: () => {} } as const;
  const fetched = { callback: () => {} } as const;
  const operations: readonly [string, number, () => void][] = [
    ['put', 0, () => end(there.putNbx(local, 0, BYTES, key, 0))],
    ['get', 0, () => end(there.getNbx(target, 0, BYTES, key, 0))],
    ['add of 32 bits', 0, () => end(there.atomicNbx('add', 1, key, 0, word))],
    ['fetch-and-add of 32 bits', 0, () => end(there.atomicNbx('add', 1, key, 0, fetchedWord))],
    ['fetch-and-add of 64 bits', BIGINT_BYTES, () => end(there.atomicNbx('add', 1, key, 0, fetched))],
    ['active message', 0, activeMessage],
    ['tagged message', 0, () => message(two.tagRecvNbx(target, 0, BYTES, 5), there.tagSendNbx(local, 0, BYTES, 5))],
    ['stream', 0, () => message(back.streamRecvNbx(target, 0, BYTES), there.streamSendNbx(local, 0, BYTES))],
    ['prepared list', 0, () => end(there.putListNbx(list))],
    ['part of a prepared list', 0, () => end(there.putListNbx(list, part))],
    ['prepared list with a flush', 0, () => end(there.putListNbx(list, flushed))],
  ];
  return operations.map(([name, bytesMax, operation]) => {
    const bytes = garbageOf(operation, bytesMax);
    return {
      name: `garbage of one ${name}`,
      value: `${bytes.toFixed(2)} bytes`,
      ratio: undefined,
      target: `${bytesMax} bytes`,
      met: bytes < bytesMax + NOISE_BYTES,
    };
  });
}

/**
 * Bytes of garbage of one operation. Needs --expose-gc.
 *
 * What the heap grows by in the round with the least: garbage of an operation is in every round, what V8 allocates for itself, as when it compiles late on a
 * busy machine, only in some.
 */
export function garbageOf(operation: () => void, bytesMax: number): number {
  const { gc } = globalThis;
  if (gc === undefined) throw new Error('run with --expose-gc');
  for (let i = 0; i < WARM_UP; i++) operation();
  let least = Number.POSITIVE_INFINITY;
  for (let round = 0; round < ROUNDS_MAX && least >= bytesMax + NOISE_BYTES; round++) {
    gc();
    const before = process.memoryUsage().heapUsed;
    for (let i = 0; i < OPERATIONS; i++) operation();
    const bytes = (process.memoryUsage().heapUsed - before) / OPERATIONS;
    // Less than nothing: V8 has collected garbage within the round.
    if (bytes >= 0) least = Math.min(least, bytes);
  }
  return least;
}
