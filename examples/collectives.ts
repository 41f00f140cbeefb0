/**
 * Data-parallel training in miniature: four processes with a gradient each in the HBM of a card add their gradients by allReduce. The first process starts the
 * others; a launcher that sets RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT can do so instead, then `launchedRank(process.env)` is the rank.
 */

import { fork } from 'node:child_process';
import { once } from 'node:events';
import { bfloat16Bits, bfloat16Value, createTeam, forkedExchange, serveForked } from '../src/coll/index.ts';
import { Context, MemoryType } from '../src/index.ts';

const RANKS = 4;
const COUNT = 2 ** 18;

/** One rank. */
async function train(rank: number): Promise<void> {
  await using context = await Context.create();
  const worker = context.worker();
  await using team = await createTeam(worker, { rank, size: RANKS, exchange: forkedExchange(process) });

  const gradient = context.memMap({ allocate: COUNT * 2, memoryType: MemoryType.GAUDI });
  await gradient.write(new Uint8Array(new Uint16Array(COUNT).fill(bfloat16Bits(rank + 1)).buffer));

  // In place; every rank calls the same operations in the same order.
  await team.allReduce(gradient, gradient, { dtype: 'bfloat16', op: 'sum' });

  const sums = new Uint16Array((await gradient.read()).slice().buffer);
  const isRight = sums.every((bits) => bfloat16Value(bits) === (RANKS * (RANKS + 1)) / 2);
  if (rank === 0) {
    console.log(String(team.explain('allReduce')));
    console.log(isRight ? `the sum of ${RANKS} gradients is in the HBM of every rank` : 'the sum is wrong');
  }
  if (!isRight) process.exitCode = 1;
  await team.barrier();
}

const rank = process.argv[2];
if (rank === undefined) {
  const children = Array.from({ length: RANKS }, (_, index) => fork(import.meta.filename, [String(index)]));
  serveForked(children);
  const codes = await Promise.all(children.map(async (child) => (await once(child, 'exit'))[0] as number | null));
  if (codes.some((code) => code !== 0)) process.exitCode = 1;
} else {
  await train(Number(rank));
  process.disconnect?.();
}
