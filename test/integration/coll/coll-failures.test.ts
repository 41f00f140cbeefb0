/** Teams whose operations fail in the middle: detached buffers, workers and sub-teams that close, callbacks that throw, ranks that cannot reach each other. */

import { describe, expect, it, vi } from 'vitest';
import { createTeam, localExchange, type Team } from '../../../src/coll/index.ts';
import type { MemoryHandle, Request, UcxError } from '../../../src/index.ts';
import { useContexts } from '../../fixtures/contexts.ts';
import { useUncaught } from '../../fixtures/processes/uncaught.ts';
import { onAll, openTeam, type Rank } from '../../fixtures/teams.ts';

const fixture = useContexts();

const closeAll = async (ranks: readonly Rank[]): Promise<void> => {
  await onAll(ranks, ({ team }) => team.close());
};

/** Makes progress on all ranks until a condition holds. */
async function progressUntil(ranks: readonly Omit<Rank, 'team'>[], isDone: () => boolean): Promise<void> {
  while (!isDone()) {
    for (const { worker } of ranks) if (!worker.closed) worker.progress();
    await new Promise(setImmediate);
  }
}

/** The failures of an operation of some ranks, while all ranks make progress. */
async function failuresInProgress(
  ranks: readonly Omit<Rank, 'team'>[],
  pending: readonly Promise<unknown>[],
): Promise<UcxError[]> {
  let isDone = false;
  const results = Promise.allSettled(pending).finally(() => {
    isDone = true;
  });
  await progressUntil(ranks, () => isDone);
  return (await results).map((result) => {
    if (result.status === 'fulfilled') expect.fail('an operation has ended');
    return result.reason as UcxError;
  });
}

describe('operations that fail in the middle', () => {
  const LENGTH = 2 ** 22;
  /** Lets messages arrive. */
  const turns = async (ranks: readonly Rank[]): Promise<void> => {
    let left = 50;
    await progressUntil(ranks, () => left-- === 0);
  };

  it.each(['send', 'recv'] as const)('end on all ranks if the %s buffer of one is detached', async (detached) => {
    for (const count of [100, LENGTH / 4]) {
      const ranks = await openTeam(fixture, 3);
      const buffers = ranks.map(() => ({ send: new Uint8Array(4 * count), recv: new Uint8Array(4 * count) }));
      const reduce = ({ team }: Rank, rank: number): Promise<void> =>
        team.allReduce(buffers[rank]!.send, buffers[rank]!.recv, { dtype: 'float32', algorithm: 'ring' });
      const pending = failuresInProgress(ranks, [
        ...ranks.slice(0, 2).map(reduce),
        Promise.resolve()
          .then(() => reduce(ranks[2]!, 2))
          .then(() => Promise.reject(new Error('has what it needs'))),
      ]);
      const { buffer } = buffers[1]![detached];
      structuredClone(buffer, { transfer: [buffer] });
      const failures = await pending;
      expect(failures[1]).toMatchObject({ code: 'ERR_COLL_RANK_FAILED', details: { rank: 1 } });
      await closeAll(ranks);
      await fixture.close();
    }
  });

  it.each(['worker', 'context'] as const)('end if the %s of this rank closes', async (closed) => {
    const ranks = await openTeam(fixture, 3);
    const vectors = ranks.map(() => [new Uint8Array(2 * LENGTH), new Uint8Array(2 * LENGTH)] as const);
    const pending = Promise.allSettled(
      ranks.map(({ team }, rank) => team.allReduce(...vectors[rank]!, { dtype: 'float32', algorithm: 'ring' })),
    );
    await new Promise(setImmediate);
    await ranks[1]![closed].close();
    for (const result of await pending) {
      expect(result).toMatchObject({ reason: { code: expect.stringMatching(/^ERR_(COLL_RANK_FAILED|CLOSED)$/) } });
    }
    await closeAll(ranks);
  });

  it('end if the other rank closes a sub-team that has messages for operations it has not begun', async () => {
    const ranks = await openTeam(fixture, 2);
    const [one, other] = (await onAll(ranks, ({ team }) => team.split({ color: 0 }))) as [Team, Team];
    const pending = one.allReduce(new Uint8Array(LENGTH), new Uint8Array(LENGTH));
    await turns(ranks);
    await other.close();
    const [failure] = await failuresInProgress(ranks, [pending]);
    expect(failure).toMatchObject({ code: 'ERR_COLL_RANK_FAILED', details: { rank: 1 } });
    expect(failure!.message).toMatch(/^rank 1 has closed the team/);
    await one.close();
    await onAll(ranks, ({ team }) => team.barrier());
    await closeAll(ranks);
  });

  it('blame the rank that unmaps memory which it has offered', async () => {
    const ranks = await openTeam(fixture, 2);
    const [send, recv] = ranks.map(({ context }) => context.memMap({ allocate: LENGTH })) as [
      MemoryHandle,
      MemoryHandle,
    ];
    const receiving = ranks[1]!.team.broadcast(recv);
    await turns(ranks);
    ranks[1]!.context.memUnmap(recv);
    const failures = await failuresInProgress(ranks, [ranks[0]!.team.broadcast(send), receiving]);
    for (const failure of failures) {
      expect(failure).toMatchObject({ code: 'ERR_COLL_RANK_FAILED', details: { rank: 1 } });
      expect(failure.message).toMatch(/^rank 1 has released the memory that it had offered/);
    }
    await closeAll(ranks);
  });

  it('fail where mapped memory for a message is unmapped before it comes', async () => {
    const ranks = await openTeam(fixture, 2);
    const recv = ranks[1]!.context.memMap({ allocate: 4096 });
    const receiving = ranks[1]!.team.broadcast(recv);
    ranks[1]!.context.memUnmap(recv);
    const [, result] = await Promise.allSettled([ranks[0]!.team.broadcast(new Uint8Array(4096)), receiving]);
    expect(result).toMatchObject({ reason: { code: 'ERR_COLL_RANK_FAILED', details: { rank: 1 } } });
    await closeAll(ranks);
  });

  it('fail on all ranks with the reason', async () => {
    for (const length of [400_000, LENGTH]) {
      const ranks = await openTeam(fixture, 3);
      const failures = await failuresInProgress(
        ranks,
        ranks.map(({ team }, rank) =>
          team.allReduce(new Uint8Array(length), new Uint8Array(length), {
            op: rank === 0 ? 'max' : 'sum',
            algorithm: 'ring',
          }),
        ),
      );
      for (const { message } of failures) expect(message).toMatch(/called allReduce/);
      await closeAll(ranks);
      await fixture.close();
    }
  });
});

