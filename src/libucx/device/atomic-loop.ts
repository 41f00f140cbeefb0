/**
 * An atomic operation implemented with compare-and-swap, for those that libucp executes wrongly (atomic-start.ts): it repeats the swap, with the value that it
 * read, until no other operation intervenes.
 */

import { WordOperation, wordAfter } from '../../api/operation/word-operation.ts';
import { Status } from '../../ucs/type/status.ts';
import { AtomicOperation } from '../../uct/api/iface.ts';
import { startAtomic } from '../amo/atomic-start.ts';
import type { EngineEndpoint } from '../engine/engine.ts';
import type { UcpRemoteKey } from '../mem/remote-key.ts';
import type { UcpRequest } from '../request/request.ts';
import { DeviceOperation, type OperationTracker } from './operation.ts';

/** The operation. */
export class SwapLoop extends DeviceOperation {
  declare readonly endpoint: EngineEndpoint;
  declare readonly request: UcpRequest;
  readonly #call: WordOperation;
  readonly #word: readonly [UcpRemoteKey, number];

  constructor(
    tracker: OperationTracker,
    [endpoint, request]: readonly [EngineEndpoint, UcpRequest],
    call: WordOperation,
    word: readonly [UcpRemoteKey, number],
  ) {
    super(tracker, endpoint, request);
    this.#call = call;
    this.#word = word;
  }

  protected override begin(): void {
    // A guess, corrected by the reply.
    this.#swap(0n);
  }

  /** Swaps the word if it has the expected value; else the next attempt expects the value that it has. */
  #swap(expected: bigint): void {
    const { wordBytes } = this.#call;
    const swap = WordOperation.of(AtomicOperation.CSWAP, wordBytes, wordAfter(this.#call, expected), expected);
    const isOpen = (): boolean => this.endpoint.status === Status.OK && !this.endpoint.closed;
    this.run(
      (params) => {
        const how = { params: { ...params, noImmediateCompletion: true }, isOpen };
        return startAtomic(this.staging.worker, this.endpoint.handle, swap, this.#word, how);
      },
      (status, _error, ended) => {
        if (status < 0 || ended === undefined) return;
        this.request.atomicResult = ended.atomicResult;
        if (ended.atomicResult !== expected && this.failure === Status.OK) this.#swap(ended.atomicResult);
      },
    );
  }
}
