/**
 * Counts and times iterations: averages since the last report and of the whole run, and a percentile of single iterations. Ends a warm-up after the minimum
 * time, as soon as the rate is steady. Also decides after how many polls a side yields its processor: few if the other side needs this processor; otherwise
 * the number grows.
 */

import type { Clock } from '../../ucs/sys/clock.ts';

/** Number of latest iterations for the percentiles, as in ucx_perftest. */
const SAMPLES_MAX = 2048;
/** In runs up to this length every iteration is timed, in longer runs every 64th: reading the clock twice costs as much as two puts of 8 bytes. */
const DENSE_ITERATIONS_MAX = 10_000;
const SPARSE_MASK = 63;
const CLOCK_READINGS = 1001;
const NS_PER_SECOND = 1e9;

/** Percentiles of the band around the median. */
export const BAND: readonly [number, number] = [10, 90];
const MEDIAN = 50;

/** Results of a run so far. Times in nanoseconds of one message, one way; rates per second. */
export interface Measurement {
  readonly iterations: number;
  /** The requested percentile. */
  readonly percentileNs: number;
  /** The median, and the percentiles between which most iterations lie: see {@link BAND}. */
  readonly medianNs: number;
  readonly lowNs: number;
  readonly highNs: number;
  /** Since the last report. */
  readonly averageNs: number;
  readonly overallNs: number;
  readonly averageBytes: number;
  readonly overallBytes: number;
  readonly averageMessages: number;
  readonly overallMessages: number;
}

/** Parameters of a measurement. */
export interface MeterOptions {
  readonly clock: Clock;
  readonly iterations: number;
  readonly bytesPerIteration: number;
  /** 2 if an iteration is a message in each direction. */
  readonly messagesPerIteration: number;
  /** 0 to 100. */
  readonly percentile: number;
}

/** The measurement of one run. */
export class Meter {
  iterations = 0;
  readonly #clock: Clock;
  readonly #options: MeterOptions;
  readonly #mask: number;
  readonly #clockCostNs: number;
  readonly #samples: Float64Array = new Float64Array(SAMPLES_MAX);
  #sampleCount = 0;
  #sampleBeginNs = 0;
  #beginNs = 0;
  #lastNs = 0;
  #lastIterations = 0;
  #endNs = 0;

  constructor(options: MeterOptions) {
    this.#clock = options.clock;
    this.#options = options;
    this.#mask = options.iterations <= DENSE_ITERATIONS_MAX ? 0 : SPARSE_MASK;
    this.#clockCostNs = clockCostNs(options.clock);
  }

  /** Starts the clock. */
  start(): void {
    this.iterations = 0;
    this.#sampleCount = 0;
    this.#lastIterations = 0;
    this.#beginNs = this.#clock.nowNs();
    this.#lastNs = this.#beginNs;
    this.#sampleBeginNs = this.#mask === 0 ? this.#beginNs : 0;
  }

  /** Counts one iteration. */
  count(): void {
    const iterations = this.iterations + 1;
    this.iterations = iterations;
    const phase = iterations & this.#mask;
    if (phase <= 1) this.#sample(phase);
  }

  /** Excludes the current iteration, which was interrupted. */
  interrupt(): void {
    this.#sampleBeginNs = 0;
  }

  /** Stops the clock when all data has reached the other side. */
  stop(): void {
    this.#endNs = this.#clock.nowNs();
  }

  /** Time since the last report; 0 before the clock has started. */
  get sinceReportNs(): number {
    return this.#beginNs === 0 ? 0 : this.#clock.nowNs() - this.#lastNs;
  }

  /** An intermediate report; the average of the next report begins here. */
  report(): Measurement {
    const now = this.#clock.nowNs();
    const measurement = this.#measure(now);
    this.#lastNs = now;
    this.#lastIterations = this.iterations;
    return measurement;
  }

  /** The report of the whole run, up to {@link stop}. */
  result(): Measurement {
    return this.#measure(this.#endNs);
  }