describe('callbacks of operations that fail', () => {
  const uncaught = useUncaught();

  it('are all called, also behind one that throws', async () => {
    const ranks = await openTeam(fixture, 2);
    const ended: number[] = [];
    for (let operation = 0; operation < 3; operation++) {
      const callback = (_: Request, status: number): void => {
        ended.push(status);
        throw new Error('of the application');
      };
      const recv = new Uint8Array(8);
      ranks[0]!.team.allReduceNbx(new Uint8Array(8), recv, {}, { noImmediateCompletion: true, callback });
    }
    const closed = ranks[1]!.team.close();
    // Operations end in progress, or when a timer fires.
    const thrown: unknown[] = [];
    while (thrown.length + uncaught.length < 3) {
      try {
        await progressUntil(ranks, () => thrown.length + uncaught.length >= 3);
      } catch (error) {
        thrown.push(error);
      }
    }
    expect(ended).toHaveLength(3);
    await closed;
    await closeAll(ranks);
    expect(thrown.length + uncaught.length).toBe(3);
  });
});

describe('creating a team', () => {
  it('answers ranks that still wait for this one in an earlier team', async () => {
    const ranks = await openTeam(fixture, 2);
    const exchange = localExchange(2);
    const [first, second] = ranks.map(
      ({ worker }, rank) =>
        () =>
          createTeam(worker, { rank, size: 2, exchange }),
    ) as [() => Promise<Team>, () => Promise<Team>];
    const { context, team } = ranks[0]!;
    // Mapped memory, which is offered to the other rank: the operation ends when that has answered.
    const [send, recv] = [0, 1].map(() => context.memMap({ allocate: 2 ** 20 })) as [MemoryHandle, MemoryHandle];
    const abort = new AbortController();
    const pending = team.allReduce(send, recv, { algorithm: 'ring', signal: abort.signal });
    abort.abort();
    const teams = await Promise.all([
      expect(pending).rejects.toMatchObject({ code: 'ABORT_ERR' }).then(first),
      second(),
    ]);
    await Promise.all(teams.map((made) => made.barrier()));
    await Promise.all(teams.map((made) => made.close()));
    await closeAll(ranks);
  });

  it.each(['worker', 'context'] as const)('fails if its %s is closed before the exchange has ended', async (closed) => {
    const { context, worker } = await fixture.open();
    const answers: (() => void)[] = [];
    const exchange = (): Promise<Uint8Array[]> => new Promise((resolve) => answers.push(() => resolve([])));
    const made = createTeam(worker, { rank: 0, size: 2, exchange });
    await vi.waitFor(() => expect(answers).toHaveLength(1));
    await { worker, context }[closed].close();
    await expect(made).rejects.toMatchObject({ code: 'ERR_CLOSED', message: 'worker of the team is closed' });
    answers[0]!();
  });

  it('fails on all ranks if two of them have no transport in common', async () => {
    const node = fixture.node({ cards: 3 });
    const transports = ['posix,tcp,self', 'posix,self', 'tcp,self'];
    const stacks = await Promise.all(
      transports.map((UCX_TLS, rank) => fixture.openOn(node, { env: { UCX_TLS, UCX_ACC_DEVICES: `gaudi${rank}` } })),
    );
    const exchange = localExchange(3);
    const failures = await failuresInProgress(
      stacks,
      stacks.map(({ worker }, rank) => createTeam(worker, { rank, size: 3, exchange })),
    );
    expect(failures.map(({ code }) => code)).toEqual(['ERR_COLL_RANK_FAILED', 'ERR_UNREACHABLE', 'ERR_UNREACHABLE']);
  });
});
