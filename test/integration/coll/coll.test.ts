/** Teams over the whole stack, in one process: memories, sub-teams, both tiers, refusals, and ranks that mean different things, leave or are late. */

import { describe, expect, it } from 'vitest';
import { createTeam, localExchange, type Team } from '../../../src/coll/index.ts';
import {
  type MemoryHandle,
  type MemoryProtection,
  MemoryType,
  type Request,
  Status,
  type UcxError,
} from '../../../src/index.ts';
import { useContexts } from '../../fixtures/contexts.ts';
import { onAll, openTeam, type Rank } from '../../fixtures/teams.ts';

const fixture = useContexts();

const floats = (values: ArrayLike<number>): Uint8Array => new Uint8Array(Float32Array.from(values).buffer);
const valuesOf = (bytes: Uint8Array): number[] => [...new Float32Array(bytes.slice().buffer)];
const closeAll = async (ranks: readonly Rank[]): Promise<void> => {
  await onAll(ranks, ({ team }) => team.close());
};

/** The failures of an operation that no rank ends. */
async function failuresOf(
  ranks: readonly Rank[],
  run: (team: Team, rank: number) => Promise<void>,
): Promise<UcxError[]> {
  const results = await Promise.allSettled(ranks.map(({ team }, rank) => run(team, rank)));
  return results.map((result) => {
    if (result.status === 'fulfilled') expect.fail('an operation has ended');
    return result.reason as UcxError;
  });
}

