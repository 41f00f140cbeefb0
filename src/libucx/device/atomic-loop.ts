/**
 * An atomic operation made of compare-and-swap, for those that libucp does wrong (atomic-start.ts): it repeats the swap, with the value that it found, until
 * no other operation came between.
 */

import type { AtomicParams, Request } from '../../ucp/api/request.ts';
import { WordOperation, wordAfter } from '../../ucp/api/word-operation.ts';
import { Status } from '../../ucs/type/status.ts';
import { AtomicOperation } from '../../uct/api/iface.ts';
import { startAtomic } from '../amo/atomic-start.ts';
import type { EngineEndpoint, EngineWorker } from '../engine/engine.ts';
import type { UcpRemoteKey } from '../mem/remote-key.ts';
import type { UcpRequest } from '../request/request.ts';
import { DeviceOperation, type OperationTracker } from './operation.ts';

/** The operation. */
export class SwapLoop extends DeviceOperation {
  readonly #worker: EngineWorker;
  readonly #call: WordOperation;
  readonly #word: readonly [UcpRemoteKey, number];
  /** What the word is taken to be; at first a guess, and the answer tells. */
  #expected = 0n;
  #isInFlight = false;
  #isDone = false;

  constructor(
    tracker: OperationTracker,
    [endpoint, request]: readonly [EngineEndpoint, UcpRequest],
    worker: EngineWorker,
    call: WordOperation,
    word: readonly [UcpRemoteKey, number],
  ) {
    super(tracker, endpoint, request);
    this.#worker = worker;
    this.#call = call;
    this.#word = word;
  }

  protected override advance(): void {
    while (!this.#isInFlight) {
      if (this.#isDone || this.failure !== Status.OK) {
        this.end();
        return;
      }
      const started = this.#attempt();
      if (started === Status.NO_RESOURCE) {
        this.#isInFlight = false;
        this.wake();
        return;
      }
      if (typeof started === 'number' && started < 0) {
        this.#isInFlight = false;
        this.failure = started;
      }
    }
  }

  #attempt(): Status | Request {
    const { wordBytes } = this.#call;
    const swap = new WordOperation(
      AtomicOperation.CSWAP,
      wordBytes,
      wordAfter(this.#call, this.#expected),
      this.#expected,
    );
    this.#isInFlight = true;
    let isStarting = true;
    const params: AtomicParams = {
      noImmediateCompletion: true,
      callback: (ended, status) => {
        this.#take(ended, status);
        if (!isStarting) this.wake();
      },
    };
    const how = { params, isOpen: () => this.endpoint.status === Status.OK && !this.endpoint.closed };
    const started = startAtomic(this.#worker, this.endpoint.handle, swap, this.#word, how);
    isStarting = false;
    return started;
  }

  #take(ended: Request, status: Status): void {
    const { atomicResult, error } = ended;
    ended.free();
    this.#isInFlight = false;
    const request = this.request!;
    if (status < 0) {
      this.failure = status;
      request.error = error;
      return;
    }
    this.#isDone = atomicResult === this.#expected;
    this.#expected = atomicResult;
    request.atomicResult = atomicResult;
  }
}
