/** Atomic operations that a device executes as compare and swap, and that must be repeated because the word has changed meanwhile. */

import { Status } from '../../ucs/type/status.ts';
import type { AtomicCall, Completion } from '../api/iface.ts';
import type { IbKey } from './base/key.ts';
import type { IbEndpoint } from './endpoint.ts';

/** An operation to be repeated. */
export interface AtomicRetry {
  /** Undefined if it was closed meanwhile. */
  readonly endpoint: IbEndpoint | undefined;
  readonly call: AtomicCall;
  readonly remoteOffset: number;
  readonly key: IbKey;
  readonly completion: Completion;
  /** Value of the word that the last attempt has found. */
  readonly assumed: bigint;
}

/** The operations of one interface. */
export class AtomicRetries {
  readonly #complete: (completion: Completion, status: Status) => void;
  /** Operations for which there was no room. */
  readonly #waiting: AtomicRetry[] = [];

  /** @param complete ends an operation */
  constructor(complete: (completion: Completion, status: Status) => void) {
    this.#complete = complete;
  }

  /** Tries again, now or in {@link progress}. */
  retry(retry: AtomicRetry): void {
    const { endpoint, call, remoteOffset, key, completion, assumed } = retry;
    const status =
      endpoint === undefined ? Status.CANCELED : endpoint.postAtomic(call, remoteOffset, key, completion, assumed);
    if (status === Status.NO_RESOURCE) this.#waiting.push(retry);
    else if (status !== Status.OK) this.#complete(completion, status);
  }

  /** Tries the operations again for which there was no room. */
  progress(): void {
    if (this.#waiting.length > 0) for (const retry of this.#waiting.splice(0)) this.retry(retry);
  }

  /** Cancels all: the interface is closed. */
  close(): void {
    for (const { completion } of this.#waiting.splice(0)) this.#complete(completion, Status.CANCELED);
  }
}
