/** Windows in flight: their order and number, fragments that come late, and how a pipeline ends. */

import { describe, expect, it } from 'vitest';
import { Status } from '../../ucs/type/status.ts';
import type { CopyDone } from './device-copier.ts';
import type { FragmentUser } from './fragment-pool.ts';
import { type StagedWindow, WindowPipeline } from './transfer.ts';

/** Steps that end when the test ends them, and their recorded calls. */
class Steps {
  readonly acquiring: FragmentUser<number>[] = [];
  readonly filling: [StagedWindow<number>, CopyDone][] = [];
  readonly draining: [StagedWindow<number>, CopyDone][] = [];
  readonly released: number[] = [];
  readonly ends: [Status, unknown][] = [];

  acquire(run: FragmentUser<number>): void {
    this.acquiring.push(run);
  }

  fill(window: StagedWindow<number>, done: CopyDone): void {
    this.filling.push([window, done]);
  }

  drain(window: StagedWindow<number>, done: CopyDone): void {
    this.draining.push([window, done]);
  }

  release(fragment: number): void {
    this.released.push(fragment);
  }

  ended(status: Status, error: unknown): void {
    this.ends.push([status, error]);
  }
}

const WINDOW = { windowBytes: 10, depth: 2 };

describe('a window pipeline', () => {
  it('has so many windows in flight, in order, and ends with the last', () => {
    const steps = new Steps();
    const pipeline = new WindowPipeline(steps, [5, 25], WINDOW);
    pipeline.advance();
    expect(steps.acquiring.length).toBe(2);
    steps.acquiring[0]!(100, Status.OK);
    steps.acquiring[1]!(101, Status.OK);
    const windows = steps.filling.map(([{ from, byteLength }]) => [from, byteLength]);
    expect(windows).toEqual([
      [5, 10],
      [15, 10],
    ]);
    steps.filling[1]![1](Status.OK);
    steps.draining[0]![1](Status.OK);
    expect([steps.released, steps.acquiring.length]).toEqual([[101], 3]);
    steps.acquiring[2]!(101, Status.OK);
    expect(steps.filling[2]![0]).toEqual({ fragment: 101, from: 25, byteLength: 5 });
    steps.filling[2]![1](Status.OK);
    steps.draining[1]![1](Status.OK);
    expect([steps.acquiring.length, steps.ends]).toEqual([3, []]);
    steps.filling[0]![1](Status.OK);
    steps.draining[2]![1](Status.OK);
    expect([steps.released, steps.ends]).toEqual([[101, 101, 100], [[Status.OK, undefined]]]);
  });

  it('begins more windows when its depth grows', () => {
    const steps = new Steps();
    const pipeline = new WindowPipeline(steps, [0, 100], WINDOW);
    pipeline.advance();
    pipeline.depth = 5;
    pipeline.advance();
    expect(steps.acquiring.length).toBe(5);
  });

  it('goes through any number of windows that end at once, without recursion', () => {
    const steps = new Steps();
    steps.acquire = (run) => run(1, Status.OK);
    steps.fill = (_window, done) => done(Status.OK);
    steps.drain = (_window, done) => done(Status.OK);
    new WindowPipeline(steps, [0, 200_000], { windowBytes: 1, depth: 1 }).advance();
    expect([steps.released.length, steps.ends.length]).toEqual([200_000, 1]);
  });

  it('ends with the first failure, when nothing is in flight, and gives late fragments back', () => {
    const steps = new Steps();
    const pipeline = new WindowPipeline(steps, [0, 100], { ...WINDOW, depth: 3 });
    pipeline.advance();
    steps.acquiring[0]!(100, Status.OK);
    steps.acquiring[1]!(101, Status.OK);
    const cause = new Error('a card');
    steps.filling[0]![1](Status.IO_ERROR, cause);
    expect(steps.ends).toEqual([]);
    // Filled after the failure: it goes no further.
    steps.filling[1]![1](Status.OK);
    expect([steps.draining, steps.ends]).toEqual([[], [[Status.IO_ERROR, cause]]]);
    steps.acquiring[2]!(102, Status.OK);
    pipeline.stop(Status.CANCELED);
    expect([steps.released, steps.ends.length, steps.filling.length]).toEqual([[100, 101, 102], 1, 2]);
  });

  it('ends with the refusal of a fragment', () => {
    const steps = new Steps();
    const pipeline = new WindowPipeline(steps, [0, 100], { ...WINDOW, depth: 1 });
    pipeline.advance();
    steps.acquiring[0]!(undefined, Status.NO_MEMORY);
    expect([steps.released, steps.ends]).toEqual([[], [[Status.NO_MEMORY, undefined]]]);
  });

  it('can be stopped without a failure', () => {
    const steps = new Steps();
    const pipeline = new WindowPipeline(steps, [0, 100], WINDOW);
    pipeline.advance();
    pipeline.stop(Status.OK);
    expect(steps.ends).toEqual([[Status.OK, undefined]]);
  });
});
