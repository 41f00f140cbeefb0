/**
 * Completion of transfers that read ArrayBuffers of the program. A program can transfer such a buffer elsewhere while a card reads it (structuredClone,
 * postMessage, resize). The pages stay pinned, but their content may change, so the operation fails. This object keeps no memory alive.
 */

import { Status } from '../../../../ucs/type/status.ts';
import type { Completion, IovEntry } from '../../../api/iface.ts';
import { completeOne } from '../../../base/checks.ts';
import { RegisteredMemory } from './gaudi-memory.ts';

/** The completion of one list. */
export class SourceCheck implements Completion {
  count = 1;
  failure: Status = Status.OK;
  /** Memories that are read; entries are reused. */
  readonly #sources: (RegisteredMemory | undefined)[] = [];
  #length = 0;
  readonly #onEnd: (check: SourceCheck) => void;
  #completion: Completion | undefined = undefined;

  /** @param onEnd returns it to its pool, before the completion of the list is called */
  constructor(onEnd: (check: SourceCheck) => void) {
    this.#onEnd = onEnd;
  }

  /**
   * Records the memory that is read.
   * @param remote the source if the list is the destination; undefined if the list is the source
   */
  begin(iov: readonly IovEntry[], remote: RegisteredMemory | undefined, completion: Completion): void {
    if (remote !== undefined) this.#add(remote);
    else for (let i = 0; i < iov.length; i++) this.#add(iov[i]!.memory);
    this.#completion = completion;
  }

  #add(memory: unknown): void {
    if (isDetachable(memory)) this.#sources[this.#length++] = memory;
  }

  /** Clears the list: no transfer was started. */
  reset(): void {
    this.count = 1;
    this.failure = Status.OK;
    while (this.#length > 0) this.#sources[--this.#length] = undefined;
    this.#completion = undefined;
  }

  onComplete(): void {
    const completion = this.#completion;
    let status = this.failure;
    for (let i = 0; i < this.#length && status === Status.OK; i++) {
      if (!this.#sources[i]!.attached) status = Status.INVALID_ADDR;
    }
    this.reset();
    this.#onEnd(this);
    if (completion !== undefined) completeOne(completion, status);
  }
}

/** Whether any of the memory that {@link SourceCheck.begin} records can be detached. */
export function mayDetach(iov: readonly IovEntry[], remote: RegisteredMemory | undefined): boolean {
  if (remote !== undefined) return isDetachable(remote);
  for (let i = 0; i < iov.length; i++) if (isDetachable(iov[i]!.memory)) return true;
  return false;
}

function isDetachable(memory: unknown): memory is RegisteredMemory {
  return memory instanceof RegisteredMemory && !memory.staysPut;
}
