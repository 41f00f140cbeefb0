/** Time as a parameter: the interface `Clock`, the system clock and a clock for tests. A clock counts nanoseconds from an arbitrary origin. */

import { performance } from 'node:perf_hooks';
import { invalidParam } from '../type/error.ts';

/** A callback that runs once, later. */
export interface Timer {
  /** Cancels the callback. Idempotent; no effect after the callback ran. */
  cancel(): void;
  /** Keeps the process alive until the callback has run. */
  ref(): void;
  /** Lets the process end before the callback has run: the default of a new timer. */
  unref(): void;
}

/** A source of time. */
export interface Clock {
  /** Monotonic time in nanoseconds since the clock's origin: an integer. Exact below 2^53 (104 days), then in steps of 2 ns. */
  nowNs(): number;
  /**
   * Runs `callback` once, not before `delayNs` nanoseconds have passed.
   * @param delayNs 0 or more; fractions are rounded up to the resolution of the clock
   * @throws UcxError ERR_INVALID_PARAM if `delayNs` is negative or not finite
   */
  setTimer(delayNs: number, callback: () => void): Timer;
}

const NS_PER_MS = 1e6;
/** The longest delay of setTimeout (Node: larger values become 1 ms). */
const MAX_TIMEOUT_MS = 2 ** 31 - 1;

function checkDelay(delayNs: number): void {
  if (!(delayNs >= 0 && delayNs < Infinity)) throw invalidParam('delayNs', 'must be finite and not negative', delayNs);
}

/** Number of reading pairs in {@link calibrateOriginNs}; the closest pair is used. */
const CALIBRATION_READINGS = 32;

/**
 * CLOCK_MONOTONIC at the zero of this thread's `performance.now()`, which differs between worker threads. Accurate to the shortest time between two readings,
 * well below a microsecond.
 */
function calibrateOriginNs(): number {
  let originNs = 0;
  let closestNs = Infinity;
  for (let reading = 0; reading < CALIBRATION_READINGS; reading++) {
    const beforeNs = performance.now() * NS_PER_MS;
    const monotonicNs = Number(process.hrtime.bigint());
    const gapNs = performance.now() * NS_PER_MS - beforeNs;
    if (gapNs >= closestNs) continue;
    closestNs = gapNs;
    originNs = monotonicNs - beforeNs - gapNs / 2;
  }
  return originNs;
}

/** Time since 1970 in milliseconds, with microseconds as decimals: for log records only. All other code receives a {@link Clock}. */
export function wallClockMs(): number {
  return performance.timeOrigin + performance.now();
}

/**
 * Determined once: afterwards `performance.now()` costs a fraction of `process.hrtime.bigint()`, which makes a BigInt. `performance` is imported, because the
 * global one is a getter.
 */
const ORIGIN_NS: number = calibrateOriginNs();

function systemNowNs(): number {
  return Math.round(ORIGIN_NS + performance.now() * NS_PER_MS);
}

/** The timers of an event loop. */
type EventLoop = Pick<typeof globalThis, 'setTimeout' | 'clearTimeout'>;

/** The timer functions that Node.js has when this module is loaded: a test runner that fakes timers later must not stop sleeps that keep the process alive. */
const NODE: EventLoop = { setTimeout: globalThis.setTimeout, clearTimeout: globalThis.clearTimeout };

/** A timer of the event loop that never fires early and has no maximum delay. */
export class SystemTimer implements Timer {
  readonly #eventLoop: EventLoop;
  readonly #deadlineNs: number;
  readonly #callback: () => void;
  #handle: NodeJS.Timeout | undefined;
  #referenced = false;

  constructor(delayNs: number, callback: () => void, eventLoop: EventLoop = NODE) {
    this.#eventLoop = eventLoop;
    this.#deadlineNs = systemNowNs() + delayNs;
    this.#callback = callback;
    this.#handle = undefined;
    this.#arm(delayNs);
  }

  cancel(): void {
    this.#eventLoop.clearTimeout(this.#handle);
    this.#handle = undefined;
  }

  ref(): void {
    this.#referenced = true;
    this.#handle?.ref();
  }

  unref(): void {
    this.#referenced = false;
    this.#handle?.unref();
  }

  #arm(delayNs: number): void {
    const delayMs = Math.min(Math.ceil(delayNs / NS_PER_MS), MAX_TIMEOUT_MS);
    this.#handle = this.#eventLoop.setTimeout(() => this.#expire(), delayMs);
    if (!this.#referenced) this.#handle.unref();
  }

  #expire(): void {
    const remainingNs = this.#deadlineNs - systemNowNs();
    if (remainingNs > 0) {
      this.#arm(remainingNs);
      return;
    }
    this.#handle = undefined;
    this.#callback();
  }
}

/**
 * CLOCK_MONOTONIC of Linux, nanoseconds since boot: threads and processes of one machine agree within a few microseconds. Timers run on the
 * event loop of the thread with millisecond resolution and are unref'ed.
 */
export const systemClock: Clock = {
  nowNs: systemNowNs,
  setTimer(delayNs, callback) {
    checkDelay(delayNs);
    return new SystemTimer(delayNs, callback);
  },
};

class ManualTimer implements Timer {
  readonly deadlineNs: number;
  readonly callback: () => void;
  readonly #forget: (timer: ManualTimer) => void;

  constructor(deadlineNs: number, callback: () => void, forget: (timer: ManualTimer) => void) {
    this.deadlineNs = deadlineNs;
    this.callback = callback;
    this.#forget = forget;
  }

  cancel(): void {
    this.#forget(this);
  }

  ref(): void {}

  unref(): void {}
}

/** A clock that advances only by {@link ManualClock.advance}: for tests and simulations. */
export class ManualClock implements Clock {
  #nowNs: number;
  /** Sorted by deadline, then by age. */
  readonly #timers: ManualTimer[] = [];

  /** @param startNs initial value of `nowNs` */
  constructor(startNs = 0) {
    this.#nowNs = startNs;
  }

  /** The number of timers that have neither fired nor been cancelled. */
  get pendingTimers(): number {
    return this.#timers.length;
  }

  /** The deadline of the next timer; undefined if there is none. */
  get nextDeadlineNs(): number | undefined {
    return this.#timers[0]?.deadlineNs;
  }

  nowNs(): number {
    return this.#nowNs;
  }

  setTimer(delayNs: number, callback: () => void): Timer {
    checkDelay(delayNs);
    const timer = new ManualTimer(this.#nowNs + Math.ceil(delayNs), callback, (gone) => this.#forget(gone));
    let index = this.#timers.length;
    while (index > 0 && this.#timers[index - 1]!.deadlineNs > timer.deadlineNs) index--;
    this.#timers.splice(index, 0, timer);
    return timer;
  }

  /**
   * Advances the time and runs the timers that become due, in order of deadline and then of age, each at its deadline. Timers
   * that a callback sets also run if they become due within the same step.
   * @param ns 0 or more nanoseconds
   */
  advance(ns: number): void {
    checkDelay(ns);
    const targetNs = this.#nowNs + ns;
    for (;;) {
      const timer = this.#timers[0];
      if (timer === undefined || timer.deadlineNs > targetNs) break;
      this.#timers.shift();
      if (timer.deadlineNs > this.#nowNs) this.#nowNs = timer.deadlineNs;
      timer.callback();
    }
    if (targetNs > this.#nowNs) this.#nowNs = targetNs;
  }

  #forget(timer: ManualTimer): void {
    const index = this.#timers.indexOf(timer);
    if (index >= 0) this.#timers.splice(index, 1);
  }
}
