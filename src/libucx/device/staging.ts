/**
 * What the ways of memory of cards through host memory share in one worker: the fragments, the copies, a fragment for those who cannot wait for one, and what
 * is to be done outside of calls of C.
 */

import { allocateScratch, memcpy, type ScratchBlock } from '../../sys/index.ts';
import { Status } from '../../ucs/type/status.ts';
import type { EngineWorker } from '../engine/engine.ts';
import type { Fragment, Fragments } from '../mem/device-fragments.ts';
import type { UcpMemory } from '../mem/memory-handle.ts';
import { CardCopies, CardCopy } from './copies.ts';

/** Something to be done in the next progress of the worker, where anything may be called. */
export interface Task {
  run(): void;
}

const NOBODY = { copyEnded: (): void => {} };

/** What the ways share. */
export class Staging {
  readonly worker: EngineWorker;
  readonly fragments: Fragments;
  readonly copies: CardCopies;
  /** For the word of an atomic operation. */
  readonly word: ScratchBlock = allocateScratch(8);
  /** The fragment of {@link copyNow}. */
  #reserve: Fragment | undefined;
  #tasks: Task[] = [];

  constructor(worker: EngineWorker) {
    this.worker = worker;
    this.fragments = worker.context.fragments;
    this.copies = new CardCopies(worker);
  }

  /** There is something to do for {@link progress}. */
  get isDue(): boolean {
    return this.#tasks.length > 0 || this.copies.hasUnstarted;
  }

  /** Has a task run in the next progress. From anywhere, calls of C included. */
  schedule(task: Task): void {
    this.#tasks.push(task);
    this.worker.promises.wake();
  }

  /** Runs what was scheduled before. What a callback of the application throws leaves here, and the others run in the next turn. */
  progress(): number {
    this.copies.progress();
    const count = this.#tasks.length;
    for (let i = 0; i < count; i++) this.#tasks.shift()!.run();
    return count;
  }

  /** Copies at once, in pieces, and returns when the bytes are there: for calls of C that find no fragment. */
  copyNow(isToCard: boolean, memory: UcpMemory, offset: number, address: number, byteLength: number): Status {
    for (let done = 0; done < byteLength; ) {
      this.#reserve ??= this.fragments.reserve();
      const fragment = this.#reserve;
      const bytes = Math.min(fragment.byteLength, byteLength - done);
      if (isToCard) memcpy(fragment.address, address + done, bytes);
      const copy = new CardCopy(NOBODY, isToCard, [memory, offset + done], [fragment, 0], bytes);
      this.copies.start(copy);
      const status = this.copies.wait(copy);
      // A card may still write to the fragment that it has kept too long: nobody uses that one again.
      if (copy.status === Status.INPROGRESS) this.#reserve = undefined;
      if (status < 0) return status;
      if (!isToCard) memcpy(address + done, fragment.address, bytes);
      done += bytes;
    }
    return Status.OK;
  }

  /** Nothing is copied any more. */
  async close(): Promise<void> {
    await this.copies.close();
    this.word.free();
    if (this.#reserve !== undefined) this.fragments.release(this.#reserve);
  }
}
