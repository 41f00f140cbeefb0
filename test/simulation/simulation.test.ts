/**
 * Thousands of schedules of the whole stack in virtual time, over simulated transports with faults: see docs/TESTING.md. A failure names its seed, which
 * replays it.
 */

import { afterEach, describe, expect, it, vi } from 'vitest';
import { TagMatcher } from '../../src/ucp/tag/matching.ts';
import { catches } from '../fixtures/catches.ts';
import { extent } from '../fixtures/extent.ts';
import { expectGood, run } from './run-schedule.ts';

const SEED = process.env['SIMULATION_SEED'];
const FIRST = Number(SEED ?? process.env['SIMULATION_FIRST'] ?? 1);
const LAST = FIRST + (SEED === undefined ? extent('SIMULATION_SCHEDULES', 750, 20_000) : 1) - 1;
/** Schedules of one case: a failing one does not prevent the others. */
const BATCH = 250;
/** Schedules in which a planted fault must be noticed; the first takes half a minute to give up operations that cannot end. */
const PLANTED_SEEDS = Array.from({ length: 30 }, (_, i) => i + 2);
const TIMEOUT_MS = 600_000;

describe('a schedule', () => {
  it('differs for every seed', async () => {
    expect((await run(1)).digest).not.toBe((await run(2)).digest);
  });

  it.each([
    [606, 'a part of a list waits to be sent again when its endpoint is closed by force'],
    [3585, 'a transport works with a fragment until it notices that the peer is lost'],
    [6077, 'hosts are separated before there is an endpoint between them'],
    [16684, 'a rendezvous ends at its sender, and its receiver gives up the connection before it learns of the end'],
    [17023, 'the last credit goes to a message that is not kept, while the rest is held by a stream'],
    [18013, 'an endpoint is closed while a stream is copied into device memory'],
    [23388, 'a receive waits for a transport that works for a lost peer'],
    [23973, 'a host dies while it goes to sleep'],
    [37585, 'streams of device memory on all sides wait for credit'],
    [56532, 'a message arrives while its worker is closed'],
    [70285, 'a long time passes before a message finds a receive'],
    [72965, 'a transport hands out what has arrived in parts'],
    [325752953, 'a short put fails on a lane that carries the answer to a get of the peer'],
    [10545017, 'a transport reads memory for a lost peer until it notices that'],
    [2576, 'memory is unmapped while its bytes wait to be written for a get of the peer'],
    [5956, 'a list fails at the peer, and the notification of a later list comes'],
    [524489351, 'lists are in flight when their endpoint is closed by force, and progress is made meanwhile'],
    [1111517011, 'the same, and registrations of its memory are left'],
    [1565299036, 'the same, and its memory is unmapped at its end'],
    [1623541893, 'a stream of device memory begins when the one before it is ended by a forced close'],
    [1995824576, 'the same, of one piece'],
    [2006130601, 'the same, by the close of a worker'],
    [783197738, 'a stream of many messages waits for little credit, and receives wait for it'],
    [783212034, 'the same, in both directions'],
    [58419817, 'an eager answer is in flight when all operations have ended'],
    [704853, 'a flush is cancelled that has failed before, and has not ended'],
    [1202927, 'a message is answered after its endpoint was closed by force'],
    [520, 'a fence finds a failed put while a flush waits behind it'],
    [1205, 'a lane reports a failed put to the flush of its connection'],
    [1320, 'a fence stands between puts of the same bytes over two lanes, of which only one keeps the order'],
  ])('%i ends well: %s', (seed) => expectGood(seed));
});

describe('a schedule with a planted fault', () => {
  afterEach(() => {
    vi.restoreAllMocks();
  });
  const check = async (plant: () => void): Promise<void> => {
    plant();
    for (const seed of PLANTED_SEEDS) await expectGood(seed);
  };

  it('of receives that ignore their masks is noticed', async () => {
    const { peek } = TagMatcher.prototype;
    const plant = (): void => {
      vi.spyOn(TagMatcher.prototype, 'peek').mockImplementation(function (this: TagMatcher, low, high) {
        return peek.call(this, low, high, -1, -1);
      });
    };
    await catches(check, plant, /^schedule \d+: /);
  });

  it('of cancels without effect is noticed', async () => {
    const plant = (): void => {
      vi.spyOn(TagMatcher.prototype, 'cancel').mockReturnValue(true);
    };
    await catches(check, plant, /^schedule \d+: /);
  });
});

describe('every schedule succeeds', () => {
  for (let batch = Math.ceil(FIRST / BATCH); batch <= Math.ceil(LAST / BATCH); batch++) {
    // The title depends on the seed alone, so that the command that repeats a failure selects this test.
    it(
      `in batch ${batch} of ${BATCH} seeds`,
      async () => {
        const last = Math.min(LAST, batch * BATCH);
        for (let seed = Math.max(FIRST, (batch - 1) * BATCH + 1); seed <= last; seed++) await expectGood(seed);
      },
      TIMEOUT_MS,
    );
  }
});
