/**
 * An atomic operation implemented with compare-and-swap, for those that libucp executes wrongly (atomic-start.ts): it repeats the swap, with the value that it
 * read, until no other operation intervenes.
 *
 * ```
 * READY --swap started--> SWAPPING --the word was as expected--> DONE
 *   ^---- NO_RESOURCE, or the word was another one ----'           a failure ends it in READY
 * ```
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

/** State of the loop: see the diagram above. */
const LoopState = { READY: 0, SWAPPING: 1, DONE: 2 } as const;
type LoopState = (typeof LoopState)[keyof typeof LoopState];

/** The operation. */
export class SwapLoop extends DeviceOperation {
  readonly #worker: EngineWorker;
  readonly #call: WordOperation;
  readonly #word: readonly [UcpRemoteKey, number];
  /** Expected value of the word; initially a guess, corrected by each reply. */
  #expected = 0n;
  #state: LoopState = LoopState.READY;

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
    while (this.#state !== LoopState.SWAPPING) {
      if (this.#state === LoopState.DONE || this.failure !== Status.OK) {
        this.end();
        return;
      }
      const started = this.#attempt();
      if (started === Status.NO_RESOURCE) {
        this.#state = LoopState.READY;
        this.wake();
        return;
      }
      if (typeof started === 'number' && started < 0) {
        this.#state = LoopState.READY;
        this.failure = started;
      }
    }
  }

  #attempt(): Status | Request {
    const { wordBytes } = this.#call;
    const wanted = wordAfter(this.#call, this.#expected);
    const swap = WordOperation.of(AtomicOperation.CSWAP, wordBytes, wanted, this.#expected);
    this.#state = LoopState.SWAPPING;
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
    this.#state = LoopState.READY;
    const request = this.request!;
    if (status < 0) {
      this.failure = status;
      request.error = error;
      return;
    }
    if (atomicResult === this.#expected) this.#state = LoopState.DONE;
    this.#expected = atomicResult;
    request.atomicResult = atomicResult;
  }
}
