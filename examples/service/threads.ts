/** Threads that fill memory of the main thread: each has its own context, and gets a worker address and a remote key, which are bytes. */

import { once } from 'node:events';
import { isMainThread, Worker as Thread, workerData } from 'node:worker_threads';
import { Context } from '../../src/index.ts';

const THREADS = 3;
const SLICE_BYTES = 100_000;
const TLS = 'self,posix,cma';

interface Task {
  readonly address: Uint8Array;
  readonly key: Uint8Array;
  readonly index: number;
}

async function main(): Promise<void> {
  const context = await Context.create({ config: { TLS } });
  const worker = context.worker();
  const memory = context.memMap({ allocate: THREADS * SLICE_BYTES });
  const task = { address: worker.address(), key: context.packRkey(memory) };

  const ended = new AbortController();
  const served = worker.serve(ended.signal); // answers the threads while they run
  const threads = Array.from(
    { length: THREADS },
    (_, index) => new Thread(new URL(import.meta.url), { workerData: { ...task, index } satisfies Task }),
  );
  await Promise.all(threads.map((thread) => once(thread, 'exit')));
  ended.abort();
  await served;

  const isFilled = memory.bytes!.every((byte, at) => byte === 1 + Math.floor(at / SLICE_BYTES));
  await context.close();
  console.log(`${THREADS} threads, and ${isFilled ? 'every byte is theirs' : 'the bytes differ'}`);
}

async function fill({ address, key, index }: Task): Promise<void> {
  const context = await Context.create({ config: { TLS } });
  const endpoint = context.worker().endpoint(address);
  const slice = new Uint8Array(SLICE_BYTES).fill(index + 1);
  await endpoint.put(slice, endpoint.unpackRkey(key), { remoteOffset: index * SLICE_BYTES });
  await endpoint.flush();
  await context.close(); // before the thread ends
}

if (isMainThread) await main();
else await fill(workerData as Task);
