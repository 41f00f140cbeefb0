/** The implementation of a context that all engines share: its workers, and closing. */

import { mergeStats, type StatsNode } from '../../ucs/stats/stats-node.ts';
import { closedError } from '../../ucs/type/error.ts';
import { showAs } from '../../ucs/type/inspect.ts';
import { THREAD_BOUND } from '../../ucs/type/thread-bound.ts';
import type { MetricsRegistry } from '../contract/context.ts';
import type { Engine } from '../contract/explanation.ts';
import type { MemoryHandle } from '../contract/memory.ts';
import type { ContextSnapshot } from '../contract/snapshot.ts';
import type { Worker, WorkerOptions } from '../contract/worker.ts';
import { addToRegistry } from '../snapshot/metrics.ts';

/** A context that can be closed. */
export abstract class ClosableContext<W extends Worker = Worker> {
  readonly thread: symbol = THREAD_BOUND;
  abstract readonly engine: Engine;
  abstract readonly emulated: boolean;
  /** Open workers. */
  protected readonly workers: Set<W> = new Set();
  /** Set by {@link shutDown} when nothing can be created from the context any more. */
  protected isClosed = false;
  #closedWorkers: StatsNode | undefined = undefined;
  /** Functions that each remove this context from a metrics registry. */
  readonly #measured: (() => void)[] = [];
  #closing: Promise<void> | undefined = undefined;

  get closed(): boolean {
    return this.isClosed;
  }

  abstract snapshot(): ContextSnapshot;

  abstract packRkey(handle: MemoryHandle): Uint8Array;

  /** A key for endpoints of its workers to themselves: it permits every access, regardless of the protection for peers. */
  abstract packOwnRkey(handle: MemoryHandle): Uint8Array;

  protected abstract newWorker(options: WorkerOptions): W;

  /** Closes the context, after its workers; called once. */
  protected abstract shutDown(): Promise<void>;

  worker(options: WorkerOptions = {}): W {
    this.checkOpen();
    const worker = this.newWorker(options);
    this.workers.add(worker);
    return worker;
  }

  metrics(registry: MetricsRegistry): void {
    this.checkOpen();
    this.#measured.push(addToRegistry(registry, this));
  }

  close(): Promise<void> {
    this.#closing ??= this.#close();
    return this.#closing;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.close();
  }

  /** Removes a closed worker; its counters stay in the statistics. */
  forget(worker: W): void {
    this.workers.delete(worker);
    const left = { ...worker.stats(), name: 'closed' };
    this.#closedWorkers = this.#closedWorkers === undefined ? left : mergeStats(this.#closedWorkers, left);
  }

  /** Statistics of the open workers, and the sums of the closed ones. */
  protected workerStats(): StatsNode[] {
    const open = [...this.workers].map((worker) => worker.stats());
    return this.#closedWorkers === undefined ? open : [...open, this.#closedWorkers];
  }

  /** @throws UcxError ERR_CLOSED */
  protected checkOpen(): void {
    if (this.isClosed) throw closedError('context');
  }

  async #close(): Promise<void> {
    for (const worker of this.workers) await worker.close();
    for (const end of this.#measured.splice(0)) end();
    await this.shutDown();
  }
}

showAs(ClosableContext, 'Context', ({ engine, emulated, closed }) => ({
  engine: `${engine.name} ${engine.version}`,
  cards: emulated ? 'emulated' : 'real',
  state: closed ? 'closed' : 'open',
}));
