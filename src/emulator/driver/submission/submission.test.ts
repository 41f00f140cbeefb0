/** The submissions of a context and their time-out, over jobs that end when the test says so and a clock that stands still. */

import { afterEach, describe, expect, it } from 'vitest';
import { expectNoLeaks } from '../../../../test/fixtures/leak-check.ts';
import { viewAt } from '../../../sys/index.ts';
import { HL_CS_FLAGS } from '../../../uapi/index.ts';
import { ManualClock } from '../../../ucs/sys/clock.ts';
import type { Stream } from '../../device/queue/stream.ts';
import { CsCounters, type Submission, SubmissionState, SubmissionTable, TimeoutWatch } from './submission.ts';

expectNoLeaks();

const { PENDING, COMPLETED, TIMED_OUT, ABORTED } = SubmissionState;
const TIMESTAMP = HL_CS_FLAGS.TIMESTAMP;

const streamOf = (tracked = true) => ({ tracked, outstanding: 0 });
type FakeStream = ReturnType<typeof streamOf>;

let table: SubmissionTable;
afterEach(() => table.close());

/** A table of four slots. */
function open(maxPending = 4) {
  table = new SubmissionTable(maxPending);
  const stream = streamOf();
  /** Opens a submission with a job on a stream. */
  const submit = (flags = 0, on: FakeStream = stream): Submission => {
    const submission = table.open(flags, 5);
    submission.addJob(on as unknown as Stream);
    on.outstanding += 1;
    return submission;
  };
  return { stream, submit };
}

const finish = ({ jobs, jobCount }: Submission): void => {
  for (let i = 0; i < jobCount; i++) jobs[i]!.decoded = true;
};

/** Writes the time of completion, as the engines do. */
const stamp = (submission: Submission, ns: bigint): void => {
  new DataView(viewAt(table.stampAddress(submission), 8)).setBigUint64(0, ns, true);
};

describe('submissions', () => {
  it('are as many in flight as there are slots, exactly', () => {
    const { submit } = open();
    const all = [0, 1, 2, 3].map((i) => {
      expect(table.hasFreeSlot, `before ${i}`).toBe(true);
      return submit();
    });
    expect([all.map(({ seq }) => seq), table.hasFreeSlot, table.nextSeq]).toEqual([[1, 2, 3, 4], false, 5]);
    // One that completes behind the oldest frees no slot for the next.
    finish(all[1]!);
    expect(table.hasFreeSlot).toBe(false);
    finish(all[0]!);
    expect(table.hasFreeSlot).toBe(true);
    expect(submit().seq).toBe(5);
    expect([table.find(1), table.find(2)?.seq, table.find(5)?.seq, table.find(6)]).toEqual([
      undefined,
      2,
      5,
      undefined,
    ]);
  });

  it('are complete when every tracked job is done, and give their places on the streams back', () => {
    const { stream, submit } = open();
    const submission = submit();
    const untracked = streamOf(false);
    submission.addJob(untracked as unknown as Stream);
    submission.addJob(stream as unknown as Stream);
    untracked.outstanding += 1;
    stream.outstanding += 1;
    let ends = 0;
    submission.onEnd = () => {
      ends += 1;
    };
    submission.jobs[0]!.decoded = true;
    expect(table.poll(submission)).toBe(PENDING);
    submission.jobs[2]!.decoded = true;
    const [, left] = submission.jobs;
    left!.stampAddress = 7;
    expect([table.poll(submission), table.poll(submission)]).toEqual([COMPLETED, COMPLETED]);
    expect([stream.outstanding, untracked.outstanding, ends, submission.ended]).toEqual([0, 0, 1, true]);
    // The job that is still on its stream is not reused by the next submission in the slot.
    expect([submission.jobs[1] === left, left!.stampAddress]).toEqual([false, 0]);
  });

  it('are not complete while they are withheld or hang', () => {
    const { submit } = open();
    for (const injected of ['withheld', 'hung'] as const) {
      const submission = submit();
      finish(submission);
      submission[injected] = true;
      expect(table.poll(submission)).toBe(PENDING);
      submission[injected] = false;
      expect(table.poll(submission)).toBe(COMPLETED);
    }
  });

  it('start anew in a slot that is reused', () => {
    const { submit } = open(1);
    const first = submit();
    Object.assign(first, { multiWait: true, signal: true });
    finish(first);
    table.poll(first);
    first.staged = table.openStaged(first);
    const second = submit(HL_CS_FLAGS.STAGED_SUBMISSION);
    expect(second).toBe(first);
    expect(second).toMatchObject({ seq: 2, state: PENDING, multiWait: false, signal: false, jobCount: 1 });
    expect([second.staged, second.onEnd, second.jobs[0]!.decoded]).toEqual([undefined, undefined, false]);
  });

  it('retire in order, and the oldest of those that are left is the head', () => {
    const { submit } = open();
    const [first, second, third] = [submit(), submit(), submit()];
    finish(second);
    table.pollAll();
    expect([second.state, table.oldest, table.head, table.hasActive]).toEqual([COMPLETED, 1, first, true]);
    finish(first);
    expect([table.head, table.oldest]).toEqual([third, 3]);
    finish(third);
    expect([table.head, table.oldest, table.hasActive]).toEqual([undefined, 4, false]);
  });

  it('that are aborted end as such, all but the one that has timed out', () => {
    const { stream, submit } = open();
    const all = [submit(), submit(), submit()];
    const ends: number[] = [];
    for (const submission of all) submission.onEnd = () => ends.push(submission.seq);
    finish(all[0]!);
    table.abort(all[1]);
    expect(all.map(({ state }) => state)).toEqual([COMPLETED, TIMED_OUT, ABORTED]);
    expect([ends, stream.outstanding, table.oldest, table.hasFreeSlot]).toEqual([[1, 2, 3], 0, 4, true]);
  });

  it('that are forced to an end hold the context until their jobs are done', () => {
    const { submit } = open();
    const [first, withheld] = [submit(), submit()];
    finish(withheld);
    withheld.withheld = true;
    const jobs = [...first.jobs];
    table.forceComplete();
    expect([first.state, withheld.state, table.hasActive]).toEqual([ABORTED, ABORTED, true]);
    jobs[0]!.decoded = true;
    expect(table.hasActive).toBe(true);
    const { submit: again } = open();
    const only = again();
    const [job] = only.jobs;
    table.forceComplete();
    expect(table.hasActive).toBe(true);
    job!.decoded = true;
    expect(table.hasActive).toBe(false);
  });
});

