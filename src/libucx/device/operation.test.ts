/** Operations made of steps and waits: how they start, end and fail, without libucp. */

import { describe, expect, it, vi } from 'vitest';
import type { Request, RequestParams } from '../../api/contract/request.ts';
import { FragmentPool } from '../../api/staging/fragment-pool.ts';
import { statusError } from '../../ucs/type/error.ts';
import { Status } from '../../ucs/type/status.ts';
import type { EngineEndpoint } from '../engine/engine.ts';
import type { WorkerCore } from '../engine/worker-core.ts';
import type { UcpMemory } from '../mem/memory-handle.ts';
import type { UcpRequest } from '../request/request.ts';
import { DeviceFlush, DeviceOperation, OperationTracker } from './operation.ts';
import { CardSteps, type StepStart } from './steps.ts';

function makeTracker(): OperationTracker {
  const limits = { fragmentBytes: 4096, countMax: 1 };
  const fragments = new FragmentPool(() => ({}) as UcpMemory, vi.fn(), limits);
  const worker = { context: { fragments }, promises: { wake: () => {} } } as unknown as WorkerCore;
  return new OperationTracker(new CardSteps(worker));
}

/** A step that the test ends. */
class Step {
  readonly wasFenced: boolean[] = [];
  freed = 0;
  #callback: RequestParams['callback'];

  start(endpoint: EngineEndpoint, params: RequestParams): Request {
    this.wasFenced.push(endpoint.isFenced);
    this.#callback = params.callback;
    return {} as Request;
  }

  end(status: Status): void {
    const request = { error: undefined, free: () => void this.freed++ } as unknown as Request;
    this.#callback?.(request, status);
  }
}

/** An operation of the given steps, and of one wait. */
class Steps extends DeviceOperation {
  endWait = (): void => {};
  readonly #starts: readonly StepStart[];
  readonly #waits: boolean;

  constructor(tracker: OperationTracker, endpoint: EngineEndpoint, starts: readonly StepStart[], waits = false) {
    super(tracker, endpoint, { end: (status: Status) => void ends.push(status) } as unknown as UcpRequest);
    this.#starts = starts;
    this.#waits = waits;
  }

  protected override begin(): void {
    for (const start of this.#starts) this.run(start);
    if (this.#waits) this.endWait = this.wait(() => void ends.push('waited'));
  }
}

const ends: (Status | 'waited')[] = [];

function makeEndpoint(): EngineEndpoint {
  ends.length = 0;
  return { unconfirmed: 0, isFenced: false } as unknown as EngineEndpoint;
}

describe('an operation', () => {
  it('that ends while it starts leaves its request to the caller', () => {
    const tracker = makeTracker();
    const endpoint = makeEndpoint();
    const operation = new Steps(tracker, endpoint, [() => Status.OK]);
    operation.start();
    expect([operation.hasEnded, operation.failure, ends, endpoint.unconfirmed]).toEqual([true, Status.OK, [], 0]);
  });

  it('ends with its last step, whose request is freed, in a task', () => {
    const tracker = makeTracker();
    const endpoint = makeEndpoint();
    const step = new Step();
    const operation = new Steps(tracker, endpoint, [(params) => step.start(endpoint, params)]);
    operation.start();
    step.end(Status.OK);
    expect([operation.hasEnded, step.freed, tracker.isEmpty]).toEqual([false, 0, false]);
    tracker.staging.progress();
    expect([ends, step.freed, tracker.isEmpty]).toEqual([[Status.OK], 1, true]);
  });

  it('starts a step again until a request is free, beyond barriers of later fences', () => {
    const tracker = makeTracker();
    const endpoint = makeEndpoint();
    const step = new Step();
    let attempts = 0;
    const operation = new Steps(tracker, endpoint, [
      (params) => (++attempts < 3 ? Status.NO_RESOURCE : step.start(endpoint, params)),
    ]);
    operation.start();
    endpoint.isFenced = true;
    for (let i = 0; i < 4; i++) tracker.staging.progress();
    expect([attempts, step.wasFenced, endpoint.isFenced]).toEqual([3, [false], true]);
    step.end(Status.OK);
    tracker.staging.progress();
    expect(ends).toEqual([Status.OK]);
  });

  it('fails with its first failure, starts nothing more, and waits for steps in flight but for nothing else', () => {
    const tracker = makeTracker();
    const endpoint = makeEndpoint();
    const step = new Step();
    let starts = 0;
    const busy: StepStart = () => {
      starts += 1;
      return Status.NO_RESOURCE;
    };
    const operation = new Steps(tracker, endpoint, [(params) => step.start(endpoint, params), busy], true);
    operation.start();
    operation.abort(Status.CANCELED);
    for (let i = 0; i < 3; i++) tracker.staging.progress();
    expect([starts, ends]).toEqual([1, []]);
    step.end(Status.IO_ERROR);
    tracker.staging.progress();
    operation.endWait();
    expect([ends, operation.failure]).toEqual([[Status.CANCELED], Status.CANCELED]);
  });

  it('takes the status of an exception', () => {
    const tracker = makeTracker();
    const failing: StepStart = () => {
      throw statusError(Status.NO_MEMORY, 'start');
    };
    const operation = new Steps(tracker, makeEndpoint(), [failing]);
    operation.start();
    expect([operation.hasEnded, operation.failure]).toEqual([true, Status.NO_MEMORY]);
  });

  it('is waited for by a flush, which then runs its parts', () => {
    const tracker = makeTracker();
    const endpoint = makeEndpoint();
    const operation = new Steps(tracker, endpoint, [], true);
    operation.start();
    let flushes = 0;
    const part: StepStart = () => {
      flushes += 1;
      return Status.OK;
    };
    const flush = new DeviceFlush(tracker, endpoint, undefined, [part, part]);
    flush.start();
    tracker.staging.progress();
    expect([flushes, flush.hasEnded]).toEqual([0, false]);
    operation.endWait();
    tracker.staging.progress();
    expect([flushes, flush.hasEnded, ends]).toEqual([2, true, ['waited', Status.OK]]);
    // As one that is deferred behind a barrier which has just ended.
    let waited = 0;
    flush.addWaiter(() => void waited++);
    tracker.staging.progress();
    expect(waited).toBe(1);
  });
});
