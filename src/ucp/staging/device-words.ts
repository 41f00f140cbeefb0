/**
 * Atomic operations on words of device memory that the worker of the owner runs: one after the other, each reads the word into a fragment, changes it and writes it
 * back. Which words a peer may use is checked before.
 */

import type { LocalMemory } from '../api/memory.ts';
import { modifyWord, type WordOperation } from '../api/word-operation.ts';
import type { CopyDone, StagingPort } from './device-copier.ts';
import { fragmentBytesOf } from './fragment-pool.ts';

/** The operations of one worker. */
export class DeviceWords<M extends LocalMemory & { readonly bytes: Uint8Array | undefined }> {
  readonly #port: StagingPort<M>;
  readonly #queue: (() => void)[] = [];
  #isBusy = false;
  #isStarting = false;

  constructor(port: StagingPort<M>) {
    this.#port = port;
  }

  /** Changes the word of `device` at `offset`; then `call.result` is the word before. */
  modify(device: M, offset: number, call: WordOperation, done: CopyDone): void {
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

  #run(device: M, offset: number, call: WordOperation, done: CopyDone): void {
    this.#port.acquire((fragment, refusal) => {
      const end: CopyDone = (status, error) => {
        if (fragment !== undefined) this.#port.release(fragment);
        this.#isBusy = false;
        done(status, error);
        this.#startNext();
      };
      if (fragment === undefined) {
        end(refusal);
        return;
      }
      const word = { device, offset, fragment, fragmentOffset: 0, byteLength: call.wordBytes };
      this.#port.copy(false, word, (status, error) => {
        if (status < 0) {
          end(status, error);
          return;
        }
        modifyWord(fragmentBytesOf(fragment), 0, call);
        this.#port.copy(true, word, end);
      });
    });
  }
}
