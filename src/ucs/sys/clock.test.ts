import { once } from 'node:events';
import { performance } from 'node:perf_hooks';
import { Worker } from 'node:worker_threads';
import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import { builtSpecifier } from '../../../test/fixtures/tools/built.ts';
import { isUcxError } from '../type/error.ts';
import { ManualClock, SystemTimer, systemClock } from './clock.ts';

/** Allowed difference between the clocks of two threads. */
const AGREEMENT_NS = 5000;

describe('systemClock', () => {
  it('counts whole nanoseconds and never goes back', () => {
    let previous = systemClock.nowNs();
    for (let i = 0; i < 1000; i++) {
      const now = systemClock.nowNs();
      expect(Number.isInteger(now)).toBe(true);
      expect(now).toBeGreaterThanOrEqual(previous);
      previous = now;
    }
  });

  it('uses the time base of CLOCK_MONOTONIC', () => {
    const before = Number(process.hrtime.bigint());
    const now = systemClock.nowNs();
    const after = Number(process.hrtime.bigint());
    expect(now).toBeGreaterThanOrEqual(before - AGREEMENT_NS);
    expect(now).toBeLessThanOrEqual(after + AGREEMENT_NS);
  });

  it('agrees with the clock of a worker thread', async () => {
    const program = `import { parentPort } from 'node:worker_threads';
      import { systemClock } from ${builtSpecifier(new URL('./clock.ts', import.meta.url))};
      parentPort.on('message', () => parentPort.postMessage(systemClock.nowNs()));
      parentPort.postMessage('up');`;
    const worker = new Worker(new URL(`data:text/javascript,${encodeURIComponent(program)}`));
    await once(worker, 'message');
    for (let question = 0; question < 20; question++) {
      const asked = systemClock.nowNs();
      worker.postMessage('time');
      const [answer] = (await once(worker, 'message')) as [number];
      const answered = systemClock.nowNs();
      expect(answer).toBeGreaterThanOrEqual(asked - AGREEMENT_NS);
      expect(answer).toBeLessThanOrEqual(answered + AGREEMENT_NS);
    }
    await worker.terminate();
  });

  it('runs a timer not before its delay', async () => {
    const start = systemClock.nowNs();
    const fired = await new Promise<number>((resolve) => {
      systemClock.setTimer(1_500_000, () => resolve(systemClock.nowNs())).ref();
    });
    expect(fired - start).toBeGreaterThanOrEqual(1_500_000);
  });

  it('rejects bad delays', () => {
    for (const delay of [-1, Number.NaN, Infinity]) {
      expect(() => systemClock.setTimer(delay, () => {})).toThrow(/delayNs/);
    }
  });
});

describe('systemClock timers on a simulated event loop', () => {
  // The timers of the clock itself are those of Node.js.
  const timer = (delayNs: number, callback: () => void): SystemTimer => new SystemTimer(delayNs, callback, globalThis);
  beforeEach(() => {
    vi.useFakeTimers();
    // The clock reads the object of Node itself, which fake timers do not replace.
    const [nowMs, startMs] = [performance.now(), Date.now()];
    vi.spyOn(performance, 'now').mockImplementation(() => nowMs + Date.now() - startMs);
  });
  afterEach(() => {
    vi.restoreAllMocks();
    vi.useRealTimers();
  });

  it('supports delays beyond the longest time-out of Node', () => {
    const fired = vi.fn();
    const fortyDaysMs = 40 * 24 * 3600 * 1000;
    timer(fortyDaysMs * 1e6, fired);
    vi.advanceTimersByTime(fortyDaysMs - 1);
    expect(fired).not.toHaveBeenCalled();
    vi.advanceTimersByTime(2);
    expect(fired).toHaveBeenCalledTimes(1);
  });

  it('are set again when they come early, referenced only while the program wants it', () => {
    const references: boolean[] = [];
    let expire: () => void = () => {};
    const eventLoop = {
      setTimeout: (callback: () => void) => {
        expire = callback;
        references.push(true);
        const at = references.length - 1;
        const refer = (value: boolean) => () => {
          references[at] = value;
        };
        return { ref: refer(true), unref: refer(false) };
      },
      clearTimeout: () => {},
    } as unknown as ConstructorParameters<typeof SystemTimer>[2];
    const fired = vi.fn();
    const early = new SystemTimer(10e6, fired, eventLoop);
    expect(references).toEqual([false]);
    early.ref();
    expire();
    expect([fired.mock.calls.length, references]).toEqual([0, [true, true]]);
    early.unref();
    expire();
    expect([fired.mock.calls.length, references]).toEqual([0, [true, false, false]]);
    vi.advanceTimersByTime(10);
    expire();
    expect(fired).toHaveBeenCalledTimes(1);
  });

  it('cancels, also twice and from a timer that already fired', () => {
    const fired = vi.fn();
    const cancelled = timer(1e6, fired);
    cancelled.cancel();
    cancelled.cancel();
    vi.advanceTimersByTime(10);
    expect(fired).not.toHaveBeenCalled();
    const expired = timer(1e6, fired);
    expired.ref();
    expired.unref();
    vi.advanceTimersByTime(10);
    expired.cancel();
    expired.ref();
    expect(fired).toHaveBeenCalledTimes(1);
  });
});

describe('ManualClock', () => {
  it('stands still until it is advanced', () => {
    const clock = new ManualClock(500);
    expect(clock.nowNs()).toBe(500);
    clock.advance(1000);
    expect(clock.nowNs()).toBe(1500);
  });

  it('fires timers by deadline, then by age, each at its deadline', () => {
    const clock = new ManualClock();
    const seen: string[] = [];
    const note = (name: string) => () => seen.push(`${name}@${clock.nowNs()}`);
    clock.setTimer(30, note('c'));
    clock.setTimer(10, note('a'));
    clock.setTimer(30, note('d'));
    clock.setTimer(20, note('b'));
    clock.setTimer(31, note('late'));
    expect(clock.nextDeadlineNs).toBe(10);
    clock.advance(30);
    expect(seen).toEqual(['a@10', 'b@20', 'c@30', 'd@30']);
    expect(clock.pendingTimers).toBe(1);
  });

  it('runs timers that callbacks set within the same step', () => {
    const clock = new ManualClock();
    let ticks = 0;
    const tick = (): void => {
      ticks++;
      clock.setTimer(10, tick);
    };
    clock.setTimer(10, tick);
    clock.advance(95);
    expect(ticks).toBe(9);
    expect(clock.nowNs()).toBe(95);
  });

  it('forgets cancelled timers, also from inside a callback', () => {
    const clock = new ManualClock();
    const fired = vi.fn();
    const second = clock.setTimer(20, fired);
    clock.setTimer(10, () => second.cancel());
    second.ref();
    second.unref();
    clock.advance(100);
    second.cancel();
    expect(fired).not.toHaveBeenCalled();
    expect(clock.nextDeadlineNs).toBeUndefined();
  });

  it('rejects going back', () => {
    try {
      new ManualClock().advance(-1);
      expect.unreachable();
    } catch (error) {
      expect(isUcxError(error) && error.code).toBe('ERR_INVALID_PARAM');
    }
  });
});