describe('a team', () => {
  it.each(['gaudi2', 'gaudi3', 'gaudi'] as const)(
    'reduces memory of cards of %s and of the host together, in place and not, at any offset',
    async (asic) => {
      const ranks = await openTeam(fixture, 3, undefined, { asic });
      const count = 300_000;
      const memories = ranks.map(({ context }, rank) =>
        rank === 1
          ? context.memMap({ allocate: count * 4 + 4 })
          : context.memMap({ allocate: count * 4 + 4, memoryType: MemoryType.GAUDI }),
      );
      await Promise.all(
        memories.map((memory, rank) => memory.write(floats({ length: count, 0: rank, [count - 1]: 5 }), { offset: 4 })),
      );
      await Promise.all(memories.map((memory, rank) => memory.fill(rank, { offset: 4, byteLength: count * 4 })));
      const options = { dtype: 'int32', op: 'max', count, sendOffset: 4, recvOffset: 4 } as const;
      await onAll(ranks, ({ team }, rank) => team.allReduce(memories[rank]!, memories[rank]!, options));
      for (const memory of memories) {
        const bytes = await memory.read(undefined, { offset: 4 });
        expect(bytes.every((byte) => byte === 2)).toBe(true);
      }
      await closeAll(ranks);
    },
  );

  it('gathers blocks of cards in place, card to card', async () => {
    const ranks = await openTeam(fixture, 3);
    const block = 100_000;
    const memories = ranks.map(({ context }) => context.memMap({ allocate: 3 * block, memoryType: MemoryType.GAUDI }));
    await Promise.all(
      memories.map((memory, rank) => memory.fill(rank + 1, { offset: rank * block, byteLength: block })),
    );
    await onAll(ranks, ({ team }, rank) =>
      team.allGather(memories[rank]!, memories[rank]!, { count: block, sendOffset: rank * block }),
    );
    for (const memory of memories) {
      const bytes = await memory.read();
      expect([bytes[0], bytes[block], bytes[2 * block], bytes[3 * block - 1]]).toEqual([1, 2, 3, 3]);
    }
    await closeAll(ranks);
  });

  it('exchanges blocks in place, and of different lengths', async () => {
    const ranks = await openTeam(fixture, 3);
    const memories = ranks.map((_, rank) => Uint8Array.from([1, 2, 3].map((to) => rank * 10 + to)));
    await onAll(ranks, ({ team }, rank) => team.allToAll(memories[rank]!, memories[rank]!));
    expect(memories.map((bytes) => [...bytes])).toEqual([
      [1, 11, 21],
      [2, 12, 22],
      [3, 13, 23],
    ]);
    // Rank r sends s + 1 bytes to rank s.
    const sends = ranks.map((_, rank) => new Uint8Array(6).fill(rank));
    const recvs = ranks.map((_, rank) => new Uint8Array(3 * (rank + 1)));
    await onAll(ranks, ({ team }, rank) =>
      team.allToAll(sends[rank]!, recvs[rank]!, {
        sendCounts: [1, 2, 3],
        recvCounts: [rank + 1, rank + 1, rank + 1],
      }),
    );
    expect(recvs.map((bytes) => bytes.join(''))).toEqual(['012', '001122', '000111222']);
    await closeAll(ranks);
  });

  it.each(['host', 'gaudi'] as const)(
    'uses %s memory that peers may not access, and none for other accesses',
    async (memoryType) => {
      const ranks = await openTeam(fixture, 3);
      const ELEMENTS = 50_000;
      const all: MemoryHandle[][] = [];
      for (const { context } of ranks) {
        const map = (...protection: MemoryProtection[]): MemoryHandle =>
          context.memMap({ allocate: 4 * ELEMENTS, memoryType, protection });
        const [send, recv] = [0, 1].map(() => map('local-read', 'local-write')) as [MemoryHandle, MemoryHandle];
        await send.write(floats({ length: ELEMENTS, 0: 2 }));
        all.push([send, recv, map('local-write'), map('local-read')]);
      }
      await onAll(ranks, ({ team }, rank) => team.allReduce(all[rank]![0]!, all[rank]![1]!, { dtype: 'float32' }));
      for (const [, recv] of all) expect(valuesOf(await recv!.read()).filter((value) => value === 6)).toHaveLength(1);
      await onAll(ranks, ({ team }, rank) => team.broadcast(all[rank]![1]!, { root: 1 }));
      const [send, recv, unread, unwritten] = all[0]!;
      const { team } = ranks[0]!;
      const refused = { code: 'ERR_INVALID_PARAM', message: expect.stringMatching('must be mapped with protection') };
      await expect(team.allReduce(unread!, recv!, { dtype: 'float32' })).rejects.toMatchObject(refused);
      await expect(team.allReduce(send!, unwritten!, { dtype: 'float32' })).rejects.toMatchObject(refused);
      await closeAll(ranks);
    },
  );

  it('runs several operations at once in the nbx form, inside progress', async () => {
    const ranks = await openTeam(fixture, 2);
    const ended: string[] = [];
    const requests: Request[] = [];
    const recvs: Uint8Array[] = [];
    for (let operation = 0; operation < 3; operation++) {
      for (const [rank, { team }] of ranks.entries()) {
        const recv = new Uint8Array(8);
        recvs.push(recv);
        const callback = (request: Request, status: number): void => {
          ended.push(`${request.userData} ${status} ${request.protocol}`);
        };
        const params = { noImmediateCompletion: true, callback, userData: `${rank} ${operation}` };
        const started = team.allReduceNbx(floats([rank, operation]), recv, { dtype: 'float32' }, params);
        requests.push(started as Request);
      }
    }
    expect(ranks[0]!.team.operationsInProgress).toBeGreaterThan(0);
    expect(() => requests[0]!.free()).toThrow(expect.objectContaining({ code: 'ERR_BUSY' }));
    while (ended.length < 6) for (const { worker } of ranks) worker.progress();
    expect(ended.sort()[5]).toBe('1 2 0 allReduce/recursive doubling');
    expect(recvs.map(valuesOf)).toEqual([
      [1, 0],
      [1, 0],
      [1, 2],
      [1, 2],
      [1, 4],
      [1, 4],
    ]);
    for (const request of requests) request.free();
    await closeAll(ranks);
  });

  it('splits by color, in the order of the keys, and over nodes', async () => {
    const ranks = await openTeam(fixture, 5, (rank) => ({ node: `n${rank % 2}` }));
    expect(ranks[0]!.team.nodes).toEqual([
      [0, 2, 4],
      [1, 3],
    ]);
    const subs = await onAll(ranks, ({ team }, rank) =>
      team.split({ color: rank === 4 ? undefined : rank % 2, key: -rank }),
    );
    expect(subs.map((sub) => sub && [sub.rank, sub.size])).toEqual([[1, 2], [1, 2], [0, 2], [0, 2], undefined]);
    await closeAll(ranks);
    const recvs = subs.map(() => new Uint8Array(2));
    await Promise.all(subs.map((sub, rank) => sub?.allGather(Uint8Array.of(rank), recvs[rank]!)));
    expect(recvs.map((bytes) => [...bytes]).slice(0, 4)).toEqual([
      [2, 0],
      [3, 1],
      [2, 0],
      [3, 1],
    ]);
    await Promise.all(subs.map((sub) => sub?.close()));
  });

  it('explains its algorithms by size and topology, and uses one that is named', async () => {
    const ranks = await openTeam(fixture, 4, (rank) => ({ node: `n${rank >> 1}` }));
    const { team } = ranks[0]!;
    const explanation = team.explain('allReduce');
    expect(explanation.chosen.map(({ algorithm }) => algorithm)).toContain('recursive doubling');
    expect(
      explanation
        .at(8)
        .map(({ algorithm }) => algorithm)
        .sort(),
    ).toEqual(['recursive doubling', 'ring', 'two-level']);
    expect(String(explanation)).toMatch(/4 ranks on 2 nodes[\s\S]*on host fragments/);
    expect(String(team.explain('allGather'))).not.toMatch(/fragments/);
    expect(() => team.explain('sum' as 'barrier')).toThrow(expect.objectContaining({ code: 'ERR_INVALID_PARAM' }));
    for (const algorithm of ['ring', 'recursive doubling', 'two-level']) {
      const recvs = ranks.map(() => new Uint8Array(4));
      await onAll(ranks, ({ team: one }, rank) =>
        one.allReduce(floats([rank]), recvs[rank]!, { dtype: 'float32', algorithm }),
      );
      expect(recvs.map(valuesOf)).toEqual([[6], [6], [6], [6]]);
    }
    await closeAll(ranks);
  });
});

