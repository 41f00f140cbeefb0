/** The measurement of perftest: averages, rates and percentiles of times that are known. */

import { describe, expect, it } from 'vitest';
import { ManualClock } from '../../ucs/sys/clock.ts';
import { Meter, percentileOf } from './measure.ts';

const OPTIONS = { iterations: 100, bytesPerIteration: 1000, messagesPerIteration: 1, percentile: 50 };

function run(meter: Meter, clock: ManualClock, times: readonly number[]): void {
  for (const ns of times) {
    clock.advance(ns);
    meter.count();
  }
}

describe('Meter', () => {
  it('averages over all, and since the last report', () => {
    const clock = new ManualClock(1000);
    const meter = new Meter({ ...OPTIONS, clock });
    meter.start();
    run(meter, clock, [100, 100, 100, 100]);
    expect(meter.report()).toMatchObject({ iterations: 4, averageNs: 100, overallNs: 100, percentileNs: 100 });
    run(meter, clock, [300, 300]);
    meter.stop();
    const result = meter.result();
    expect(result).toMatchObject({ iterations: 6, averageNs: 300, percentileNs: 100 });
    expect(result.overallNs).toBeCloseTo(1000 / 6);
    expect(result.averageBytes).toBeCloseTo((1000 * 1e9) / 300);
    expect(result.overallBytes).toBeCloseTo((6 * 1000 * 1e9) / 1000);
    expect(result.overallMessages).toBeCloseTo(6e6);
  });

  it('halves what goes there and back', () => {
    const clock = new ManualClock(1000);
    const meter = new Meter({ ...OPTIONS, clock, messagesPerIteration: 2 });
    meter.start();
    run(meter, clock, [100, 100]);
    meter.stop();
    expect(meter.result()).toMatchObject({ averageNs: 50, overallNs: 50, percentileNs: 50, overallMessages: 2e7 });
    expect(meter.result().overallBytes).toBe(2e10);
  });

  it('counts the time until the clock stops', () => {
    const clock = new ManualClock(1000);
    const meter = new Meter({ ...OPTIONS, clock });
    meter.start();
    run(meter, clock, [100]);
    clock.advance(900);
    meter.stop();
    clock.advance(5000);
    expect(meter.result()).toMatchObject({ averageNs: 1000, overallNs: 1000, percentileNs: 100 });
  });

  it('leaves an iteration out that was interrupted', () => {
    const clock = new ManualClock(1000);
    const meter = new Meter({ ...OPTIONS, clock, percentile: 100 });
    meter.start();
    run(meter, clock, [100]);
    meter.interrupt();
    run(meter, clock, [9000, 100]);
    meter.stop();
    expect(meter.result().percentileNs).toBe(100);
  });

  it('times every 64th iteration of a long run', () => {
    const clock = new ManualClock(1000);
    const meter = new Meter({ ...OPTIONS, clock, iterations: 20_000, percentile: 100 });
    meter.start();
    const times = Array.from({ length: 256 }, (_, i) => (i % 64 === 0 ? 7 : 1000));
    run(meter, clock, times);
    meter.stop();
    expect(meter.result()).toMatchObject({ iterations: 256, percentileNs: 7 });
  });

  it('has nothing to report before it starts', () => {
    const clock = new ManualClock(5e9);
    const meter = new Meter({ ...OPTIONS, clock });
    run(meter, clock, [1e9]);
    expect(meter.sinceReportNs).toBe(0);
    meter.start();
    run(meter, clock, [100]);
    expect(meter.sinceReportNs).toBe(100);
    meter.report();
    expect(meter.sinceReportNs).toBe(0);
  });

  it('starts again', () => {
    const clock = new ManualClock(1000);
    const meter = new Meter({ ...OPTIONS, clock });
    meter.start();
    run(meter, clock, [500, 500]);
    meter.start();
    run(meter, clock, [100]);
    meter.stop();
    expect(meter.result()).toMatchObject({ iterations: 1, overallNs: 100, percentileNs: 100 });
  });

  it('has the whole run in a report without new iterations', () => {
    const clock = new ManualClock(1000);
    const meter = new Meter({ ...OPTIONS, clock });
    meter.start();
    run(meter, clock, [100, 300]);
    meter.report();
    clock.advance(200);
    expect(meter.report()).toMatchObject({ iterations: 2, averageNs: 300, overallNs: 300, averageMessages: 1e9 / 300 });
    run(meter, clock, [50]);
    expect(meter.report()).toMatchObject({ iterations: 3, averageNs: 50, overallNs: 650 / 3 });
  });

  it('has a percentile of the latest iterations, and a band around the median', () => {
    const clock = new ManualClock(1000);
    const meter = new Meter({ ...OPTIONS, clock, iterations: 10_000, percentile: 0 });
    meter.start();
    // The first are replaced, which are the shortest; each of the 10 000 is timed.
    run(meter, clock, Array<number>(100).fill(1));
    run(
      meter,
      clock,
      Array.from({ length: 2048 }, (_, i) => 1000 + (i % 100)),
    );
    meter.stop();
    const { percentileNs, lowNs, medianNs, highNs } = meter.result();
    expect([percentileNs, lowNs, medianNs, highNs]).toEqual(
      [1000, 1010, 1050, 1090].map((ns) => expect.closeTo(ns, -1)),
    );
    expect(percentileNs).toBe(1000);
  });

  it('leaves the time of reading the clock out', () => {
    const clock = new ManualClock(1000);
    const { nowNs } = clock;
    // Each reading takes 30 ns.
    const slow = Object.assign(Object.create(clock) as ManualClock, {
      nowNs: () => {
        clock.advance(30);
        return nowNs.call(clock);
      },
    });
    const meter = new Meter({ ...OPTIONS, clock: slow });
    meter.start();
    for (let i = 0; i < 5; i++) {
      clock.advance(100);
      meter.count();
    }
    meter.stop();
    expect(meter.result()).toMatchObject({ percentileNs: 100, lowNs: 100, highNs: 100 });
  });
});

describe('percentileOf', () => {
  it('is the sample at a rank', () => {
    const samples = Float64Array.from([4, 1, 3, 2]);
    expect([0, 25, 50, 75, 100].map((rank) => percentileOf(samples, rank))).toEqual([1, 2, 3, 4, 4]);
    expect([...samples]).toEqual([4, 1, 3, 2]);
    expect(percentileOf(new Float64Array(0), 50)).toBe(0);
  });
});
