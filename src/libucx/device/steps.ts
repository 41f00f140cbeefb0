/**
 * Staging in one worker of this engine: the fragments and copies of api/staging, tasks for the next progress, because calls of libucp are not permitted
 * inside its callbacks, and copies that a callback of libucp waits for.
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

/** Longest wait inside a call of C: a card that takes longer has failed. */
const WAIT_NS_MAX = 20e9;

/** Starts a step of an operation: a call of libucp, of the node's transports, or of this engine. */
export type StepStart = (params: RequestParams) => Status | Request;

/** Called once at the end of a step, with its request unless it ended in its call. */
export type StepDone = (status: Status, error?: unknown, ended?: Request) => void;

/** The two sides of a copy between memory of a card and an address. */
export interface CopyNow {
  readonly device: MemoryHandle;
  readonly offset: number;
  readonly address: number;
  readonly byteLength: number;
}

/** State that all transfers of device memory in one worker share. */
export class CardSteps implements DeviceCopier, Fragments<UcpMemory> {
  readonly core: WorkerCore;
  readonly fragments: FragmentPool<UcpMemory>;
  /** The fragment of {@link copyNow}, outside the pool: operations of other workers of the context, which may make no progress, cannot hold it. */
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

  /** Whether copies are in flight: the worker of the node has to make progress. */
  get isCopying(): boolean {
    return this.#copying > 0;
  }

  /** Schedules a task for the next progress, where every call is permitted. May be called inside calls of C. */
  schedule(task: () => void): void {
    this.#tasks.push(task);
    this.core.promises.wake();
  }

  /** Runs the tasks that were scheduled before. If a callback of the application throws, the others run in the next call. */
  progress(): number {
    const count = this.#tasks.length;
    for (let i = 0; i < count; i++) this.#tasks.shift()!();
    return count;
  }

  /**
   * Runs a step. While the worker has no free request, every progress starts it again. Its request is freed at the end.
   * @param done called during this call, or from a task
   * @returns false if the worker has no free request
   */
  run(start: StepStart, done: StepDone): boolean {
    // Callbacks of the node's transports also run inside calls of C.
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

  /** Acquires a fragment of the pool: `run` is called during this call, or from a task. */
  acquire(run: FragmentUser<UcpMemory>): void {
    const fragment = this.fragments.tryAcquire();
    if (fragment !== undefined) run(fragment, Status.OK);
    else this.fragments.acquire((next, status) => this.#acquired(next, () => run(next, status)));
  }

  /** Releases a fragment. May be called inside calls of C. */
  release(fragment: UcpMemory): void {
    this.fragments.release(fragment);
  }

  /** Copies between memory of a card and host memory, given by their handles of the node's transports. `done` is called from a task. */
  copy(isToCard: boolean, copy: DeviceCopy, done: CopyDone): void {
    this.startCopy(isToCard, copy, (status, error) => this.schedule(() => done(status, error)));
  }

  /** Like {@link copy}, but `done` may also be called inside calls of C: it may only record the result, or {@link schedule}. */
  startCopy(isToCard: boolean, copy: DeviceCopy, done: CopyDone): void {
    this.#copying += 1;
    this.core.node.copier.copy(isToCard, copy, (status, error) => {
      this.#copying -= 1;
      done(status, error);
    });
  }

  /** Copies at once, in pieces, and returns when the bytes are copied: for calls of C without an available fragment. */
  copyNow(isToCard: boolean, { device, offset, address, byteLength }: CopyNow): Status {
    for (let done = 0; done < byteLength; ) {
      this.#ownFragment ??= this.core.context.memory.map({ allocate: this.fragments.fragmentBytes });
      const fragment = this.#ownFragment;
      const bytes = Math.min(fragment.byteLength, byteLength - done);
      if (isToCard) memcpy(fragment.ucpAddress, address + done, bytes);
      let status: Status = Status.INPROGRESS;
      const copy = { device, offset: offset + done, host: fragment.node, hostOffset: 0, byteLength: bytes };
      this.startCopy(isToCard, copy, (ended) => {
        status = ended;
      });
      const ended = this.wait(() => status);
      // A card that takes too long may still write to the fragment: it is not used again, and the context frees it.
      if (status === Status.INPROGRESS) this.#ownFragment = undefined;
      if (ended < 0) return ended;
      if (!isToCard) memcpy(address + done, fragment.ucpAddress, bytes);
      done += bytes;
    }
    return Status.OK;
  }

  /** Waits for the end of a copy, in calls of C and of the application: DMA takes microseconds. @returns its status; TIMED_OUT if the card does not finish */
  wait(statusOf: () => Status): Status {
    const { context, node } = this.core;
    const deadline = context.clock.nowNs() + WAIT_NS_MAX;
    while (statusOf() === Status.INPROGRESS) {
      node.progress();
      if (statusOf() === Status.INPROGRESS && context.clock.nowNs() > deadline) return Status.TIMED_OUT;
    }
    return statusOf();
  }

  /** Closes the staging when no copies are in flight. */
  close(): void {
    this.#isClosed = true;
    if (this.#ownFragment !== undefined) this.core.context.memory.unmap(this.#ownFragment);
  }

  /** Called when a fragment is available late. A worker that is closed meanwhile runs no more tasks. */
  #acquired(fragment: UcpMemory | undefined, task: () => void): void {
    if (!this.#isClosed) this.schedule(task);
    else if (fragment !== undefined) this.release(fragment);
  }
}

/** Ends a step whose request has ended. */
function finish(ended: Request, status: Status, done: StepDone): void {
  try {
    done(status, ended.error, ended);
  } finally {
    ended.free();
  }
}
