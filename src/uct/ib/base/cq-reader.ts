/** Reads completions of a queue in batches. Completions that were read before a sleep, to check whether there are any, are processed after it. */

import { allocateScratch, type ScratchBlock } from '../../../sys/index.ts';
import { Wc } from '../../../verbs/abi.ts';
import type { CompletionQueue } from '../../../verbs/port.ts';

const BATCH = 16;

/** The reader. */
export class CqReader {
  readonly cq: CompletionQueue;
  readonly #block: ScratchBlock = allocateScratch(BATCH * Wc.WORDS * 4);
  /** Words of {@link next}. */
  readonly words: Uint32Array;
  #count = 0;
  #taken = 0;

  constructor(cq: CompletionQueue) {
    this.cq = cq;
    this.words = this.#block.words;
  }

  /** Number of completions that were read and not taken; reads more if there are none. */
  fill(): number {
    if (this.#taken < this.#count) return this.#count - this.#taken;
    this.#taken = 0;
    this.#count = Math.max(0, this.cq.poll(this.#block, BATCH));
    return this.#count;
  }

  /** Takes the next completion: the index of its first word. Only after {@link fill} returned more than 0. */
  next(): number {
    return Wc.WORDS * this.#taken++;
  }

  close(): void {
    this.cq.close();
    this.#block.free();
  }
}
