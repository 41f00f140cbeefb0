/**
 * Detects that operations of libucp have ended, for one worker. A few requests are polled in every progress, which is fastest; callbacks of libucp report
 * the others. Callbacks of the application never run inside callbacks of C.
 */

import { allocateScratch, memcpy, NativeCallback, type ScratchBlock } from '../../sys/index.ts';
import type { Clock } from '../../ucs/sys/clock.ts';
import { joinWords } from '../../ucs/type/int64.ts';
import { Status } from '../../ucs/type/status.ts';
import { UCP_TAG_RECV_INFO } from '../c/abi.ts';
import type { LibucpFunctions } from '../c/functions.ts';
import { OverdueRequests } from './overdue-requests.ts';
import { RequestKind, RequestState, type UcpRequest } from './request.ts';

/** Maximum number of requests that are polled in progress: 16 ns each, while a callback costs 70 ns. */
const POLLED_MAX = 4;
/** Maximum number of polled requests, including sends without a callback. */
const FOLLOWED_MAX = 32;
/** Number of ended libucp requests that are freed together, when there is nothing else to do. */
const SPENT_MAX = 16;
/** Statuses of operations whose peer has become unreachable. */
const LOST: readonly Status[] = [Status.CONNECTION_RESET, Status.ENDPOINT_TIMEOUT];
/** Maximum time for which a flush of the worker keeps progress from sleeping. */
const WALK_NS_MAX = 1e9;
/** Mask for the number of progress calls: polled requests are tested at every 64th one even if libucp reports no events. */
const QUIET_CALLS_MASK = 63;

const [HANDLE, STATUS, U64, INDEX] = ['uint64_t', 'int8_t', 'uint64_t', 'uint64_t'] as const;

/** The operations of one worker that libucp has not ended, and those whose end was not reported to the program yet. */
export class Polling {
  readonly overdue: OverdueRequests;
  /** Address of the result of a receive that completes at once: a tag and a length, or a length. */
  readonly info: number;
  /** Callback addresses by kind of request; the last kind has none. */
  readonly callbackOf: readonly number[];
  /** Number of operations that libucp has not ended. */
  inProgress = 0;
  readonly #functions: LibucpFunctions;
  readonly #all: readonly (UcpRequest | undefined)[];
  /** Called at every 64th progress. */
  readonly #onQuiet: () => void;
  readonly #infoWords: Uint32Array;
  readonly #infoBlock: ScratchBlock;
  /** The functions that libucp calls when an operation ends. */
  readonly #callbacks: readonly NativeCallback[];
  readonly #polled: UcpRequest[] = [];
  /** libucp requests of ended operations: they are freed in batches, after waiters have continued. */
  readonly #spent: number[] = [];
  /** Requests that ended inside a callback of C, with the status in `outcome`: their callbacks have not run. */
  #ended: UcpRequest[] = [];
  #progressCalls = 0;
  readonly #clock: Clock;
  /** Flushes of the worker in progress, and until when they are polled. */
  #walks = 0;
  #walkEndsNs = 0;

