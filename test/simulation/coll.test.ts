/** Collective operations of 2 to 9 ranks over simulated transports with reordering and delay, also when a rank dies at any step: see docs/TESTING.md. */

import { afterEach, describe, expect, it, vi } from 'vitest';
import { LocalCopies } from '../../src/coll/team/run/memory.ts';
import { catches } from '../fixtures/catches.ts';
import { extent } from '../fixtures/extent.ts';
import { type CollOptions, type CollOutcome, simulateTeam } from './coll-simulation.ts';

const SCHEDULES = extent('COLL_SCHEDULES', 64, 4000);
const SEED = process.env['COLL_SEED'];
/** A rank dies in one of so many turns. With its seed, which repeats a failure, a test tries every turn. */
const STRIDE = extent('COLL_DEATH_STRIDE', 7, 1);
const TIMEOUT_MS = 600_000;

async function expectGood(options: CollOptions): Promise<CollOutcome> {
  const outcome = await simulateTeam(options);
  if (outcome.failure !== undefined) {
    expect.fail(
      `COLL_SEED=${options.seed} ${JSON.stringify(options)}: ${outcome.failure}\nlast events:\n  ${outcome.events.join('\n  ')}`,
    );
  }
  return outcome;
}

describe('a team', () => {
  it('is the same for the same seed', async () => {
    const options = { seed: 5, size: 3, operations: 6 };
    expect((await expectGood(options)).digest).toBe((await expectGood(options)).digest);
  });

  it(
    'has the data of the oracle on 2 to 9 ranks',
    async () => {
      const [first, last] = SEED === undefined ? [1, SCHEDULES] : [Number(SEED), Number(SEED)];
      for (let seed = first; seed <= last; seed++) {
        await expectGood({ seed, size: 2 + (seed % 8), operations: 10 });
      }
    },
    TIMEOUT_MS,
  );
});

describe('a planted fault', () => {
  afterEach(() => {
    vi.restoreAllMocks();
  });

  it('in the copies of a rank is noticed', async () => {
    const check = async (copyHost: LocalCopies['copyHost']): Promise<void> => {
      vi.spyOn(LocalCopies.prototype, 'copyHost').mockImplementation(copyHost);
      for (let seed = 1; seed <= 8; seed++) await expectGood({ seed, size: 1 + seed, operations: 10 });
    };
    await catches(check, () => {}, /^COLL_SEED=\d+ /);
  });
});

describe('a rank that dies', () => {
  it.each([
    [6, 1228959110, 7, 475, 'while the team is renewed, and a late offer comes behind the end of the old team'],
    [3, 12, 5, 7, 'while it is greeted, and the old team ends before the greeting'],
    [4, 14, 5, 36, 'while the others leave, which a late message of the old team keeps from ending'],
    [5, 1, 5, 14, 'before its greeting, which another rank learns first'],
    [4, 2, 6, 577, 'at the end, when others have left the team already'],
  ])('of %i with seed %i, %i operations, in turn %i: %s', async (size, seed, operations, deathTurn) => {
    await expectGood({ seed, size, operations, deathTurn });
  });

  it.each([
    [2, 11],
    [3, 12],
    [5, 13],
    [4, 14],
    [6, 15],
  ])(
    'is named by all others, of %i, at every 7th step, and at every step in a full run',
    async (size, seed) => {
      const { turns } = await expectGood({ seed, size, operations: 5 });
      const stride = SEED === String(seed) ? 1 : STRIDE;
      for (let deathTurn = seed % stride; deathTurn < turns; deathTurn += stride) {
        await expectGood({ seed, size, operations: 5, deathTurn });
      }
    },
    TIMEOUT_MS,
  );
});