describe('memory that is detached', () => {
  it('has no bytes: the operation is one of another length, or of nothing', async () => {
    const ranks = await openTeam(fixture, 2);
    const detached = (): Uint8Array => {
      const bytes = new Uint8Array(16);
      structuredClone(bytes.buffer, { transfer: [bytes.buffer] });
      return bytes;
    };
    expect(() => ranks[0]!.team.allReduceNbx(detached(), new Uint8Array(16), { count: 16 })).toThrow(
      expect.objectContaining({ code: 'ERR_INVALID_PARAM', details: expect.objectContaining({ argument: 'send' }) }),
    );
    await onAll(ranks, ({ team }) => team.allReduce(detached(), detached()));
    await onAll(ranks, ({ team }) => team.broadcast(detached()));
    await closeAll(ranks);
  });
});

describe('refusals before anything moves', () => {
  it('name the argument, and the team can be used afterwards', async () => {
    const ranks = await openTeam(fixture, 2);
    const [{ team, context }] = ranks as [Rank];
    const other = ranks[1]!.context.memMap({ allocate: 16 });
    const memory = context.memMap({ allocate: 64, memoryType: MemoryType.GAUDI });
    const [send, recv] = [new Uint8Array(16), new Uint8Array(32)];
    const float32 = { dtype: 'float32' } as const;
    const calls: readonly (readonly [string, () => unknown])[] = [
      ['recv', () => team.allGatherNbx(send, recv.subarray(1))],
      ['send', () => team.allReduceNbx(send.subarray(0, 15), recv, { ...float32, count: 4 })],
      ['send', () => team.allReduceNbx(send.subarray(0, 15), recv, float32)],
      ['recv', () => team.allReduceNbx(send, send.subarray(4), { count: 8 })],
      ['recv', () => team.allReduceNbx(memory, memory, { count: 32, recvOffset: 31 })],
      ['recv', () => team.allGatherNbx(recv.subarray(0, 8), recv, { recvOffset: 4 })],
      ['recv', () => team.allToAllNbx(recv.subarray(0, 16), recv.subarray(8, 24))],
      ['root', () => team.broadcastNbx(send, { root: 2 })],
      ['root', () => team.gatherNbx(send, recv, { root: -1 })],
      ['dtype', () => team.broadcastNbx(send, { dtype: 'float8' as 'float16' })],
      ['op', () => team.allReduceNbx(send, recv, { op: 'xor' as 'sum' })],
      ['count', () => team.broadcastNbx(send, { count: -1 })],
      ['sendOffset', () => team.allReduceNbx(send, recv, { sendOffset: 17 })],
      ['send', () => team.allReduceNbx(other, recv)],
      ['send', () => team.allReduceNbx([] as unknown as Uint8Array, recv)],
      ['recv', () => team.gatherNbx(send, undefined)],
      ['recvCounts', () => team.allGatherNbx(send, recv, { recvCounts: [1] })],
      ['recvCounts[0]', () => team.allGatherNbx(send, recv, { recvCounts: new Array(2) })],
      ['recvCounts', () => team.allToAllNbx(send, recv, { sendCounts: [1, 2], recvCounts: [2, 2] })],
      ['options', () => team.allReduceNbx(send, recv, { root: 1 } as object)],
    ];
    for (const [argument, call] of calls) {
      expect(call, argument).toThrow(
        expect.objectContaining({ code: 'ERR_INVALID_PARAM', details: expect.objectContaining({ argument }) }),
      );
    }
    expect(() => team.allReduceNbx(send, recv, { algorithm: 'magic' })).toThrow(/algorithm must be one of/);
    ranks[1]!.context.memUnmap(other);
    expect(() => team.allReduceNbx(other, recv)).toThrow(expect.objectContaining({ code: 'ERR_CLOSED' }));
    await onAll(ranks, ({ team: one }) => one.barrier());
    await closeAll(ranks);
    await expect(team.barrier()).rejects.toMatchObject({ code: 'ERR_CLOSED' });
  });

  it('of options of a team: ranks, sizes, duplicates, what is not a worker', async () => {
    const { context } = await fixture.open();
    const exchange = localExchange(2);
    const worker = context.worker();
    for (const [argument, options] of [
      ['rank', { rank: 2, size: 2 }],
      ['rank', { rank: -1, size: 2 }],
      ['size', { rank: 0, size: 0 }],
      ['size', { rank: 0, size: 4097 }],
      ['timeoutMs', { rank: 0, size: 2, timeoutMs: -1 }],
      ['node', { rank: 0, size: 2, node: 5 as unknown as string }],
      ['node', { rank: 0, size: 2, node: 'x'.repeat(1025) }],
      ['timeoutMs', { rank: 0, size: 2, timeoutMs: '5' as unknown as number }],
      ['amId', { rank: 0, size: 2, amId: 65_536 }],
      ['options', { rank: 0, size: 2, color: 1 }],
    ] as const) {
      await expect(createTeam(worker, { exchange, ...options }), argument).rejects.toMatchObject({
        code: 'ERR_INVALID_PARAM',
        details: { argument },
      });
    }
    const make = (rank: number, size: number, gather = exchange): Promise<unknown> =>
      createTeam(context.worker(), { rank, size, exchange: gather });
    const duplicates = await Promise.allSettled([make(0, 2), make(0, 2)]);
    const sizes = localExchange(2);
    const different = await Promise.allSettled([make(0, 2, sizes), make(1, 3, sizes)]);
    for (const result of [...duplicates, ...different]) {
      expect(result).toMatchObject({ status: 'rejected', reason: { code: 'ERR_INVALID_PARAM' } });
    }
    expect(String((duplicates[0] as PromiseRejectedResult).reason)).toMatch(/rank must be unique in the team/);
    await expect(make(0, 1, async () => [Uint8Array.of(1)])).rejects.toMatchObject({ code: 'ERR_INVALID_PARAM' });
    await expect(createTeam({} as never, { rank: 0, size: 1, exchange })).rejects.toThrow(/must be a worker/);
  });
});

