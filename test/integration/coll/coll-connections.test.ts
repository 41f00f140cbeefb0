/** Teams whose endpoints are paired by the engine with those of the program, or of another team, on the other rank. */

import { describe, expect, it } from 'vitest';
import { createTeam, type Exchange, localExchange, type Team } from '../../../src/coll/index.ts';
import type { Worker } from '../../../src/index.ts';
import { useContexts } from '../../fixtures/contexts.ts';

const fixture = useContexts();

async function openWorkers(): Promise<[Worker, Worker]> {
  const node = fixture.node({ cards: 2 });
  const workers: Worker[] = [];
  for (const card of [0, 1]) {
    const { worker } = await fixture.openOn(node, { env: { UCX_ACC_DEVICES: `gaudi${card}` } });
    workers.push(worker);
  }
  return workers as [Worker, Worker];
}

/** Makes a team of both workers. @param before runs on a rank between its exchange and its connections */
function teamOf(
  workers: readonly Worker[],
  before: (rank: number) => Promise<void> = async () => {},
): Promise<[Team, Team]> {
  const shared = localExchange(2);
  const teams = workers.map((worker, rank) => {
    const exchange: Exchange = async (bytes) => {
      const all = await shared(bytes);
      await before(rank);
      return all;
    };
    return createTeam(worker, { rank, size: 2, exchange });
  });
  return Promise.all(teams) as Promise<[Team, Team]>;
}

/** Lets messages arrive. */
async function turns(workers: readonly Worker[]): Promise<void> {
  for (let left = 50; left > 0; left--) {
    for (const worker of workers) worker.progress();
    await new Promise(setImmediate);
  }
}

const each = (teams: readonly Team[], run: (team: Team) => Promise<void>): Promise<unknown> =>
  Promise.all(teams.map(run));

describe('the connections of a team', () => {
  it.each([1, 4])('do not end with %i endpoints that the program of one rank has made before', async (count) => {
    const workers = await openWorkers();
    const [first, second] = workers;
    const own = Array.from({ length: count }, () => first.endpoint(second.address()));
    const teams = await teamOf(workers);
    for (const endpoint of own) await endpoint.close();
    await turns(workers);
    await each(teams, (team) => team.barrier());
    await each(teams, (team) => team.close());
    const again = await teamOf(workers);
    await each(again, (team) => team.barrier());
    await each(again, (team) => team.close());
  });

  it('do not close those of the program', async () => {
    const workers = await openWorkers();
    const [first, second] = workers;
    const own = first.endpoint(second.address());
    await each(await teamOf(workers), (team) => team.close());
    await turns(workers);
    expect(own.status).toBe(0);
    await own.close();
  });

  it('do not end with another team, which the ranks have created in another order', async () => {
    const workers = await openWorkers();
    const resolves: (() => void)[] = [];
    const connected = [0, 1].map(
      (rank) =>
        new Promise<void>((resolve) => {
          resolves[rank] = resolve;
        }),
    );
    // Rank 0 connects for the first team before the second one, rank 1 after it.
    const order = (isFirst: boolean) => async (rank: number) => {
      if ((rank === 0) === isFirst) setImmediate(resolves[rank]!);
      else await connected[rank];
    };
    const [teams, others] = await Promise.all([teamOf(workers, order(true)), teamOf(workers, order(false))]);
    await each(teams, (team) => team.close());
    await turns(workers);
    await each(others, (team) => team.barrier());
    await others[0].close();
    await expect(others[1].barrier()).rejects.toMatchObject({ details: { rank: 0 } });
    await others[1].close();
  });
});
