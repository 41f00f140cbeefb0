/** Operations that are started again after back-pressure, over a clock that stands still. */

import { beforeEach, describe, expect, it, vi } from 'vitest';
import type { Request, RequestParams } from '../../../api/contract/request.ts';
import { ManualClock } from '../../../ucs/sys/clock.ts';
import { statusError } from '../../../ucs/type/error.ts';
import { Status } from '../../../ucs/type/status.ts';
import type { Schedule } from '../../schedule/schedule.ts';
import { type IssueOwner, Issuer, SliceRun } from './slice-run.ts';

const RETRY_NS = 100_000;

let clock: ManualClock;
let issuer: Issuer;
beforeEach(() => {
  clock = new ManualClock();
  issuer = new Issuer(clock);
});

const ownerOf = (hasFailed = false): IssueOwner & { hasFailed: boolean } => ({ requests: new Set(), hasFailed });

/** An operation that finds no resources so often, then runs until the test ends it. */
function operation(owner: IssueOwner, refusals = 0) {
  const free = vi.fn();
  const request = { error: 'cause', free } as unknown as Request;
  let params: RequestParams | undefined;
  let left = refusals;
  const start = vi.fn((given: RequestParams): Status | Request => {
    if (left-- > 0) return Status.NO_RESOURCE;
    params = given;
    return request;
  });
  const end = vi.fn();
  issuer.issue(owner, start, end);
  return { start, end, free, finish: (status: Status = Status.OK) => params!.callback!(request, status) };
}

describe('an operation', () => {
  it('is counted until it ends; its request is freed, once', () => {
    const owner = ownerOf();
    const one = operation(owner);
    expect([owner.requests.size, one.end.mock.calls.length, clock.pendingTimers]).toEqual([1, 0, 0]);
    one.finish(Status.IO_ERROR);
    expect([owner.requests.size, one.free.mock.calls.length, one.end.mock.calls]).toEqual([
      0,
      1,
      [[Status.IO_ERROR, 'cause']],
    ]);
  });

  it.each([Status.OK, Status.IO_ERROR])('that ends in its call with %i has no request', (status) => {
    const owner = ownerOf();
    const end = vi.fn();
    issuer.issue(owner, () => status, end);
    expect([end.mock.calls, owner.requests.size]).toEqual([[[status, undefined]], 0]);
  });

  it.each([
    [statusError(Status.NO_MEMORY, 'start'), Status.NO_MEMORY],
    [new Error('other'), Status.IO_ERROR],
  ])('that throws %s ends with %i', (error, status) => {
    const end = vi.fn();
    const start = (): never => {
      throw error;
    };
    issuer.issue(ownerOf(), start, end);
    expect(end.mock.calls).toEqual([[status, error]]);
  });
});

describe('an operation without resources', () => {
  it('is started again after a while, and later ones wait behind it', () => {
    const owner = ownerOf();
    const blocked = operation(owner, 2);
    const later = operation(owner);
    expect([blocked.start.mock.calls.length, later.start.mock.calls.length, clock.pendingTimers]).toEqual([1, 0, 1]);
    clock.advance(RETRY_NS - 1);
    expect(blocked.start).toHaveBeenCalledTimes(1);
    clock.advance(1);
    expect([blocked.start.mock.calls.length, later.start.mock.calls.length, clock.pendingTimers]).toEqual([2, 0, 1]);
    clock.advance(RETRY_NS);
    expect([blocked.start.mock.calls.length, later.start.mock.calls.length, owner.requests.size]).toEqual([3, 1, 2]);
  });

  it('is started again when another one ends', () => {
    const owner = ownerOf();
    const running = operation(owner);
    const blocked = operation(owner, 1);
    running.finish();
    expect([blocked.start.mock.calls.length, blocked.end.mock.calls.length]).toEqual([2, 0]);
  });

  it('ends with CANCELED once its owner has failed; those of other owners go on', () => {
    const owner = ownerOf();
    const blocked = operation(owner, 1);
    const other = operation(ownerOf());
    owner.hasFailed = true;
    issuer.restart();
    expect([blocked.end.mock.calls, blocked.start.mock.calls.length]).toEqual([[[Status.CANCELED, undefined]], 1]);
    expect(other.start).toHaveBeenCalledTimes(1);
  });

  it('is started once by a restart inside a restart', () => {
    const owner = ownerOf();
    operation(owner, 1);
    const starts: string[] = [];
    issuer.issue(
      owner,
      () => {
        starts.push('second');
        issuer.restart();
        return Status.OK;
      },
      () => {},
    );
    issuer.restart();
    expect(starts).toEqual(['second']);
  });
});

describe('a slice', () => {
  const transfer = (peer: number) => ({ peer, region: {} });
  const round = (sends: number[], receives: number[], steps: unknown[] = []) => ({
    id: 0,
    sends: sends.map(transfer),
    receives: receives.map(transfer),
    steps,
  });

  it('needs the ranks of rounds that have not begun', () => {
    const schedule = { rounds: [round([1], [2]), round([3], [4])] } as unknown as Schedule;
    const run = new SliceRun(0, schedule, []);
    const needed = (): number[] => [1, 2, 3, 4].filter((rank) => run.needs(rank));
    expect(needed()).toEqual([1, 2, 3, 4]);
    run.takeRound();
    expect([needed(), run.pending]).toEqual([[3, 4], 2]);
    run.takeRound();
    expect([needed(), run.takeRound()]).toEqual([[], undefined]);
  });

  it('runs the steps of a round behind it, from the first', () => {
    const schedule = { rounds: [round([], [], ['a', 'b']), round([], [], ['c'])] } as unknown as Schedule;
    const run = new SliceRun(0, schedule, []);
    expect(run.takeStep()).toBeUndefined();
    const taken: unknown[] = [];
    while (run.takeRound() !== undefined) {
      for (let step = run.takeStep(); step !== undefined; step = run.takeStep()) taken.push(step);
    }
    expect(taken).toEqual(['a', 'b', 'c']);
  });
});
