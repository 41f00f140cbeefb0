/**
 * The port of staging: copies between device memory and host memory, and the context and worker that provide them to another engine. Also atomic operations
 * on words of device memory, which the owner's worker executes sequentially by copies.
 */

import type { Status } from '../../ucs/type/status.ts';
import type { Context } from '../contract/context.ts';
import type { LocalMemory, MemoryHandle } from '../contract/memory.ts';
import type { Worker, WorkerOptions } from '../contract/worker.ts';
import { modifyWord, type WordOperation } from '../operation/word-operation.ts';

/** Called at the end of a copy; `error` has details of a failure, if known. */
export type CopyDone = (status: Status, error?: unknown) => void;

/** The two sides of a copy. */
export interface DeviceCopy {
  /** Device memory, and the offset in it. */
  readonly device: MemoryHandle;
  readonly offset: number;
  /** Host memory, ideally a fragment, and the offset in it. */
  readonly host: LocalMemory;
  readonly hostOffset: number;
  readonly byteLength: number;
}

/** Copies between device memory and host memory. */
export interface DeviceCopier {
  /**
   * Starts a copy.
   * @param isToDevice false to read the device memory
   * @param done called when the copy is complete or has failed: during this call if that is known at once, otherwise from progress of the worker
   */
  copy(isToDevice: boolean, copy: DeviceCopy, done: CopyDone): void;
}

/** A worker that copies. */
export interface CopyingWorker extends Worker {
  readonly copier: DeviceCopier;
  /** Reports its operations to observers, unless `isTold` is false. */
  readonly observation: { isTold: boolean };
}

/** A context whose workers copy. */
export interface CopyingContext<Device = unknown> extends Context<Device> {
  worker(options?: WorkerOptions): CopyingWorker;
}

/** Maximum word size in bytes. */
const WORD_BYTES_MAX = 8;

/** The operations of one worker. */
export class DeviceWords {
  readonly #copier: DeviceCopier;
  /** The word of the current operation. */
  readonly #word: Uint8Array = new Uint8Array(WORD_BYTES_MAX);
  readonly #queue: (() => void)[] = [];
  #isBusy = false;
  #isStarting = false;

  constructor(copier: DeviceCopier) {
    this.#copier = copier;
  }

  /** Changes the word of `device` at `offset`; then `call.result` is the previous value. */
  modify(device: MemoryHandle, offset: number, call: WordOperation, done: CopyDone): void {
    this.#queue.push(() => this.#run(device, offset, call, done));
    this.#startNext();
  }

  #startNext(): void {
    // An operation that ends during its start returns here: the loop starts the next one, without recursion.
    if (this.#isStarting) return;
    this.#isStarting = true;
    while (!this.#isBusy) {
      const operation = this.#queue.shift();
      if (operation === undefined) break;
      this.#isBusy = true;
      operation();
    }
    this.#isStarting = false;
  }

  #run(device: MemoryHandle, offset: number, call: WordOperation, done: CopyDone): void {
    const word = { device, offset, host: this.#word, hostOffset: 0, byteLength: call.wordBytes };
    const end: CopyDone = (status, error) => {
      this.#isBusy = false;
      done(status, error);
      this.#startNext();
    };
    this.#copier.copy(false, word, (status, error) => {
      if (status < 0) {
        end(status, error);
        return;
      }
      modifyWord(this.#word, 0, call);
      this.#copier.copy(true, word, end);
    });
  }
}