describe('timestamps', () => {
  it('are those of each submission, and can be read once after it has left its slot', () => {
    const { submit } = open();
    const all = [0, 1, 2, 3].map(() => submit(TIMESTAMP));
    for (const [index, submission] of all.entries()) {
      stamp(submission, 1_000_000_007n + BigInt(index));
      finish(submission);
    }
    expect(all.map((submission) => table.timestampNs(submission))).toEqual([
      1_000_000_007, 1_000_000_008, 1_000_000_009, 1_000_000_010,
    ]);
    expect(table.takeOutcome(1)).toBeUndefined();
    table.retire();
    const next = submit(TIMESTAMP);
    // The new submission in the slot has no time yet.
    expect(table.timestampNs(next)).toBe(0);
    expect([table.takeOutcome(1), table.takeOutcome(1)]).toEqual([{ timestampNs: 1_000_000_007 }, undefined]);
  });

  it('are not kept of one that was aborted', () => {
    const { submit } = open(1);
    const aborted = submit(TIMESTAMP);
    stamp(aborted, 7n);
    table.abort(undefined);
    submit();
    expect(table.takeOutcome(1)).toBeUndefined();
  });

  it('are kept of the last 256 that were complete, and had one', () => {
    const { submit } = open(1);
    const run = (flags: number): void => {
      const submission = submit(flags);
      if ((flags & TIMESTAMP) !== 0) stamp(submission, BigInt(submission.seq));
      finish(submission);
      table.retire();
    };
    run(0);
    run(0);
    for (let seq = 3; seq <= 260; seq++) run(TIMESTAMP);
    expect([2, 3].map((seq) => table.takeOutcome(seq))).toEqual([undefined, undefined]);
    expect(table.takeOutcome(4)).toEqual({ timestampNs: 4 });
    expect(table.takeOutcome(259)).toEqual({ timestampNs: 259 });
  });
});

