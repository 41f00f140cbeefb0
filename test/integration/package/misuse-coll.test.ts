/** Every call of `gaudi-ucx/coll` with bad values in the place of each argument: errors are typed, and the team stays usable. */

import { EventEmitter } from 'node:events';
import { describe, expect, it } from 'vitest';
import * as coll from '../../../src/coll/index.ts';
import { type Request, Status } from '../../../src/index.ts';
import { type Calls, Misuse, uncovered } from '../../fixtures/calls/misuse.ts';
import { publicCalls } from '../../fixtures/calls/public-calls.ts';
import { close } from '../../fixtures/calls/ucp-calls.ts';
import { useContexts } from '../../fixtures/contexts.ts';
import { openTeam } from '../../fixtures/teams.ts';

const BYTES = 64;
const DECLARED = publicCalls('src/coll/index.ts');
const BITS = 'conversions of numbers that reductions do for each element';

/** A channel whose parent does not answer. */
class SilentChannel extends EventEmitter implements coll.ParentChannel {
  send(): boolean {
    return true;
  }
}

/** Public calls without a case, with the reason. */
const EXEMPT = {
  'typeof Team.new': 'the library calls it',
  'typeof CollectiveExplanation.new': 'the library calls it',
  ParentChannel: 'callers implement it',
};

const FUNCTIONS: Calls = {
  dtypeBytes: { args: () => ['int32'] },
  bfloat16Bits: { args: () => [1], trusts: BITS },
  bfloat16Value: { args: () => [1], trusts: BITS },
  float16Bits: { args: () => [1], trusts: BITS },
  float16Value: { args: () => [1], trusts: BITS },
  reduceBytes: { args: () => ['int32', 'sum', new Uint8Array(8), new Uint8Array(8), new Uint8Array(8)] },
  forkedExchange: { args: () => [new SilentChannel()] },
  serveForked: { args: () => [[]] },
  launchedRank: { args: () => [{ RANK: '0', WORLD_SIZE: '1', MASTER_PORT: '1' }] },
  listenerExchange: { args: () => [{ rank: 0, size: 1, host: '127.0.0.1', port: 1 }] },
  localExchange: { args: () => [1] },
};

/** Calls of a team of one rank, which end by themselves. */
function teamCalls(): Calls {
  const bytes = new Uint8Array(BYTES);
  const other = new Uint8Array(BYTES);
  const ended = (result: unknown): void => {
    if (typeof result === 'object') (result as Request).callback = (request) => request.free();
  };
  const both = (name: string, ...args: unknown[]): Calls => ({
    [name]: { args: () => [...args, {}] },
    [`${name}Nbx`]: { args: () => [...args, {}, {}], undo: ended },
  });
  return {
    barrier: { args: () => [{}] },
    barrierNbx: { args: () => [{}], undo: ended },
    ...both('broadcast', bytes),
    ...both('gather', bytes, other),
    ...both('scatter', bytes, other),
    ...both('allGather', bytes, other),
    ...both('allToAll', bytes, other),
    ...both('reduce', bytes, other),
    ...both('reduceScatter', bytes, other),
    ...both('allReduce', bytes, other),
    split: { args: () => [{ color: 0 }], undo: close },
    explain: { args: () => ['barrier'] },
  };
}

describe('gaudi-ucx/coll', () => {
  const fixture = useContexts();

  it('every argument is checked', async () => {
    const [rank] = await openTeam(fixture, 1);
    const { team, worker } = rank!;
    const create = (): unknown[] => [worker, { rank: 0, size: 1, exchange: coll.localExchange(1), amId: 64_000 }];
    const calls = {
      '': { ...FUNCTIONS, createTeam: { args: create, undo: close } },
      Team: teamCalls(),
      CollectiveExplanation: { at: { args: () => [1] } },
    };
    expect(uncovered(DECLARED, calls, EXEMPT)).toEqual([]);
    const misuse = new Misuse(worker);
    await misuse.tryMethods('', coll, calls[''], DECLARED.get(''));
    await misuse.tryMethods('Team', team, calls.Team, DECLARED.get('Team'));
    const explanation = team.explain('allReduce');
    await misuse.tryMethods(
      'CollectiveExplanation',
      explanation,
      calls.CollectiveExplanation,
      DECLARED.get('CollectiveExplanation'),
    );
    await misuse.settled();
    expect(misuse.surprises).toEqual([]);
    expect(misuse.accepted).toEqual([]);
    expect(misuse.refused).toEqual([]);
    const sent = Uint8Array.from({ length: BYTES }, (_, i) => i);
    const received = new Uint8Array(BYTES);
    await team.allReduce(sent, received);
    expect(received).toEqual(sent);
    expect(team.failure?.status ?? Status.OK).toBe(Status.OK);
    await team.close();
  });
});
