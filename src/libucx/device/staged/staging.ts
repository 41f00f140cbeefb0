/**
 * Staging in one worker of this engine: copies between fragments and memory of cards by the worker of the node's transports, a fragment for calls of C that
 * cannot wait, and tasks for the next progress.
 */

import { memcpy } from '../../../sys/index.ts';
import type { CopyDone, DeviceCopy, StagingPort } from '../../../ucp/staging/device-copier.ts';
import type { FragmentPool, FragmentUser } from '../../../ucp/staging/fragment-pool.ts';
import { Status } from '../../../ucs/type/status.ts';
import type { EngineWorker } from '../../engine/engine.ts';
import type { UcpMemory } from '../../mem/memory-handle.ts';

/** Longest wait inside a call of C: a card that takes longer has failed. */
const WAIT_NS_MAX = 20e9;

/** State that all transfers of device memory in one worker share. */
export class Staging implements StagingPort<UcpMemory> {
  readonly worker: EngineWorker;
  readonly fragments: FragmentPool<UcpMemory>;
  /** Fragments of {@link reserve}. */
  readonly #reserved: Set<UcpMemory> = new Set();
  /** The fragment of {@link copyNow}. */
  #ownFragment: UcpMemory | undefined;
  #isClosed = false;
  #tasks: (() => void)[] = [];
  #copying = 0;

  constructor(worker: EngineWorker) {
    this.worker = worker;
    this.fragments = worker.context.fragments;
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
    this.worker.promises.wake();
  }

  /** Runs the tasks that were scheduled before. If a callback of the application throws, the others run in the next call. */
  progress(): number {
    const count = this.#tasks.length;
    for (let i = 0; i < count; i++) this.#tasks.shift()!();
    return count;
  }

  /** Acquires a fragment of the pool: `run` is called during this call, or from a task. */
  acquire(run: FragmentUser<UcpMemory>): void {
    const fragment = this.fragments.tryAcquire();
    if (fragment !== undefined) run(fragment, Status.OK);
    else this.fragments.acquire((next, status) => this.#acquired(next, () => run(next, status)));
  }

  /** Allocates a fragment outside the pool: operations of other workers of the context, which may make no progress, cannot hold it. Freed with this object. */
  reserve(byteLength: number): UcpMemory {
    const fragment = this.worker.context.memory.map({ allocate: byteLength });
    this.#reserved.add(fragment);
    return fragment;
  }

  /** Releases a fragment. May be called inside calls of C. */
  release(fragment: UcpMemory): void {
    this.fragments.release(fragment);
  }

  /** Copies between memory of a card and a fragment. `done` is called from a task. */
  copy(isToCard: boolean, copy: DeviceCopy<UcpMemory>, done: CopyDone): void {
    this.startCopy(isToCard, copy, (status, error) => this.schedule(() => done(status, error)));
  }

  /** Like {@link copy}, but `done` may also be called inside calls of C: it may only record the result, or {@link schedule}. */
  startCopy(isToCard: boolean, copy: DeviceCopy<UcpMemory>, done: CopyDone): void {
    this.#copying += 1;
    const onNode = { ...copy, device: copy.device.node, fragment: copy.fragment.node };
    this.worker.node.copier.copy(isToCard, onNode, (status, error) => {
      this.#copying -= 1;
      done(status, error);
    });
  }

  /** Copies at once, in pieces, and returns when the bytes are copied: for calls of C without an available fragment. */
  copyNow(isToCard: boolean, device: UcpMemory, offset: number, address: number, byteLength: number): Status {
    for (let done = 0; done < byteLength; ) {
      this.#ownFragment ??= this.reserve(this.fragments.fragmentBytes);
      const fragment = this.#ownFragment;
      const bytes = Math.min(fragment.byteLength, byteLength - done);
      if (isToCard) memcpy(fragment.ucpAddress, address + done, bytes);
      let status: Status = Status.INPROGRESS;
      const copy = { device, offset: offset + done, fragment, fragmentOffset: 0, byteLength: bytes };
      this.startCopy(isToCard, copy, (ended) => {
        status = ended;
      });
      const ended = this.wait(() => status);
      if (status === Status.INPROGRESS) this.#abandon(fragment);
      if (ended < 0) return ended;
      if (!isToCard) memcpy(address + done, fragment.ucpAddress, bytes);
      done += bytes;
    }
    return Status.OK;
  }

  /** Waits for the end of a copy, in calls of C and of the application: DMA takes microseconds. @returns its status; TIMED_OUT if the card does not finish */
  wait(statusOf: () => Status): Status {
    const { context, node } = this.worker;
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
    for (const fragment of this.#reserved) this.worker.context.memory.unmap(fragment);
  }

  /** Called when a fragment is available late. A worker that is closed meanwhile runs no more tasks. */
  #acquired(fragment: UcpMemory | undefined, task: () => void): void {
    if (!this.#isClosed) this.schedule(task);
    else if (fragment !== undefined) this.release(fragment);
  }

  /** Never uses a fragment again: a card that takes too long may still write to it. The context frees it. */
  #abandon(fragment: UcpMemory): void {
    this.#reserved.delete(fragment);
    this.#ownFragment = undefined;
  }
}
