/** Teardown of one worker: the operations that it waits for, and its close timeout. libucp never ends some operations of a peer that is gone. */

import type { PromiseTier } from '../../api/awaited/promises.ts';
import type { Request, RequestParams } from '../../api/contract/request.ts';
import { throwLater } from '../../ucs/debug/uncaught.ts';
import type { Clock } from '../../ucs/sys/clock.ts';
import type { Status } from '../../ucs/type/status.ts';

/** Time limit for operations of libucp that may hang. */
const CLOSE_TIMEOUT_NS = 1e9;

/** The services of the worker for its teardown. */
export interface TeardownWorker {
  readonly context: { readonly clock: Clock };
  readonly promises: PromiseTier;
  readonly closed: boolean;
  flushUcp(params: RequestParams | undefined): Status | Request;
}

/** The teardown. */
export class Teardown {
  readonly #worker: TeardownWorker;
  /** Deadline of the whole teardown, once the worker is closing. */
  #closeTimeoutEnds = Number.POSITIVE_INFINITY;

  constructor(worker: TeardownWorker) {
    this.#worker = worker;
  }

  /** Called when the worker starts closing. */
  begin(): void {
    this.#closeTimeoutEnds = this.#worker.context.clock.nowNs() + CLOSE_TIMEOUT_NS;
  }

  /** Waits for a condition, up to the close timeout. */
  async waitFor(isOver: () => boolean): Promise<void> {
    const { clock } = this.#worker.context;
    const closeTimeoutEnds = clock.nowNs() + CLOSE_TIMEOUT_NS;
    await this.#worker.promises.until(() => isOver() || clock.nowNs() > closeTimeoutEnds);
  }

  /** Waits for a condition, up to the close timeout of an endpoint, and of the worker; on a forced close up to `forcedNs`. */
  async within(isOver: () => boolean, isForced: () => boolean, forcedNs: number): Promise<void> {
    const { clock } = this.#worker.context;
    const startedNs = clock.nowNs();
    const ends = Math.min(this.#closeTimeoutEnds, startedNs + CLOSE_TIMEOUT_NS);
    const isLate = (): boolean => clock.nowNs() > (isForced() ? Math.min(ends, startedNs + forcedNs) : ends);
    await this.#worker.promises.until(() => isOver() || isLate());
  }

  /** Waits for an endpoint to close. If that may hang, only up to a time-out: the peer may never answer. */
  async closed(closing: Status | Request, mayHang: () => boolean, timeoutNs: number = CLOSE_TIMEOUT_NS): Promise<void> {
    if (typeof closing === 'number') return;
    const { clock } = this.#worker.context;
    const closeTimeoutEnds = Math.min(this.#closeTimeoutEnds, clock.nowNs() + timeoutNs);
    const isOver = this.freeEventually(closing);
    await this.#worker.promises.until(() => isOver() || (mayHang() && clock.nowNs() > closeTimeoutEnds));
  }

  /**
   * Makes progress for a limited time: during progress, libucp drops the lanes of an endpoint that was closed by force, and the peer detects it then. The
   * result is not waited for, because hanging operations on other endpoints may delay it.
   */
  dropLanes(): void {
    const worker = this.#worker;
    if (this.#closeTimeoutEnds !== Number.POSITIVE_INFINITY) return;
    const flush = worker.flushUcp({ noImmediateCompletion: true });
    if (typeof flush === 'number') return;
    const isOver = this.freeEventually(flush);
    this.waitFor(() => isOver() || worker.closed).catch(throwLater);
  }

  /** Frees a request as soon as it has ended. @returns a function that returns whether it has */
  freeEventually(request: Request): () => boolean {
    let isOver = false;
    const end = (ended: Request): void => {
      isOver = true;
      ended.free();
    };
    if (request.isCompleted) end(request);
    else request.callback = end;
    return () => isOver;
  }
}
