/** A context over libucp in each of several threads that start at the same time, with the default transports: they exchange bytes. */

import { once } from 'node:events';
import { join } from 'node:path';
import { Worker } from 'node:worker_threads';
import { expect, it } from 'vitest';
import { installedLibucp } from '../../fixtures/libucp/libucp.ts';
import type { ThreadAddress, ThreadCommand } from '../../fixtures/programs/exchange-thread.ts';
import { built } from '../../fixtures/tools/built.ts';

const { skipReason } = installedLibucp();
const EXCHANGE = built(join(import.meta.dirname, '../../fixtures/programs/exchange-thread.ts'));
const ENVIRONMENT = { UCX_ENGINE: 'libucx', UCX_GAUDI_DRIVER: 'emulator', UCX_GAUDI_EMULATOR_CARDS: '1' };
const THREADS = 4;
/** Without the lock of the environment, one ring of two fails. */
const RINGS = 5;

async function answerOf<T>(thread: Worker, command?: ThreadCommand): Promise<T> {
  const answer = once(thread, 'message');
  if (command !== undefined) thread.postMessage(command);
  return (await answer)[0] as T;
}

it.skipIf(skipReason !== undefined)(
  'contexts over libucp in several threads (needs libucp)',
  async () => {
    for (let round = 1; round <= RINGS; round++) {
      const ring = Array.from(
        { length: THREADS },
        () => new Worker(EXCHANGE, { workerData: ENVIRONMENT, execArgv: [] }),
      );
      const told = await Promise.all(ring.map((thread) => answerOf<ThreadAddress>(thread)));
      const nextOf = (index: number): ThreadAddress => told[(index + 1) % ring.length]!;
      await Promise.all(ring.map((thread, index) => answerOf(thread, { do: 'send', round, next: nextOf(index) })));
      const wrong = await Promise.all(ring.map((thread) => answerOf(thread, { do: 'check', round })));
      expect(wrong).toEqual(ring.map(() => []));
      const exits = ring.map((thread) => once(thread, 'exit'));
      for (const thread of ring) thread.postMessage({ do: 'close' } satisfies ThreadCommand);
      expect(await Promise.all(exits)).toEqual(ring.map(() => [0]));
    }
  },
  60_000,
);
