/** Timing for benchmarks: medians of repeated runs, and the line format of the results. */

/** One measured value against its reference or its bound. */
export interface Result {
  readonly name: string;
  readonly value: string;
  /** Ratio to the reference of the same run, or the used share of the bound. */
  readonly ratio: number | undefined;
  /** The target as the issue states it. */
  readonly target: string;
  /** Undefined for a value that is measured without a target. */
  readonly met: boolean | undefined;
}

/** Nanoseconds that `run` takes. */
export function elapsedNs(run: () => void): number {
  const begin = process.hrtime.bigint();
  run();
  return Number(process.hrtime.bigint() - begin);
}

/** The median of numbers. */
export function median(values: readonly number[]): number {
  const sorted = [...values].sort((left, right) => left - right);
  return sorted[sorted.length >>> 1]!;
}

/** Runs `run` in `rounds` rounds of `count` calls and returns the median time of one call in nanoseconds. */
export function medianPerCallNs(rounds: number, count: number, run: () => void): number {
  const times: number[] = [];
  for (let round = 0; round < rounds; round++) {
    const ns = elapsedNs(() => {
      for (let i = 0; i < count; i++) run();
    });
    times.push(ns / count);
  }
  return median(times);
}

/** A result as one line. */
export function formatResult({ name, value, ratio, target, met }: Result): string {
  const verdict = met === undefined ? '' : met ? 'met' : 'MISSED';
  const shown = ratio === undefined ? '' : `ratio ${ratio.toFixed(2)}`;
  return `${name.padEnd(34)} ${value.padEnd(30)} ${shown.padEnd(12)} target ${target.padEnd(14)} ${verdict}`.trimEnd();
}
