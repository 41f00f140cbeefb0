/** Messages of a team of fake ranks: what waits for its operation, what is given back, and what fails the team. */

import { beforeEach, describe, expect, it } from 'vitest';
import { FakeTeam } from '../../../test/fixtures/coll/fake-team.ts';
import { Status } from '../../ucs/type/status.ts';
import { Kind, NO_OPERATION } from './layout/header.ts';

const HISTORY = 64;
const REDUCE = { ...NO_OPERATION, collective: 'reduce' } as const;

let team: FakeTeam;
beforeEach(() => {
  team = new FakeTeam({ size: 3 });
});

/** Two ranks run a barrier to its end. */
function barriers(count: number): FakeTeam {
  const two = new FakeTeam();
  for (let sequence = 0; sequence < count; sequence++) {
    two.begin(two.plan('barrier'));
    two.receive(Kind.DATA, { sequence });
    two.endAll();
  }
  expect(two.core.inProgress).toBe(0);
  return two;
}

describe('a message for an operation that this rank has not begun', () => {
  it('waits for it; messages of others do not get it', () => {
    team.receive(Kind.DATA, { sequence: 1 });
    team.receive(Kind.DATA, { sequence: 0 });
    expect(team.kept.size).toBe(2);
    team.core.shutDown(new Error('closed') as never);
    expect(team.kept.size).toBe(0);
  });

  it('is given to it once', () => {
    const two = new FakeTeam();
    const { signature } = two.plan('barrier');
    two.receive(Kind.READY, { sequence: 0, signature, from: 1 });
    two.begin(two.plan('barrier'));
    two.receive(Kind.DATA);
    two.endAll();
    expect(two.core.inProgress).toBe(0);
    two.fail();
    expect(two.kinds).toEqual(['data 1']);
  });

  it('is given back when the team fails; memory that it offers is refused with the reason', () => {
    team.receive(Kind.READY, { sequence: 4, from: 2, slice: 1, round: 3, byteLength: 77 });
    expect(team.kinds).toEqual([]);
    team.fail('rank 1 has no memory', { from: 1, status: Status.NO_MEMORY });
    expect([team.kept.size, team.kinds]).toEqual([0, ['notice 2']]);
    const { header, rest } = team.sent[0]!;
    expect(header).toMatchObject({ sequence: 4, slice: 1, round: 3, byteLength: 77, status: Status.NO_MEMORY });
    expect(new TextDecoder().decode(rest)).toMatch(/rank 1 has no memory/);
  });

  it('is not kept once the team has failed, or is closed', () => {
    team.fail();
    team.receive(Kind.DATA, { sequence: 0, from: 1 });
    team.receive(Kind.READY, { sequence: 0, from: 1 });
    expect([team.kept.size, team.kinds]).toEqual([0, ['notice 1']]);
    const closed = new FakeTeam();
    closed.core.shutDown(new Error('closed') as never);
    closed.receive(Kind.READY, { sequence: 0, from: 1 });
    expect([closed.kept.size, closed.kinds]).toEqual([0, ['notice 1']]);
  });
});

describe('a message that belongs to no other rank of the team', () => {
  it.each([0, 3, 2 ** 32 - 1])('is dropped: from rank %d', (from) => {
    team.receive(Kind.DATA, { sequence: 0, from });
    team.receive(Kind.FAILURE, { sequence: 0, from });
    expect([team.kept.size, team.core.failure]).toEqual([0, undefined]);
  });
});

