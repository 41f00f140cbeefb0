/** A sleep that callers share: it ends once, at the earliest time or when it is woken, and leaves nothing. */

import { describe, expect, it } from 'vitest';
import { ManualClock, type Timer } from './clock.ts';
import { cancelTurn, inNextTurn, nextTurn } from './next-turn.ts';
import { Sleeper } from './sleeper.ts';

/** Whether a promise has settled by now. */
async function hasEnded(promise: Promise<void>): Promise<boolean> {
  let ended = false;
  void promise.then(() => {
    ended = true;
  });
  await Promise.resolve();
  await Promise.resolve();
  return ended;
}

describe('a sleep', () => {
  it('ends after its time and not before, and leaves no timer', async () => {
    const clock = new ManualClock(100);
    const sleeper = new Sleeper(clock);
    expect([sleeper.sleeping, sleeper.leftNs]).toEqual([false, 0]);
    const sleep = sleeper.sleep(50);
    expect([sleeper.sleeping, sleeper.leftNs]).toEqual([true, 50]);
    clock.advance(49);
    expect([await hasEnded(sleep), sleeper.leftNs]).toEqual([false, 1]);
    clock.advance(1);
    expect([await hasEnded(sleep), sleeper.sleeping, clock.pendingTimers]).toEqual([true, false, 0]);
  });

  it('that is joined ends for all at the earliest time', async () => {
    const clock = new ManualClock();
    const sleeper = new Sleeper(clock);
    const first = sleeper.sleep(100);
    const later = sleeper.sleep(200);
    expect([clock.pendingTimers, clock.nextDeadlineNs]).toEqual([1, 100]);
    const earlier = sleeper.sleep(30);
    expect([clock.pendingTimers, clock.nextDeadlineNs, sleeper.leftNs]).toEqual([1, 30, 30]);
    clock.advance(30);
    expect(await Promise.all([first, later, earlier].map(hasEnded))).toEqual([true, true, true]);
    expect(clock.pendingTimers).toBe(0);
  });

  it('that is woken leaves no timer, tells its end once, and the next one has its own time', async () => {
    const clock = new ManualClock();
    let ends = 0;
    const sleeper = new Sleeper(clock, {
      onEnd: () => {
        ends += 1;
        expect(sleeper.sleeping).toBe(false);
      },
    });
    sleeper.wake();
    expect(ends).toBe(0);
    const sleep = sleeper.sleep(10);
    sleeper.wake();
    sleeper.wake();
    expect([await hasEnded(sleep), ends, clock.pendingTimers]).toEqual([true, 1, 0]);
    const next = sleeper.sleep(70);
    expect(next).not.toBe(sleep);
    clock.advance(69);
    expect(await hasEnded(next)).toBe(false);
    clock.advance(1);
    expect([await hasEnded(next), ends]).toEqual([true, 2]);
  });

  it('has time left until it has ended, also when its timer is late', () => {
    let nowNs = 0;
    const late = { nowNs: () => nowNs, setTimer: (): Timer => ({ cancel: () => {}, ref: () => {}, unref: () => {} }) };
    const sleeper = new Sleeper(late);
    void sleeper.sleep(10);
    nowNs = 10;
    expect(sleeper.leftNs).toBe(1);
    nowNs = 500;
    expect(sleeper.leftNs).toBe(1);
    sleeper.wake();
    expect(sleeper.leftNs).toBe(0);
  });

  it.each([
    [true, 1],
    [false, 0],
    [undefined, 0],
  ])('keeps the process running only with ref: %s', (ref, count) => {
    let refs = 0;
    const timer: Timer = {
      cancel: () => {},
      ref: () => {
        refs += 1;
      },
      unref: () => {},
    };
    void new Sleeper({ nowNs: () => 0, setTimer: () => timer }, ref === undefined ? {} : { ref }).sleep(5);
    expect(refs).toBe(count);
  });
});

it('a turn runs a requested callback unless it was cancelled', async () => {
  const ran: string[] = [];
  inNextTurn(() => ran.push('kept'));
  cancelTurn(inNextTurn(() => ran.push('taken back')));
  cancelTurn(undefined);
  expect(ran).toEqual([]);
  await nextTurn();
  expect(ran).toEqual(['kept']);
});
