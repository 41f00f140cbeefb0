/** Runs the schedule of a seed, twice, and checks its outcome. */

import { expect } from 'vitest';
import { type Outcome, simulate } from './simulation.ts';

/** Uncaught errors since the last check. */
const uncaught: string[] = [];
process.on('uncaughtException', (error) => uncaught.push(`uncaught: ${error.stack}`));
process.on('unhandledRejection', (error) => uncaught.push(`unhandled: ${String(error)}`));

/** Runs the schedule of a seed once. */
export async function run(seed: number): Promise<Outcome> {
  const outcome = await simulate(seed);
  const thrown = uncaught.splice(0)[0];
  return thrown === undefined ? outcome : { ...outcome, failure: thrown };
}

/** Runs a schedule twice: it must succeed, and be the same. */
export async function expectGood(seed: number): Promise<void> {
  const { digest, failure, events } = await run(seed);
  if (failure !== undefined) {
    const replay = `SIMULATION_SEED=${seed} npx vitest run test/simulation`;
    expect.fail(`schedule ${seed}: ${failure}\nreplay: ${replay}\nlast events:\n  ${events.join('\n  ')}`);
  }
  const second = await run(seed);
  expect([seed, second.digest, second.failure]).toEqual([seed, digest, undefined]);
}
