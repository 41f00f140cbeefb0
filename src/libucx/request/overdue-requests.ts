/**
 * Requests of failed endpoints that libucp does not end. It ends them when all lanes of the endpoint are flushed, but a shared-memory lane whose queue was
 * full when the peer died is never flushed (1.13: uct_mm_ep_flush returns NO_RESOURCE). This engine ends them after a time limit, and keeps their memory
 * until libucp ends them after all, or the worker closes.
 */

import type { ScratchBlock } from '../../sys/index.ts';
import type { Clock, Timer } from '../../ucs/sys/clock.ts';
import { Status } from '../../ucs/type/status.ts';
import type { LibucpFunctions } from '../c/functions.ts';
import { type LocalBuffer, unpin } from '../mem/memory-handle.ts';
import type { UcpRemoteKey } from '../mem/remote-key.ts';
import type { Registration } from './message-registrations.ts';
import type { RequestEndpoint, UcpRequest } from './request.ts';

/**
 * Time limit for libucp to end the requests of a failed endpoint: it waits for its lanes, so that no device uses their memory any more. Requests of an
 * endpoint that is closed by force take a second (1.13).
 */
const TIME_LIMIT_NS = 2e9;

/** What an ended request leaves in use by libucp. */
interface Left {
  readonly pinned: LocalBuffer | undefined;
  readonly rkey: UcpRemoteKey | undefined;
  readonly isLent: boolean;
  readonly blocks: readonly (ScratchBlock | Registration | undefined)[];
}

/** Requests by index; undefined for unused indices. */
type Indexed = readonly (UcpRequest | undefined)[];

export class OverdueRequests {
  readonly #functions: LibucpFunctions;
  readonly #all: Indexed;
  readonly #clock: Clock;
  readonly #onDue: () => void;
  /** Running time limits. */
  readonly #timers: Map<RequestEndpoint, Timer> = new Map();
  /** Endpoints whose time limit has passed, and the status for their requests. */
  readonly #due: Map<RequestEndpoint, Status> = new Map();
  /** By libucp request. */
  readonly #left: Map<number, Left> = new Map();

  /** @param onDue called when {@link isDue} becomes true */
  constructor(functions: LibucpFunctions, all: Indexed, clock: Clock, onDue: () => void) {
    this.#functions = functions;
    this.#all = all;
    this.#clock = clock;
    this.#onDue = onDue;
  }

  /** Whether there is work for {@link progress}. */
  get isDue(): boolean {
    return this.#due.size > 0;
  }

  /** Number of operations that have ended here, but not in libucp. */
  get size(): number {
    return this.#left.size;
  }

  /** Starts the time limit of an endpoint that has failed or is being closed by force. @param status status for requests that have none */
  expect(endpoint: RequestEndpoint, status: Status): void {
    if (this.#timers.has(endpoint) || this.#pendingOf(endpoint).length === 0) return;
    const timer = this.#clock.setTimer(TIME_LIMIT_NS, () => {
      this.#timers.delete(endpoint);
      this.#due.set(endpoint, endpoint.status === Status.OK ? status : endpoint.status);
      this.#onDue();
    });
    this.#timers.set(endpoint, timer);
  }

  /** Ends requests that libucp has not ended in time. @param end called for each request, whose memory is kept */
  progress(end: (request: UcpRequest, status: Status) => void): void {
    for (const [endpoint, status] of this.#due) {
      this.#due.delete(endpoint);
      if (endpoint.dropHandle()) {
        this.expect(endpoint, status);
        continue;
      }
      for (const request of this.#pendingOf(endpoint)) {
        this.#keep(request);
        end(request, status);
      }
    }
  }

  /** Whether an operation has ended here. @param handle its libucp request */
  has(handle: number): boolean {
    return this.#left.has(handle);
  }

  /**
   * Called when libucp has ended an operation that had ended here.
   * @returns true if the libucp request can be freed; a request in memory of the engine is in use until libucp has returned, and {@link poll} releases it
   */
  ended(handle: number): boolean {
    const left = this.#left.get(handle)!;
    if (left.isLent) return false;
    this.#release(handle, left);
    return true;
  }

  #release(handle: number, left: Left): void {
    this.#left.delete(handle);
    if (left.pinned !== undefined) unpin(left.pinned);
    left.rkey?.unpin();
    for (const block of left.blocks) block?.free();
  }

  /** Releases the requests that libucp has ended. */
  poll(): void {
    for (const [handle, left] of this.#left) {
      if (this.#functions.ucp_request_check_status(handle) === Status.INPROGRESS) continue;
      this.#release(handle, left);
      if (!left.isLent) this.#functions.ucp_request_free(handle);
    }
  }

  /** Call this when libucp makes no progress any more. */
  close(): void {
    for (const timer of this.#timers.values()) timer.cancel();
    this.#timers.clear();
    for (const [handle, left] of this.#left) this.#release(handle, left);
  }

  #pendingOf(endpoint: RequestEndpoint): readonly UcpRequest[] {
    return this.#all.filter((request): request is UcpRequest => request?.endpoint === endpoint && request.handle !== 0);
  }

  /** Takes over the memory and keys of a request that ends before libucp has ended it. */
  #keep(request: UcpRequest): void {
    const { handle, pinned, rkey, isLent, scratch, header, registration } = request;
    this.#left.set(handle, { pinned, rkey, isLent, blocks: [scratch, header, registration] });
    request.pinned = undefined;
    request.rkey = undefined;
    request.scratch = undefined;
    request.header = undefined;
    request.registration = undefined;
  }
}
