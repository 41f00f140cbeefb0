/**
 * Staging of device memory in one worker: the fragments and copies of api/staging, tasks, which run in the next call of progress, because calls of libucp
 * are not permitted inside its callbacks; and synchronous copies for callbacks of libucp.
 */

import type { MemoryHandle } from '../../api/contract/memory.ts';
import type { Request, RequestParams } from '../../api/contract/request.ts';
import type { CopyDone, DeviceCopier, DeviceCopy } from '../../api/staging/device-copier.ts';
import type { FragmentPool, Fragments, FragmentUser } from '../../api/staging/fragment-pool.ts';
import { memcpy } from '../../sys/index.ts';
import { isUcxError } from '../../ucs/type/error.ts';
import { Status } from '../../ucs/type/status.ts';
import type { WorkerCore } from '../engine/worker-core.ts';
import type { UcpMemory } from '../mem/memory-handle.ts';

/** Time limit of a synchronous copy, in which C code waits: a card that takes longer has failed. */
const WAIT_NS_MAX = 20e9;

/** Starts a step of an operation: a call of libucp, of the native transports, or of this engine. */
export type StepStart = (params: RequestParams) => Status | Request;

/** Called once at the end of a step. `ended` is its request, undefined if it completed in its call. */
export type StepDone = (status: Status, error?: unknown, ended?: Request) => void;

/** Source and destination of a copy between device memory and an address. */
export interface CopyNow {
  readonly device: MemoryHandle;
  readonly offset: number;
  readonly address: number;
  readonly byteLength: number;
}

/** State shared by all transfers of device memory in one worker. */
export class CardSteps implements DeviceCopier, Fragments<UcpMemory> {
  readonly core: WorkerCore;
  readonly fragments: FragmentPool<UcpMemory>;
  /** The fragment of {@link copyNow}. Not from the pool, whose fragments other workers may hold without making progress. */
  #ownFragment: UcpMemory | undefined;
  #isClosed = false;
  #tasks: (() => void)[] = [];
  #copying = 0;

  constructor(core: WorkerCore) {
    this.core = core;
    this.fragments = core.context.fragments;
  }

  /** Whether there is work for {@link progress}. */
  get isDue(): boolean {
    return this.#tasks.length > 0;
  }

  /** Whether copies are in flight: the native worker has to make progress. */
  get isCopying(): boolean {
    return this.#copying > 0;
  }

  /** Schedules a task for the next progress, where every call is permitted. Callable from callbacks of C. */
  schedule(task: () => void): void {
    this.#tasks.push(task);
    this.core.promises.wake();
  }

  /** Runs the tasks scheduled before this call. If a callback of the application throws, the rest runs in the next call. */
  progress(): number {
    const count = this.#tasks.length;
    for (let i = 0; i < count; i++) this.#tasks.shift()!();
    return count;
  }

  /**
   * Runs a step. While the worker has no free request, every progress retries it. Its request is freed at the end.
   * @param done called during this call, or by a task
   * @returns false if the worker has no free request
   */
  run(start: StepStart, done: StepDone): boolean {
    // Callbacks of the native transports may also run inside callbacks of C.
    const callback = (ended: Request, status: Status): void => this.schedule(() => finish(ended, status, done));
    let started: Status | Request;
    try {
      started = start({ callback });
    } catch (error) {
      done(isUcxError(error) ? error.status : Status.IO_ERROR, error);
      return true;
    }
    if (started === Status.NO_RESOURCE) this.schedule(() => this.run(start, done));
    else if (typeof started === 'number') done(started);
    return started !== Status.NO_RESOURCE;
  }

  /** Acquires a fragment of the pool: `run` is called during this call, or by a task. */
  acquire(run: FragmentUser<UcpMemory>): void {
    const fragment = this.fragments.tryAcquire();
    if (fragment !== undefined) run(fragment, Status.OK);
    else this.fragments.acquire((next, status) => this.#acquired(next, () => run(next, status)));
  }

  /** Releases a fragment. Callable from callbacks of C. */
  release(fragment: UcpMemory): void {
    this.fragments.release(fragment);
  }

  /** Copies between device memory and host memory, given by their native handles. A task calls `done`. */
  copy(isToCard: boolean, copy: DeviceCopy, done: CopyDone): void {
    this.startCopy(isToCard, copy, (status, error) => this.schedule(() => done(status, error)));
  }

  /** Like {@link copy}, but `done` may also be called inside callbacks of C: it may only record the result, or {@link schedule} a task. */
  startCopy(isToCard: boolean, copy: DeviceCopy, done: CopyDone): void {
    this.#copying += 1;
    this.core.native.copier.copy(isToCard, copy, (status, error) => {
      this.#copying -= 1;
      done(status, error);
    });
  }

  /** Copies synchronously, in slices, for callbacks of C if no fragment is free. */
  copyNow(isToCard: boolean, { device, offset, address, byteLength }: CopyNow): Status {
    for (let done = 0; done < byteLength; ) {
      this.#ownFragment ??= this.core.context.memory.map({ allocate: this.fragments.fragmentBytes });
      const fragment = this.#ownFragment;
      const bytes = Math.min(fragment.byteLength, byteLength - done);
      if (isToCard) memcpy(fragment.ucpAddress, address + done, bytes);
      let status: Status = Status.INPROGRESS;
      const copy = { device, offset: offset + done, host: fragment.nativeHandle, hostOffset: 0, byteLength: bytes };
      this.startCopy(isToCard, copy, (ended) => {
        status = ended;
      });
      const ended = this.wait(() => status);
      // A slow card may still write to the fragment: it is not reused; the context frees it.
      if (status === Status.INPROGRESS) this.#ownFragment = undefined;
      if (ended < 0) return ended;
      if (!isToCard) memcpy(address + done, fragment.ucpAddress, bytes);
      done += bytes;
    }
    return Status.OK;
  }

  /** Waits for the end of a copy; a DMA takes microseconds. @returns its status; TIMED_OUT if the card does not finish */
  wait(statusOf: () => Status): Status {
    const { context, native } = this.core;
    const deadline = context.clock.nowNs() + WAIT_NS_MAX;
    while (statusOf() === Status.INPROGRESS) {
      native.progress();
      if (statusOf() === Status.INPROGRESS && context.clock.nowNs() > deadline) return Status.TIMED_OUT;
    }
    return statusOf();
  }

  /** Call this when no copies are in flight. */
  close(): void {
    this.#isClosed = true;
    if (this.#ownFragment !== undefined) this.core.context.memory.unmap(this.#ownFragment);
  }

  /** Called when a fragment becomes free later. A worker that was closed meanwhile runs no tasks. */
  #acquired(fragment: UcpMemory | undefined, task: () => void): void {
    if (!this.#isClosed) this.schedule(task);
    else if (fragment !== undefined) this.release(fragment);
  }
}

function finish(ended: Request, status: Status, done: StepDone): void {
  try {
    done(status, ended.error, ended);
  } finally {
    ended.free();
  }
}
