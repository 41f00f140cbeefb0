/** A short run of the simulation: schedules of the whole stack in virtual time, with faults. */

import { it } from 'vitest';
import { expectGood } from '../simulation/run-schedule.ts';

const SEEDS = Array.from({ length: 40 }, (_, i) => i + 1);

it('schedules of the simulation end well', { timeout: 60_000 }, async () => {
  for (const seed of SEEDS) await expectGood(seed);
});
