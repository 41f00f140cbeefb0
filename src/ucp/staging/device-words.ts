/**
 * Atomic operations on words of device memory that the worker of the owner runs: one after the other, each copies the word from the card, changes it and copies it
 * back. Which words a peer may use is checked before.
 */

import type { MemoryHandle } from '../api/operation/memory.ts';
import { modifyWord, type WordOperation } from '../api/operation/word-operation.ts';
import type { CopyDone, DeviceCopier } from './device-copier.ts';

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
