/**
 * Garbage of one operation of the nbx tier in steady state, over each kind of connection. Over shared memory there is none, but for the bigint that
 * `Atomics` of 64 bits return.
 */

import { Context, type ContextOptions, type MemoryHandle, type Request, type Status } from '../src/index.ts';
import type { Result } from './timing.ts';

/** V8 compiles late on a busy machine: rounds after the first without garbage are not needed. */
const FAST: Extent = { warmUp: 300_000, operations: 20_000, rounds: 60 };
/** Of transports that take system calls for each operation. */
const SLOW: Extent = { warmUp: 20_000, operations: 2000, rounds: 12 };
/** V8's own allocations come in bursts: less than this for each operation is none. */
const NOISE_BYTES = 2;
/** A bigint of 64 bits in V8. */
const BIGINT_BYTES = 24;
const BYTES = 8;
const AM_ID = 3;

/** Two contexts in this process, or one whose worker is connected to itself. */
interface Connection {
  readonly name: string;
  readonly options: ContextOptions;
  readonly isLoopback?: boolean;
  /** Maps the memory that the other end accesses. */
  readonly map: (context: Context) => MemoryHandle;
  /** It is measured without a target: each operation calls C, with objects for pointers. */
  readonly isOfC?: boolean;
  /** Without messages and atomic operations, which go over another transport. */
  readonly isRmaOnly?: boolean;
}

const allocate = (context: Context): MemoryHandle => context.memMap({ allocate: 4096 });

const SHARED: Connection = { name: 'posix', options: { config: { TLS: 'posix,self' } }, map: allocate };

const OTHERS: readonly Connection[] = [
  {
    name: 'cma',
    options: { config: { TLS: 'cma,posix,self' } },
    map: (context) => context.memMap({ buffer: new Uint8Array(4096) }),
    isRmaOnly: true,
  },
  { name: 'tcp', options: { config: { TLS: 'tcp,self' } }, map: allocate },
  {
    name: 'HBM',
    options: { config: { TLS: 'self,gaudi_cpy' } },
    isLoopback: true,
    map: (context) => context.memMap({ allocate: 4096, memoryType: 'gaudi' }),
    isRmaOnly: true,
  },
  {
    name: 'libucx',
    options: { config: { TLS: 'posix,self' }, engine: 'libucx' },
    map: allocate,
    isOfC: true,
  },
];

/** Over shared memory. Needs --expose-gc. */
export function benchGarbage(): Promise<Result[]> {
  return garbageOver(SHARED, FAST);
}

/** Over all other transports. Needs --expose-gc. */
export async function* benchGarbageOfTransports(): AsyncIterable<Result> {
  for (const connection of OTHERS) {
    const results = await garbageOver(connection, SLOW);
    yield* results.map((result) => ({ ...result, name: `${result.name}, ${connection.name}` }));
  }
}

async function garbageOver(connection: Connection, extent: Extent): Promise<Result[]> {
  const { options, isLoopback, map, isRmaOnly, isOfC } = connection;
  await using own = await Context.create(options);
  await using far = isLoopback === true ? undefined : await Context.create(options);
  const other = far ?? own;
  const one = own.worker();
  const two = far?.worker() ?? one;
  const [there, back] = [one.endpoint(two.address()), two.endpoint(one.address())];
  const key = there.unpackRkey(other.packRkey(map(other)));
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
  const rma: readonly Operation[] = [
    ['put', 0, () => end(there.putNbx(local, 0, BYTES, key, 0))],
    ['get', 0, () => end(there.getNbx(target, 0, BYTES, key, 0))],
    ['prepared list', 0, () => end(there.putListNbx(list))],
    ['part of a prepared list', 0, () => end(there.putListNbx(list, part))],
    ['prepared list with a flush', 0, () => end(there.putListNbx(list, flushed))],
  ];
  const others: readonly Operation[] = [
    ['add of 32 bits', 0, () => end(there.atomicNbx('add', 1, key, 0, word))],
    ['fetch-and-add of 32 bits', 0, () => end(there.atomicNbx('add', 1, key, 0, fetchedWord))],
    ['fetch-and-add of 64 bits', BIGINT_BYTES, () => end(there.atomicNbx('add', 1, key, 0, fetched))],
    ['active message', 0, activeMessage],
    ['tagged message', 0, () => message(two.tagRecvNbx(target, 0, BYTES, 5), there.tagSendNbx(local, 0, BYTES, 5))],
    ['stream', 0, () => message(back.streamRecvNbx(target, 0, BYTES), there.streamSendNbx(local, 0, BYTES))],
  ];
  return (isRmaOnly === true ? rma : [...rma, ...others]).map(([name, bytesMax, operation]) => {
    const bytes = garbageOf(operation, bytesMax, extent);
    return {
      name: `garbage of one ${name}`,
      value: `${bytes.toFixed(2)} bytes`,
      ratio: undefined,
      target: isOfC === true ? 'none' : `${bytesMax} bytes`,
      met: isOfC === true ? undefined : bytes < bytesMax + NOISE_BYTES,
    };
  });
}

/** A name, the garbage that is accepted, and the operation. */
type Operation = readonly [string, number, () => void];

/** How often an operation runs: before it is measured, in a round of the measurement, and the number of rounds at most. */
interface Extent {
  readonly warmUp: number;
  readonly operations: number;
  readonly rounds: number;
}

/**
 * Bytes of garbage of one operation. Needs --expose-gc.
 *
 * What the heap grows by in the round with the least: garbage of an operation is in every round, what V8 allocates for itself, as when it compiles late on a
 * busy machine, only in some.
 */
export function garbageOf(
  operation: () => void,
  bytesMax: number,
  { warmUp, operations, rounds }: Extent = FAST,
): number {
  const { gc } = globalThis;
  if (gc === undefined) throw new Error('run with --expose-gc');
  for (let i = 0; i < warmUp; i++) operation();
  let least = Number.POSITIVE_INFINITY;
  for (let round = 0; round < rounds && least >= bytesMax + NOISE_BYTES; round++) {
    gc();
    const before = process.memoryUsage().heapUsed;
    for (let i = 0; i < operations; i++) operation();
    const bytes = (process.memoryUsage().heapUsed - before) / operations;
    // Less than nothing: V8 has collected garbage within the round.
    if (bytes >= 0) least = Math.min(least, bytes);
  }
  return least;
}
