/** Waiters for progress and for interrupts of a card, over engines that count requests and a clock that stands still. */

import { describe, expect, it } from 'vitest';
import { ManualClock } from '../../../ucs/sys/clock.ts';
import type { DmaEngines } from '../../device/engine/dma-engines.ts';
import { type ProgressTicket, Waiters } from './waiters.ts';

function open() {
  const clock = new ManualClock();
  const calls: string[] = [];
  const engines = {
    requestProgressEvent: () => void calls.push('request'),
    waitProgress: (timeoutNs: number, done: () => boolean) => void calls.push(`wait ${timeoutNs} ${done()}`),
  } as unknown as DmaEngines;
  const waiters = new Waiters(engines, clock, () => void calls.push('pump'));
  return { clock, calls, waiters, engines };
}

/** Whether each ticket has resolved. */
async function resolved(...tickets: ProgressTicket[]): Promise<boolean[]> {
  const states = tickets.map(() => false);
  for (const [index, { progress }] of tickets.entries()) {
    void progress.then(() => {
      states[index] = true;
    });
  }
  await new Promise((resolve) => setImmediate(resolve));
  return states;
}

describe('a ticket', () => {
  it('is armed at the engines, and resolves at the next progress', async () => {
    const { waiters, calls, clock } = open();
    expect(waiters.any).toBe(false);
    const tickets = [waiters.take(1e9), waiters.take(2e9)] as const;
    expect([calls, waiters.any, clock.pendingTimers]).toEqual([['request', 'request'], true, 2]);
    waiters.wake();
    expect(await resolved(...tickets)).toEqual([true, true]);
    expect([waiters.any, clock.pendingTimers]).toEqual([false, 0]);
  });

  it('resolves at its own time, in nanoseconds', async () => {
    const { waiters, clock } = open();
    const tickets = [waiters.take(1000), waiters.take(1001)] as const;
    clock.advance(1000);
    expect(await resolved(...tickets)).toEqual([true, false]);
    tickets[1].cancel();
    expect(await resolved(tickets[1])).toEqual([true]);
    expect([waiters.any, clock.pendingTimers]).toEqual([false, 0]);
  });

  it('for an interrupt resolves at that one, and not at progress, which asks the engines for the next event', async () => {
    const { waiters, calls } = open();
    const tickets = [waiters.take(1e9, 5), waiters.take(1e9, 5), waiters.take(1e9, 6)] as const;
    calls.length = 0;
    expect(waiters.any).toBe(true);
    // One that gives up leaves the others.
    waiters.take(1e9, 5).cancel();
    calls.length = 0;
    waiters.wake();
    expect([await resolved(...tickets), calls]).toEqual([[false, false, false], ['request']]);
    waiters.wakeInterrupt(5);
    expect(await resolved(...tickets)).toEqual([true, true, false]);
    waiters.wakeInterrupt(7);
    tickets[2].cancel();
    calls.length = 0;
    waiters.wake();
    expect([waiters.any, calls]).toEqual([false, []]);
  });

  it('resolves whatever it is for when the status of the card changes', async () => {
    const { waiters, clock } = open();
    const tickets = [waiters.take(1e9), waiters.take(1e9, 5), waiters.take(1e9, 6)] as const;
    waiters.wakeAll();
    expect(await resolved(...tickets)).toEqual([true, true, true]);
    expect([waiters.any, clock.pendingTimers]).toEqual([false, 0]);
  });
});

describe('a blocking wait', () => {
  it('looks once, after it has run what can run, even without time', () => {
    const { waiters, calls } = open();
    expect(waiters.block(0, () => calls.includes('pump'))).toBe(true);
    calls.length = 0;
    expect(waiters.block(0, () => false)).toBe(false);
    expect(calls).toEqual(['pump']);
  });

  it('waits for the engines no longer than is left, and looks again before they sleep and when they wake', () => {
    const { waiters, clock, calls, engines } = open();
    let looks = 0;
    Object.assign(engines, {
      waitProgress: (timeoutNs: number, done: () => boolean) => {
        calls.push(`wait ${timeoutNs} ${done()}`);
        clock.advance(400);
      },
    });
    const done = (): boolean => {
      looks += 1;
      return looks >= 4;
    };
    expect(waiters.block(1000, done)).toBe(true);
    expect(calls).toEqual(['pump', 'pump', 'wait 1000 false', 'pump', 'pump', 'wait 600 true', 'pump']);
    calls.length = 0;
    expect(waiters.block(1000, () => false)).toBe(false);
    expect(calls.filter((call) => call !== 'pump')).toEqual(['wait 1000 false', 'wait 600 false', 'wait 200 false']);
  });
});