describe('a staged submission', () => {
  it('is complete when its last member was submitted and all are done', () => {
    const { submit } = open();
    const [first, last] = [submit(), submit()];
    const group = table.openStaged(first);
    for (const member of [first, last]) {
      member.staged = group;
      group.members.push(member);
    }
    finish(first);
    expect([table.findStaged(first.seq), table.poll(first)]).toEqual([group, PENDING]);
    group.closed = true;
    expect([table.findStaged(first.seq), table.poll(first)]).toEqual([undefined, PENDING]);
    finish(last);
    expect([table.poll(first), table.poll(last)]).toEqual([COMPLETED, COMPLETED]);
    // The table has forgotten the group: not even one that is opened again is found.
    group.closed = false;
    expect(table.findStaged(first.seq)).toBeUndefined();
  });

  it('that is not closed holds the context after a forced end', () => {
    const { submit } = open();
    const first = submit();
    first.staged = table.openStaged(first);
    first.staged.members.push(first);
    finish(first);
    table.forceComplete();
    expect([first.state, table.hasActive]).toEqual([ABORTED, true]);
  });
});

describe('counters', () => {
  it('are added by reason', () => {
    const counts = { outOfMemory: 1, parsing: 2, queueFull: 3, inReset: 4, maxCsInFlight: 5, validation: 6 };
    const [sum, other] = [new CsCounters(), Object.assign(new CsCounters(), counts)];
    table = new SubmissionTable(1);
    sum.add(other);
    sum.add(other);
    expect({ ...sum }).toEqual({
      outOfMemory: 2,
      parsing: 4,
      queueFull: 6,
      inReset: 8,
      maxCsInFlight: 10,
      validation: 12,
    });
  });
});

describe('the time-out', () => {
  function watch() {
    const { submit } = open();
    const clock = new ManualClock();
    const expired: (number | undefined)[] = [];
    const watched = new TimeoutWatch(clock, () => expired.push(watched.expired(table)?.seq));
    return { submit, clock, expired, watched };
  }

  it('of the oldest runs from when it is found to be the oldest, in seconds', () => {
    const { submit, clock, expired, watched } = watch();
    const [first, second] = [submit(), submit()];
    watched.watch(table);
    expect([clock.nextDeadlineNs, clock.pendingTimers, watched.active]).toEqual([5e9, 1, true]);
    clock.advance(3e9);
    finish(first);
    watched.watch(table);
    clock.advance(2e9);
    // The timer of the first finds the second, whose time began at 3 s.
    expect([expired, clock.nextDeadlineNs]).toEqual([[undefined], 8e9]);
    clock.advance(3e9 - 1);
    expect(expired).toEqual([undefined]);
    clock.advance(1);
    expect(expired).toEqual([undefined, second.seq]);
  });

  it('is reported once, and that of the next one runs when the overdue one has completed', () => {
    const { submit, clock, expired, watched } = watch();
    const [first, second] = [submit(), submit()];
    watched.watch(table);
    clock.advance(5e9);
    expect([expired, watched.active]).toEqual([[first.seq], true]);
    watched.watch(table);
    expect(clock.pendingTimers).toBe(0);
    finish(first);
    expect([watched.expired(table), clock.nextDeadlineNs]).toEqual([undefined, 10e9]);
    clock.advance(5e9);
    expect(expired).toEqual([first.seq, second.seq]);
    // Nor is it active when the last one that is overdue has completed.
    finish(second);
    expect([watched.expired(table), watched.active]).toEqual([undefined, false]);
  });

  it('ends with the last submission, and when it is cancelled', () => {
    const { submit, clock, expired, watched } = watch();
    const first = submit();
    watched.watch(table);
    finish(first);
    clock.advance(5e9);
    expect([expired, watched.active, clock.pendingTimers]).toEqual([[undefined], false, 0]);
    submit();
    watched.watch(table);
    watched.cancel();
    expect([watched.active, clock.pendingTimers]).toEqual([false, 0]);
    clock.advance(1e9);
    // Its time begins anew.
    watched.watch(table);
    expect(clock.nextDeadlineNs).toBe(clock.nowNs() + 5e9);
  });

  it('that is shorter replaces the timer of a longer one', () => {
    const { clock, watched } = watch();
    const first = table.open(0, 30);
    first.withheld = true;
    table.open(0, 2).withheld = true;
    watched.watch(table);
    expect(clock.nextDeadlineNs).toBe(30e9);
    first.withheld = false;
    watched.watch(table);
    expect([clock.nextDeadlineNs, clock.pendingTimers]).toEqual([2e9, 1]);
  });

  it('that never ends needs no timer', () => {
    const { clock, watched } = watch();
    table.open(0, Number.POSITIVE_INFINITY).withheld = true;
    watched.watch(table);
    expect([clock.pendingTimers, watched.active]).toEqual([0, false]);
  });
});
