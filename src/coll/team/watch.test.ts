/** Operations that make no progress, over fake ranks and a clock that stands still: what their ranks are told, and when they fail. */

import { describe, expect, it } from 'vitest';
import { FakeTeam } from '../../../test/fixtures/coll/fake-team.ts';
import { Status } from '../../ucs/type/status.ts';
import { Kind } from './layout/header.ts';

const CHECK_NS = 20e6;
const CHECK_NS_MAX = 1e9;
const LONG = 32 * 1024;

/** How often the other rank was told what this one waits for. */
const checks = (team: FakeTeam): number => team.kinds.filter((kind) => kind.startsWith('check')).length;

describe('an operation that makes no progress', () => {
  it('is described to the rank that it waits for, at growing intervals', () => {
    const team = new FakeTeam();
    team.begin(team.plan('barrier'));
    team.endAll();
    const times: number[] = [];
    for (let told = 0; team.clock.nowNs() < 8e9; team.clock.advance(CHECK_NS / 2), team.endAll()) {
      if (checks(team) > told) times.push(team.clock.nowNs());
      told = checks(team);
    }
    const [first] = times;
    expect(first).toBeLessThanOrEqual(3 * CHECK_NS);
    const gaps = times.slice(1).map((time, index) => time - times[index]!);
    expect(gaps.slice(0, 3).every((gap, index) => index === 0 || gap > gaps[index - 1]!)).toBe(true);
    expect(Math.max(...gaps)).toBe(CHECK_NS_MAX);
    const { header } = team.sent.at(-1)!;
    expect([header.kind, header.sequence, header.signature.collective]).toEqual([Kind.CHECK_RECEIVE, 0, 'barrier']);
  });

  it('is described to the receiver that has not offered memory', () => {
    const team = new FakeTeam({ rank: 0 });
    const options = { root: 0, algorithm: 'binomial' };
    team.begin(team.plan('broadcast', undefined, new Uint8Array(LONG), options));
    expect(team.kinds).toEqual([]);
    team.clock.advance(3 * CHECK_NS);
    expect([team.kinds[0], team.sent[0]!.header.byteLength]).toEqual(['check_send 1', LONG]);
  });

  it('is not described while messages of it come', () => {
    const team = new FakeTeam();
    team.begin(team.plan('barrier'));
    for (let i = 0; i < 20; i++) {
      team.clock.advance(CHECK_NS);
      // Of a round to come: it waits, but something has happened.
      team.receive(Kind.DATA, { round: 10 + i, from: 1 });
    }
    expect(checks(team)).toBe(0);
    // And then soon.
    team.clock.advance(2 * CHECK_NS);
    expect(checks(team)).toBe(1);
  });

  it('fails after the time limit, with the ranks that it waits for', () => {
    const team = new FakeTeam({ timeoutNs: 1e9 });
    const request = team.begin(team.plan('barrier'));
    team.endAll();
    team.clock.advance(0.99e9);
    expect(request.isCompleted).toBe(false);
    team.clock.advance(0.5e9);
    expect([request.status, request.error]).toEqual([
      Status.TIMED_OUT,
      expect.objectContaining({
        code: 'ERR_COLL_TIMED_OUT',
        message: 'barrier: timed out after 1000 ms, waiting for rank 1',
        details: { rank: 1, ranks: '1' },
      }),
    ]);
    expect(team.kinds.at(-1)).toBe('failure 1');
  });

  it('ends when the worker is closed', () => {
    const team = new FakeTeam();
    // Its peer may write to memory that it was offered, but no message can say that it does not.
    const { request } = team.allReduce(LONG);
    team.worker.closed = true;
    team.endAll();
    team.clock.advance(CHECK_NS);
    expect([request.isCompleted, request.error]).toEqual([true, expect.objectContaining({ code: 'ERR_CLOSED' })]);
  });
});

describe('the watch', () => {
  it('stops with the last operation', () => {
    const team = new FakeTeam();
    team.begin(team.plan('barrier'));
    expect(team.clock.pendingTimers).toBe(1);
    team.receive(Kind.DATA);
    team.endAll();
    expect([team.core.inProgress, team.clock.pendingTimers]).toEqual([0, 0]);
  });

  it('begins with short intervals again for the next', () => {
    const team = new FakeTeam();
    team.begin(team.plan('barrier'));
    team.endAll();
    team.clock.advance(8e9);
    team.endAll();
    team.receive(Kind.DATA);
    expect([team.core.inProgress, team.core.failure]).toEqual([0, undefined]);
    const before = checks(team);
    team.begin(team.plan('barrier'));
    team.endAll();
    team.clock.advance(3 * CHECK_NS);
    expect(checks(team)).toBeGreaterThan(before);
  });
});