describe('a message of another operation', () => {
  it('fails the team: both ranks are named', () => {
    const request = team.begin(team.plan('barrier'));
    team.receive(Kind.DATA, { signature: REDUCE, from: 1 });
    expect(team.core.failure).toMatchObject({ code: 'ERR_COLL_MISMATCH', details: { rank: 1, sequence: 0 } });
    expect(team.kinds.filter((kind) => kind.startsWith('failure'))).toEqual(['failure 1', 'failure 2']);
    team.endAll();
    expect(request.status).toBe(Status.INVALID_PARAM);
  });

  it('that has ended fails the team too', () => {
    const two = barriers(2);
    two.receive(Kind.READY, { sequence: 1, from: 1 });
    expect(two.core.failure?.code).toBe('ERR_COLL_MISMATCH');
    expect(two.kinds.slice(-2)).toEqual(['failure 1', 'notice 1']);
  });

  it('ends the wait of one that has failed: a peer does not write to its memory', () => {
    const two = new FakeTeam();
    const { request } = two.allReduce(32 * 1024);
    two.fail();
    two.endAll();
    two.receive(Kind.NOTICE, { ...two.sent[0]!.header, kind: Kind.NOTICE, from: 1, signature: REDUCE });
    expect([request.isCompleted, two.taken.size]).toEqual([true, 0]);
  });

  it('does not fail a team that has failed for another reason', () => {
    team.begin(team.plan('barrier'));
    team.fail();
    team.receive(Kind.DATA, { signature: REDUCE, from: 1 });
    expect(team.core.failure?.code).toBe('ERR_COLL_RANK_FAILED');
  });
});

describe('a rank that tells what it waits for', () => {
  it('is notified of the failure of the team', () => {
    team.fail();
    team.receive(Kind.CHECK_RECEIVE, { from: 2 });
    expect(team.kinds).toEqual(['failure 2']);
  });

  it('means another operation than this rank had, as long as it is remembered', () => {
    for (const [age, code] of [
      [HISTORY, 'ERR_COLL_MISMATCH'],
      [HISTORY + 1, undefined],
    ] as const) {
      const two = barriers(HISTORY + 2);
      two.receive(Kind.CHECK_RECEIVE, { sequence: HISTORY + 2 - age, signature: REDUCE, from: 1 });
      expect([age, two.core.failure?.code]).toEqual([age, code]);
    }
  });

  it('is not answered about an operation that this rank has not begun, or has ended', () => {
    const two = barriers(1);
    const before = two.kinds.length;
    two.receive(Kind.CHECK_RECEIVE, { sequence: 1, signature: REDUCE, from: 1 });
    two.receive(Kind.CHECK_RECEIVE, { sequence: 0, from: 1 });
    expect([two.core.failure, two.kinds.length, two.kept.size]).toEqual([undefined, before, 0]);
  });
});

describe('a rank that leaves', () => {
  it('is lost; an operation that needs it fails when it has had time to say why', () => {
    const request = team.begin(team.plan('barrier'));
    team.receive(Kind.LEAVE, { from: 1 });
    expect(team.core.lostRanks).toEqual([1]);
    team.clock.advance(20e6);
    team.endAll();
    expect([request.isCompleted, team.core.failure?.details]).toEqual([true, { rank: 1 }]);
  });

  it('because of a failure is not lost: the failure is that of the team', () => {
    const text = new TextEncoder().encode('rank 2 is lost');
    team.receive(Kind.LEAVE, { from: 1, status: Status.CONNECTION_RESET, offset: 2 }, { rest: text });
    expect(team.core.failure).toMatchObject({
      message: expect.stringMatching(/^rank 2 is lost/),
      details: { rank: 2 },
    });
    expect(team.core.lostRanks).toEqual([]);
    expect(() => team.core.checkUsable()).toThrow(expect.objectContaining({ code: 'ERR_COLL_TEAM_FAILED' }));
  });

  it('counts once', () => {
    team.receive(Kind.LEAVE, { from: 1 });
    team.receive(Kind.LEAVE, { from: 1, status: Status.IO_ERROR });
    expect([team.core.failure, team.core.lostRanks]).toEqual([undefined, [1]]);
  });

  it('fails the next operation: of several the one whose connection has ended is named', () => {
    team.receive(Kind.LEAVE, { from: 1 });
    team.losses.set(2, { status: Status.CONNECTION_RESET, isClosed: false });
    expect(team.core.lostRanks).toEqual([1, 2]);
    expect(() => team.core.checkUsable()).toThrow(/rank 2 is lost/);
  });
});

describe('a greeting', () => {
  it.each([
    [Kind.GREETING, false],
    [Kind.CHOICE, true],
  ])('of kind %i goes to the endpoints of the team; chosen: %s', (kind, isChosen) => {
    team.receive(kind, { from: 2 });
    expect(team.greeted.mock.calls).toEqual([[2, undefined, isChosen]]);
  });
});
