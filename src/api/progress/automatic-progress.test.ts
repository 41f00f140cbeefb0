import { describe, expect, it } from 'vitest';
import { ManualClock } from '../../ucs/sys/clock.ts';
import { AutomaticProgress } from './automatic-progress.ts';
import type { Progressable } from './progressable.ts';

const SPIN_NS = 20e3;

/** A worker with a number of things to do, each of which takes a time. */
class FakeWorker implements Progressable {
  readonly clock: ManualClock = new ManualClock(1e9);
  readonly automatic: AutomaticProgress;
  readonly isInProgress = false;
  progressCalls = 0;
  left = 0;
  workNs = 1000;
  isDriven = false;
  signals = 0;
  onWork: () => void = () => {};
  readonly sleepers: Set<() => void> = new Set();

  constructor() {
    this.automatic = new AutomaticProgress(this, this.clock, SPIN_NS, () => this.isDriven);
  }

  progress(): number {
    this.progressCalls += 1;
    this.clock.advance(this.workNs);
    if (this.left === 0) return 0;
    this.left -= 1;
    this.onWork();
    return 1;
  }

  sleepOn(wake: () => void): void {
    this.sleepers.add(wake);
  }

  signal(): void {
    this.signals += 1;
  }

  /** Work arrives, and the transport tells. */
  arrive(count: number): void {
    this.left += count;
    for (const wake of this.sleepers) wake();
    this.sleepers.clear();
  }
}

async function turns(count: number): Promise<void> {
  for (let turn = 0; turn < count; turn++) await new Promise(setImmediate);
}

describe('automatic progress', () => {
  it('begins when there may be work, in a turn of the event loop', async () => {
    const worker = new FakeWorker();
    worker.left = 3;
    worker.automatic.look();
    await turns(5);
    expect(worker.progressCalls).toBe(0);
    worker.automatic.begin();
    expect(worker.progressCalls).toBe(0);
    await turns(5);
    expect(worker.left).toBe(0);
    worker.automatic.close();
  });

  it('sleeps when nothing was to do for the time of polling, until the next event', async () => {
    const worker = new FakeWorker();
    worker.automatic.begin();
    await turns(100);
    expect(worker.sleepers.size).toBe(1);
    const calls = worker.progressCalls;
    await turns(100);
    expect(worker.progressCalls).toBe(calls);
    worker.arrive(2);
    await turns(1);
    expect(worker.left).toBe(0);
    expect(worker.sleepers.size).toBe(0);
    await turns(100);
    expect(worker.sleepers.size).toBe(1);
    worker.automatic.close();
  });

  it('lets the event loop run while there is always work', async () => {
    const worker = new FakeWorker();
    worker.left = Number.POSITIVE_INFINITY;
    worker.automatic.begin();
    await turns(10);
    // A call takes 1 us, and a turn at most 1 ms.
    expect(worker.progressCalls).toBeGreaterThan(1000);
    expect(worker.progressCalls).toBeLessThanOrEqual(11_000);
    worker.automatic.close();
  });

  it('leaves progress to a program that polls, and to awaited operations', async () => {
    const worker = new FakeWorker();
    worker.automatic.begin();
    for (let turn = 1; turn <= 20; turn++) {
      worker.progress();
      await turns(1);
      expect(worker.progressCalls).toBe(turn);
    }
    worker.isDriven = true;
    await turns(20);
    expect(worker.progressCalls).toBe(20);
    worker.isDriven = false;
    worker.left = 1;
    worker.automatic.look();
    await turns(5);
    expect(worker.left).toBe(0);
    worker.automatic.close();
  });

  it('tells a program that waits for an event', async () => {
    const worker = new FakeWorker();
    worker.automatic.begin();
    await turns(100);
    expect(worker.signals).toBe(0);
    worker.arrive(3);
    await turns(5);
    expect(worker.signals).toBe(1);
    worker.automatic.close();
  });

  it('ends with the worker, also in a callback', async () => {
    const worker = new FakeWorker();
    worker.automatic.begin();
    worker.automatic.close();
    worker.automatic.begin();
    worker.left = 1;
    await turns(5);
    expect(worker.progressCalls).toBe(0);
    const other = new FakeWorker();
    other.left = Number.POSITIVE_INFINITY;
    other.onWork = () => other.automatic.close();
    other.automatic.begin();
    await turns(5);
    expect(other.progressCalls).toBe(1);
    expect(other.sleepers.size).toBe(0);
  });

  it('keeps the process alive for a number of turns only, and continues', async () => {
    const worker = new FakeWorker();
    worker.left = Number.POSITIVE_INFINITY;
    worker.automatic.begin();
    const immediates = (): number => process.getActiveResourcesInfo().filter((kind) => kind === 'Immediate').length;
    while (immediates() > 0) await new Promise((resolve) => setTimeout(resolve));
    const calls = worker.progressCalls;
    while (worker.progressCalls < calls + 10_000) await new Promise((resolve) => setTimeout(resolve));
    worker.left = 0;
    while (worker.sleepers.size === 0) await new Promise((resolve) => setTimeout(resolve));
    expect(worker.sleepers.size).toBe(1);
    worker.automatic.close();
  });
});
