/** What a team tells its ranks when it fails, and what it does not do any more after that, over fake ranks. */

import { describe, expect, it, vi } from 'vitest';
import { FakeTeam } from '../../../test/fixtures/coll/fake-team.ts';
import { statusError } from '../../ucs/type/error.ts';
import { Status } from '../../ucs/type/status.ts';
import { Kind } from './layout/header.ts';
import { Departures } from './team-state.ts';

const GRACE_NS = 20e6;
const CLOSED = { status: Status.CONNECTION_RESET, isClosed: true };
const LOST = { status: Status.ENDPOINT_TIMEOUT, isClosed: false };

describe('a team that fails', () => {
  it('tells all other ranks why, once', () => {
    const team = new FakeTeam({ rank: 1, size: 4 });
    const error = statusError(Status.NO_MEMORY, 'map');
    team.core.state.fail(error);
    team.core.state.fail(statusError(Status.IO_ERROR, 'second'));
    expect([team.kinds, team.core.failure]).toEqual([['failure 0', 'failure 2', 'failure 3'], error]);
    expect(team.sent[0]!.header).toMatchObject({ status: Status.NO_MEMORY, offset: 1, from: 1 });
  });

  it('keeps its first reason, also against those of other ranks', () => {
    const team = new FakeTeam({ size: 3 });
    expect(team.core.state.adopt(statusError(Status.NO_MEMORY, 'first'))).toBe(true);
    expect(team.core.state.adopt(statusError(Status.IO_ERROR, 'second'))).toBe(false);
    team.fail();
    expect([team.core.failure!.status, team.kinds]).toEqual([Status.NO_MEMORY, []]);
  });

  it('does not tell ranks that are lost', () => {
    const team = new FakeTeam({ size: 3 });
    team.losses.set(1, LOST);
    team.core.state.fail(statusError(Status.NO_MEMORY, 'map'));
    expect(team.kinds).toEqual(['failure 2']);
  });
});

describe('what runs when a lost rank has had time to say why', () => {
  it('runs after 20 ms, once', () => {
    const team = new FakeTeam();
    const run = vi.fn();
    team.core.state.later(run);
    team.clock.advance(GRACE_NS - 1);
    expect(run).not.toHaveBeenCalled();
    team.clock.advance(1);
    team.clock.advance(GRACE_NS);
    expect(run).toHaveBeenCalledTimes(1);
  });

  it('does not run after the team is left', () => {
    const team = new FakeTeam();
    const run = vi.fn();
    team.core.state.later(run);
    team.core.state.later(run);
    team.core.state.cancelTimers();
    team.clock.advance(GRACE_NS);
    expect([run.mock.calls, team.clock.pendingTimers]).toEqual([[], 0]);
  });
});

describe('memory that a rank has offered', () => {
  it('is refused with the place of its part, and the reason', () => {
    const team = new FakeTeam({ size: 3 });
    const offer = { ...team.core.state.header(Kind.READY), sequence: 9, from: 2, slice: 3, round: 4, byteLength: 5 };
    team.core.state.sendNack(offer);
    team.core.state.sendNack(offer, statusError(Status.NO_MEMORY, 'map'));
    const [first, second] = team.sent;
    const part = { kind: Kind.NOTICE, sequence: 9, slice: 3, round: 4, byteLength: 5, from: 0 };
    expect([first!.rank, first!.header]).toEqual([2, expect.objectContaining({ ...part, status: Status.CANCELED })]);
    expect(second!.header).toMatchObject({ ...part, status: Status.NO_MEMORY });
  });
});

describe('departed ranks', () => {
  const of = (losses: Readonly<Record<number, typeof LOST>>) =>
    new Departures({ loss: (member) => losses[member] }, [10, 11, 12]);

  it('are those whose connection has ended, by their members, and those that have left', () => {
    const departures = of({ 12: LOST });
    expect([departures.lostRanks, departures.first]).toEqual([[2], 2]);
    expect(departures.left(0, false, undefined)).toEqual(CLOSED);
    expect([departures.lostRanks, departures.first, departures.left(0, false, undefined)]).toEqual([
      [0, 2],
      2,
      undefined,
    ]);
    expect(departures.errorOf(0).message).toMatch(/^rank 0 has closed the team/);
    expect(departures.errorOf(2).message).toMatch(/^rank 2 is lost/);
  });

  it('are not those that leave because of the failure of another', () => {
    const departures = of({});
    const failure = Object.assign(statusError(Status.CONNECTION_RESET, 'lost'), { details: { rank: 1 } });
    departures.left(0, false, failure as never);
    departures.left(1, false, failure as never);
    departures.left(2, true, undefined);
    expect(departures.lostRanks).toEqual([1]);
    expect(departures.loss(0)).toEqual(CLOSED);
  });
});