  #sample(phase: number): void {
    const now = this.#clock.nowNs();
    const isEnd = this.#mask === 0 || phase === 1;
    if (isEnd && this.#sampleBeginNs > 0) {
      this.#samples[this.#sampleCount % SAMPLES_MAX] = Math.max(0, now - this.#sampleBeginNs - this.#clockCostNs);
      this.#sampleCount += 1;
    }
    this.#sampleBeginNs = this.#mask === 0 || phase === 0 ? now : 0;
  }

  #measure(now: number): Measurement {
    const { bytesPerIteration, messagesPerIteration, percentile } = this.#options;
    const [moment, total] = [now - this.#lastNs, now - this.#beginNs];
    // No iterations since the last report: the values of the whole run are used.
    const isEmpty = this.iterations === this.#lastIterations;
    const [iterations, ns] = isEmpty ? [this.iterations, total] : [this.iterations - this.#lastIterations, moment];
    const samples = this.#samples.slice(0, Math.min(this.#sampleCount, SAMPLES_MAX)).sort();
    const sampleAt = (rank: number): number => percentileOfSorted(samples, rank) / messagesPerIteration;
    const perSecond = (count: number, time: number): number => (count * messagesPerIteration * NS_PER_SECOND) / time;
    return {
      iterations: this.iterations,
      percentileNs: sampleAt(percentile),
      medianNs: sampleAt(MEDIAN),
      lowNs: sampleAt(BAND[0]),
      highNs: sampleAt(BAND[1]),
      averageNs: ns / iterations / messagesPerIteration,
      overallNs: total / this.iterations / messagesPerIteration,
      averageBytes: perSecond(iterations * bytesPerIteration, ns),
      overallBytes: perSecond(this.iterations * bytesPerIteration, total),
      averageMessages: perSecond(iterations, ns),
      overallMessages: perSecond(this.iterations, total),
    };
  }
}

/** The `rank` percentile of the samples; 0 for none. */
export function percentileOf(samples: Float64Array, rank: number): number {
  return percentileOfSorted(samples.slice().sort(), rank);
}

function percentileOfSorted(sorted: Float64Array, rank: number): number {
  if (sorted.length === 0) return 0;
  return sorted[Math.min(sorted.length - 1, Math.floor((sorted.length * rank) / 100))]!;
}

/** Time for reading the clock once, which is included in each sample. */
function clockCostNs(clock: Clock): number {
  const costs = new Float64Array(CLOCK_READINGS);
  for (let i = 0; i < CLOCK_READINGS; i++) {
    const begin = clock.nowNs();
    costs[i] = clock.nowNs() - begin;
  }
  return percentileOf(costs, 50);
}

/** Duration of a round of the warm-up. */
export const ROUND_NS = 50e6;
/** Minimum and maximum duration of a warm-up. */
export const WARM_UP_NS_MIN = 200e6;
export const WARM_UP_NS_MAX = 2e9;
/** Relative difference in the time of an iteration below which two rounds count as equal. */
const TOLERANCE = 0.05;

/** Decides after every round of a warm-up whether another round follows. */
export class Steadiness {
  #totalNs = 0;
  #lastNs = 0;

  /**
   * @param iterationNs time of an iteration in the last round
   * @param iterations of that round
   * @returns iterations of the next round; 0 when the rate is steady, or time is over
   */
  nextRound(iterationNs: number, iterations: number): number {
    this.#totalNs += iterationNs * iterations;
    const isSteady = Math.abs(iterationNs - this.#lastNs) <= this.#lastNs * TOLERANCE;
    this.#lastNs = iterationNs;
    if (this.#totalNs >= WARM_UP_NS_MAX || (isSteady && this.#totalNs >= WARM_UP_NS_MIN)) return 0;
    return Math.max(1, Math.round(ROUND_NS / Math.max(1, iterationNs)));
  }
}

/**
 * Polls before a yield: initial, minimum and maximum number. A poll takes 30 to 50 ns; if each side has a processor, most waits are shorter than the initial
 * number.
 */
const POLLS_FIRST = 1024;
const POLLS_MIN = 16;
const POLLS_MAX = 8192;
/** Polls after a yield, to process messages that arrived during the yield: a message passes through several layers. */
const POLLS_OF_ARRIVAL = 2;

/** Poll budget of one side. */
export class SpinBudget {
  readonly #yieldProcessor: () => void;
  #pollsMax = POLLS_FIRST;
  #polls = 0;
  #hasYielded = false;

  /** @param yieldProcessor yields this processor to another program (sched_yield) */
  constructor(yieldProcessor: () => void) {
    this.#yieldProcessor = yieldProcessor;
  }

  /** Counts one poll without a result. */
  spend(): void {
    this.#polls += 1;
    if (this.#polls < this.#pollsMax) return;
    this.#polls = 0;
    this.#hasYielded = true;
    this.#pollsMax = Math.min(POLLS_MAX, this.#pollsMax * 2);
    this.#yieldProcessor();
  }

  /** Ends a wait. A result immediately after a yield is attributed to the yield. */
  renew(): void {
    if (this.#hasYielded && this.#polls <= POLLS_OF_ARRIVAL) this.#pollsMax = Math.max(POLLS_MIN, this.#pollsMax >> 2);
    this.#polls = 0;
    this.#hasYielded = false;
  }
}