describe('ranks that disagree', () => {
  it.each<readonly [string, (team: Team, rank: number) => Promise<void>]>([
    [
      'about the operation',
      (team, rank) => (rank === 1 ? team.barrier() : team.allReduce(new Uint8Array(8), new Uint8Array(8))),
    ],
    ['about the count', (team, rank) => team.allReduce(new Uint8Array(8 + rank), new Uint8Array(8 + rank))],
    [
      'about the type',
      (team, rank) => {
        const dtype = rank === 2 ? 'int32' : 'float32';
        return team.allReduce(new Uint8Array(8), new Uint8Array(8), { dtype, count: 2 });
      },
    ],
    [
      'about the reduction',
      (team, rank) => team.allReduce(new Uint8Array(8), new Uint8Array(8), { op: rank === 2 ? 'max' : 'sum' }),
    ],
    // Both wait for the other: no message of the operation is ever sent.
    ['about the root', (team, rank) => team.broadcast(new Uint8Array(8), { root: (rank + 1) % 3 })],
  ])('%s are named on all ranks, and the team has failed', async (_name, run) => {
    const ranks = await openTeam(fixture, 3);
    const failures = await failuresOf(ranks, run);
    for (const failure of failures) {
      expect(['ERR_COLL_MISMATCH', 'ERR_COLL_RANK_FAILED']).toContain(failure.code);
      expect(failure.message).toMatch(/operation \d+ of the team: rank \d called .+, but rank \d called/);
      expect(failure.status).toBe(Status.INVALID_PARAM);
    }
    expect(failures.some(({ code }) => code === 'ERR_COLL_MISMATCH')).toBe(true);
    for (const { team } of ranks) {
      await expect(team.barrier()).rejects.toMatchObject({ code: 'ERR_COLL_TEAM_FAILED', cause: team.failure });
    }
    await closeAll(ranks);
  });

  it('about the first of more operations than a history has are named', async () => {
    const ranks = await openTeam(fixture, 2);
    const failures = await Promise.all(
      ranks.map(async ({ team }, rank) => {
        // Both wait for the other.
        const pending = [team.broadcast(new Uint8Array(8), { root: 1 - rank })];
        for (let later = 0; later < 70; later++) pending.push(team.barrier());
        const [first] = await Promise.allSettled(pending);
        return (first as PromiseRejectedResult).reason as UcxError;
      }),
    );
    expect(failures.map(({ code }) => code)).toContain('ERR_COLL_MISMATCH');
    for (const { message } of failures) expect(message).toMatch(/called broadcast .+ called broadcast/);
    await closeAll(ranks);
  });

  it('about the counts of one pair are named', async () => {
    const ranks = await openTeam(fixture, 2);
    const results = await Promise.allSettled(
      ranks.map(({ team }, rank) =>
        team.allToAll(new Uint8Array(10), new Uint8Array(10), {
          sendCounts: rank === 0 ? [1, 5] : [4, 1],
          recvCounts: rank === 0 ? [1, 4] : [6, 1],
        }),
      ),
    );
    // Rank 0 got what it expects, and learns it with the next operation.
    const { reason } = results[1] as PromiseRejectedResult;
    expect(reason).toMatchObject({ code: 'ERR_COLL_RANK_FAILED', details: { rank: 0 }, status: Status.INVALID_PARAM });
    expect(reason.message).toMatch(/sent or expected 5 bytes for a part that has 6 bytes here/);
    await expect(ranks[0]!.team.barrier()).rejects.toMatchObject({ details: { rank: 0 } });
    await closeAll(ranks);
  });

  it('about whether a part is a long one are named, though both wait', async () => {
    const ranks = await openTeam(fixture, 2);
    const failures = await failuresOf(ranks, (team, rank) =>
      team.allToAll(new Uint8Array(40_000), new Uint8Array(40_000), {
        sendCounts: rank === 0 ? [1, 20_000] : [30_000, 1],
        recvCounts: rank === 0 ? [1, 100] : [10_000, 1],
      }),
    );
    for (const failure of failures)
      expect(failure.message).toMatch(/sent or expected \d+ bytes for a part that has \d+ bytes here/);
    await closeAll(ranks);
  });
});

