/**
 * The port of staging: copies between device memory and host memory, and the context and worker that offer them to another engine. Over it, atomic
 * operations on words of device memory that the worker of the owner runs, one after the other.
 */

import type { Status } from '../../ucs/type/status.ts';
import type { Context } from '../contract/context.ts';
import type { LocalMemory, MemoryHandle } from '../contract/memory.ts';
import type { Worker, WorkerOptions } from '../contract/worker.ts';
import { modifyWord, type WordOperation } from '../operation/word-operation.ts';

/** Called at the end of a copy; `error` says more of a failure if something is known. */
export type CopyDone = (status: Status, error?: unknown) => void;

/** The two sides of a copy. */
export interface DeviceCopy {
  /** Device memory, and the byte of it at which the copy begins. */
  readonly device: MemoryHandle;
  readonly offset: number;
  /** Host memory, best a fragment, and the byte of it at which the copy begins. */
  readonly host: LocalMemory;
  readonly hostOffset: number;
  readonly byteLength: number;
}

/** Copies between device memory and host memory. */
export interface DeviceCopier {
  /**
   * Starts a copy.
   * @param isToDevice false to read the device memory
   * @param done called when the bytes are there, or the copy has failed; during this call if that is known at once, else from progress of the worker
   */
  copy(isToDevice: boolean, copy: DeviceCopy, done: CopyDone): void;
}

/** A worker that copies. */
export interface CopyingWorker extends Worker {
  readonly copier: DeviceCopier;
  /** Reports of its operations to observers; none once `isTold` is false. */
  readonly observation: { isTold: boolean };
}

/** A context whose workers copy. */
export interface CopyingContext<Device = unknown> extends Context<Device> {
  worker(options?: WorkerOptions): CopyingWorker;
}

/** Bytes of the longest word. */
const WORD_BYTES_MAX = 8;

/** The operations of one worker. */
export class DeviceWords {
  readonly #copier: DeviceCopier;
  /** The word of the operation that runs. */
  readonly #word: Uint8Array = new Uint8Array(WORD_BYTES_MAX);
  readonly #queue: (() => void)[] = [];
  #isBusy = false;
  #isStarting = false;

  constructor(copier: DeviceCopier) {
    this.#copier = copier;
  }

  /** Changes the word of `device` at `offset`; then `call.result` is the word before. */
  modify(device: MemoryHandle, offset: number, call: WordOperation, done: CopyDone): void {
    this.#queue.push(() => this.#run(device, offset, call, done));
    this.#startNext();
  }

  #startNext(): void {
    // An operation that ends during its own start comes back here: the loop starts the next one, without recursion.
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