  /**
   * @param all the requests by index
   * @param events onDue: {@link progress} has work that libucp does not report; onQuiet: called at every 64th progress
   */
  constructor(
    functions: LibucpFunctions,
    all: readonly (UcpRequest | undefined)[],
    clock: Clock,
    events: Readonly<Record<'onDue' | 'onQuiet', () => void>>,
  ) {
    this.#functions = functions;
    this.#all = all;
    this.#onQuiet = events.onQuiet;
    this.#clock = clock;
    this.overdue = new OverdueRequests(functions, all, clock, events.onDue);
    const info = allocateScratch(UCP_TAG_RECV_INFO.size);
    this.info = info.address;
    this.#infoBlock = info;
    this.#infoWords = info.words;
    const send = new NativeCallback({
      result: 'void',
      parameters: [HANDLE, STATUS, INDEX],
      call: (handle: number, status: Status, index: number) => this.#onEnd(handle, index, status),
    });
    const tagReceive = new NativeCallback({
      result: 'void',
      parameters: [HANDLE, STATUS, U64, INDEX],
      call: (handle: number, status: Status, received: number, index: number) => {
        memcpy(this.info, received, UCP_TAG_RECV_INFO.size);
        this.takeTagInfo(this.#all[index]!);
        this.#onEnd(handle, index, status);
      },
    });
    const amReceive = new NativeCallback({
      result: 'void',
      parameters: [HANDLE, STATUS, U64, INDEX],
      call: (handle: number, status: Status, byteLength: number, index: number) => {
        if (!this.overdue.has(handle)) this.#all[index]!.receivedBytes = byteLength;
        this.#onEnd(handle, index, status);
      },
    });
    this.#callbacks = [send, tagReceive, amReceive];
    this.callbackOf = this.#callbacks.map(({ address }) => address);
  }

  /** Whether requests have ended whose callbacks have not run. */
  get hasEnded(): boolean {
    return this.#ended.length > 0;
  }

  /** Whether the next request of a kind is polled instead of reported by a callback. */
  polls(kind: RequestKind): boolean {
    return kind <= RequestKind.TAG_RECV && this.#polled.length < POLLED_MAX;
  }

  /** Whether an operation without a callback can be polled until it ends. */
  canFollow(kind: RequestKind): boolean {
    return this.#polled.length < (kind === RequestKind.TAG_RECV ? POLLED_MAX : FOLLOWED_MAX);
  }

  /** Waits for the end of an operation that libucp continues. @param handle the libucp request */
  follow(request: UcpRequest, handle: number): void {
    this.inProgress += 1;
    // The callback may have run inside the call.
    if (request.state < RequestState.ENDED) request.handle = handle;
    if (request.state === RequestState.POLLED) this.#polled.push(request);
  }

  /**
   * Follows a flush of the worker. In each progress call libucp flushes one endpoint, and no event wakes up a sleeping program for the next one; endpoints that
   * failed while they were closed stay among them (1.13).
   */
  followWalk(request: UcpRequest): void {
    this.#walks += 1;
    this.#walkEndsNs = this.#clock.nowNs() + WALK_NS_MAX;
    request.settle = this.#endWalk;
  }

  /** Whether libucp needs progress calls that no event announces. */
  get isWalking(): boolean {
    return this.#walks > 0 && this.#clock.nowNs() < this.#walkEndsNs;
  }

  /** Reads the tag and the length of a received message from {@link info}. */
  takeTagInfo(request: UcpRequest): void {
    const words = this.#infoWords;
    request.tagLow = words[0]!;
    request.tagHigh = words[1]!;
    request.receivedBytes = joinWords(words[2]!, words[3]!);
  }

  /**
   * Ends the requests that libucp has ended, after its progress.
   * @param events number of events that libucp has reported
   */
  progress(events: number): number {
    let count = 0;
    this.#progressCalls = (this.#progressCalls + 1) & QUIET_CALLS_MASK;
    if (this.#progressCalls === 0) {
      this.#onQuiet();
      this.overdue.poll();
    }
    if (this.overdue.isDue) this.overdue.progress(this.#endOverdue);
    if (this.#polled.length > 0 && (events > 0 || this.#progressCalls === 0)) {
      if (this.#polled.length === 1 && this.#ended.length === 0) count += this.#endOnly(this.#polled[0]!);
      else this.#poll();
    }
    if (this.#ended.length > 0) count += this.#runCallbacks();
    if (this.#spent.length > 0 && (events === 0 || this.#spent.length >= SPENT_MAX)) this.#freeSpent();
    return count;
  }

  /** Checks for ended operations before sleeping. */
  checkEnded(): boolean {
    if (this.#polled.length > 0) this.#poll();
    return this.#ended.length > 0 || this.overdue.isDue;
  }

  /** Called after libucp was requested to cancel an operation. @returns true if that has ended it with CANCELED, which libucp does not report otherwise */
  takeCanceled(request: UcpRequest): boolean {
    if (request.state === RequestState.POLLED) this.#poll();
    const at = this.#ended.indexOf(request);
    if (at < 0 || request.outcome !== Status.CANCELED) return false;
    this.#ended.splice(at, 1);
    return true;
  }

  /** Releases the libucp request of an ended operation. */
  release(request: UcpRequest): void {
    if (request.spent === 0) return;
    this.#spent.push(request.spent);
    request.spent = 0;
  }

  /** Ends all operations with CANCELED, when libucp makes no progress any more. Returns their numbers. */
  abandonAll(): { readonly sends: number; readonly others: number } {
    for (const request of this.#all) if (request !== undefined) this.release(request);
    this.#freeSpent();
    const abandoned = this.#all.filter(
      (request): request is UcpRequest => request !== undefined && request.handle !== 0,
    );
    this.#polled.length = 0;
    for (const request of abandoned) this.#note(request, Status.CANCELED);
    const sends = abandoned.filter(({ kind }) => kind === RequestKind.SEND).length;
    return { sends: sends + this.overdue.size, others: abandoned.length - sends };
  }

  /** Call this when libucp has no requests any more. */
  close(): void {
    this.overdue.close();
    for (const callback of this.#callbacks) callback.close();
    this.#infoBlock.free();
  }

  /** Tests all polled requests: a call that starts an operation may also have ended others. */
  #poll(): void {
    const polled = this.#polled;
    let kept = 0;
    for (let i = 0; i < polled.length; i++) {
      const request = polled[i]!;
      const status = this.#statusOf(request);
      if (status === Status.INPROGRESS) {
        polled[kept++] = request;
      } else {
        request.spend(request.handle);
        this.#note(request, status);
      }
    }
    const count = polled.length - kept;
    // Setting the length to 0 would release the memory of the array.
    for (let i = 0; i < count; i++) polled.pop();
  }

  /** {@link #poll} and {@link #runCallbacks} for a single request, the usual case of waiting for one message. */
  #endOnly(request: UcpRequest): number {
    const status = this.#statusOf(request);
    if (status === Status.INPROGRESS) return 0;
    this.#polled.pop();
    request.spend(request.handle);
    if (status < 0) {
      this.#note(request, status);
      return 0;
    }
    request.handle = 0;
    this.inProgress -= 1;
    if (request.deferEnd?.(request, status) !== true) request.end(status);
    return 1;
  }

  #statusOf(request: UcpRequest): Status {
    if (request.kind !== RequestKind.TAG_RECV) return this.#functions.ucp_request_check_status(request.handle);
    const status = this.#functions.ucp_tag_recv_request_test(request.handle, this.info);
    if (status !== Status.INPROGRESS) this.takeTagInfo(request);
    return status;
  }

  /** Callback of C. */
  #onEnd(handle: number, index: number, status: Status): void {
    if (this.overdue.has(handle)) {
      if (this.overdue.ended(handle)) this.#spent.push(handle);
      return;
    }
    const request = this.#all[index]!;
    request.spend(handle);
    this.#note(request, status);
  }

  /** Records that an operation has ended: its callback runs when libucp has returned. */
  #note(request: UcpRequest, status: Status): void {
    const { endpoint } = request;
    request.state = RequestState.ENDED;
    request.handle = 0;
    this.inProgress -= 1;
    request.outcome = status;
    this.#ended.push(request);
    if (status >= 0 || endpoint === undefined) return;
    // After a failure, a close by force cancels operations.
    if (endpoint.status !== Status.OK && !request.isCanceled) {
      request.outcome = endpoint.status;
      request.error = endpoint.cause;
    }
    // No other report of the failure follows.
    else if (endpoint.isBorrowed && LOST.includes(status)) this.overdue.expect(endpoint, status);
  }

  readonly #endWalk = (_request: UcpRequest, status: Status): Status => {
    this.#walks -= 1;
    return status;
  };

  /** Ends a request that libucp has not ended in time. */
  readonly #endOverdue = (request: UcpRequest, status: Status): void => {
    const at = this.#polled.indexOf(request);
    if (at >= 0) this.#polled.splice(at, 1);
    this.#note(request, status);
  };

  #freeSpent(): void {
    for (let pointer = this.#spent.pop(); pointer !== undefined; pointer = this.#spent.pop()) {
      this.#functions.ucp_request_free(pointer);
    }
  }

  /** Runs the callbacks. If one throws, progress throws, and the next progress runs the others. */
  #runCallbacks(): number {
    let count = 0;
    for (let request = this.#ended.shift(); request !== undefined; request = this.#ended.shift()) {
      const { outcome } = request;
      count += 1;
      if (request.deferEnd?.(request, outcome) !== true) request.end(outcome);
    }
    return count;
  }
}