describe('a rank', () => {
  it('that cancels its operation ends it on all ranks', async () => {
    const ranks = await openTeam(fixture, 3);
    const abort = new AbortController();
    const pending = Promise.allSettled(
      ranks.slice(0, 2).map(({ team }, rank) => team.barrier(rank === 0 ? { signal: abort.signal } : {})),
    );
    setImmediate(() => abort.abort());
    const [own, other] = await pending;
    expect(own).toMatchObject({ reason: { code: 'ABORT_ERR' } });
    expect(other).toMatchObject({
      reason: { code: 'ERR_COLL_RANK_FAILED', details: { rank: 0 }, status: Status.CANCELED },
    });
    await expect(ranks[2]!.team.barrier()).rejects.toMatchObject({ details: { rank: 0 } });
    await closeAll(ranks);
  });

  it('that calls an operation with an aborted signal fails the team on all ranks', async () => {
    const ranks = await openTeam(fixture, 2);
    const vectors = ranks.map((_, rank) => [new Uint8Array(8).fill(rank + 1), new Uint8Array(8)] as const);
    const others = Promise.allSettled([
      ranks[0]!.team.allReduce(...vectors[0]!),
      ranks[1]!.team.allReduce(...vectors[1]!, { signal: AbortSignal.abort() }),
      // It must not take the place of the aborted one.
      Promise.resolve(ranks[1]!).then(({ team }) => team.allReduce(...vectors[1]!)),
    ]);
    const [other, own, next] = await others;
    expect(own).toMatchObject({ reason: { code: 'ABORT_ERR' } });
    expect(next).toMatchObject({ reason: { code: 'ERR_COLL_TEAM_FAILED', details: { rank: 1 } } });
    expect(other).toMatchObject({ reason: { code: 'ERR_COLL_RANK_FAILED', details: { rank: 1 } } });
    await closeAll(ranks);
  });

  it('that is late is named after the time-out', async () => {
    const ranks = await openTeam(fixture, 3, () => ({ timeoutMs: 100 }));
    const results = await Promise.allSettled(ranks.slice(1).map(({ team }) => team.barrier()));
    for (const result of results) expect(result).toMatchObject({ reason: { details: { rank: 0 } } });
    expect(results.map((result) => (result as PromiseRejectedResult).reason.code)).toContain('ERR_COLL_TIMED_OUT');
    await closeAll(ranks);
  });

  it('that is gone fails the operation of a rank that waits for one which cannot begin it any more', async () => {
    const ranks = await openTeam(fixture, 3);
    const [first, root, gone] = ranks.map(({ team }) => team) as [Team, Team, Team];
    // It needs no message of the rank that is gone.
    const pending = first.broadcast(new Uint8Array(8), { root: 1 });
    const failed = expect(pending).rejects.toMatchObject({ code: 'ERR_COLL_RANK_FAILED', details: { rank: 2 } });
    await gone.close();
    while (!root.lostRanks.includes(2)) {
      ranks[1]!.worker.progress();
      await new Promise(setImmediate);
    }
    await expect(root.broadcast(new Uint8Array(8), { root: 1 })).rejects.toMatchObject({
      code: 'ERR_COLL_TEAM_FAILED',
      details: { rank: 2 },
    });
    await failed;
    await closeAll(ranks);
  });

  it('that closes the team, or its worker, is named; the others make a new team', async () => {
    const ranks = await openTeam(fixture, 3);
    await ranks[2]!.team.close();
    const results = await Promise.allSettled(ranks.slice(0, 2).map(({ team }) => team.barrier()));
    for (const result of results) expect(result).toMatchObject({ reason: { details: { rank: 2 } } });
    expect(ranks[0]!.team.lostRanks).toContain(2);
    const exchange = localExchange(2);
    const survivors = await Promise.all(
      ranks.slice(0, 2).map(async (rank, index) => ({
        ...rank,
        team: await createTeam(rank.worker, { rank: index, size: 2, exchange }),
      })),
    );
    await onAll(survivors, ({ team }) => team.barrier());
    const pending = Promise.allSettled([survivors[0]!.team.barrier()]);
    await survivors[0]!.worker.close();
    expect((await pending)[0]!.status).toBe('rejected');
    expect(() => survivors[0]!.team.barrierNbx()).toThrow(expect.objectContaining({ code: 'ERR_CLOSED' }));
    await closeAll(survivors);
    await closeAll(ranks);
  });
});
