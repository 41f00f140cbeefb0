/** Teardown of one worker: which operations it waits for, and how long. libucp never ends some operations of a peer that is gone. */

import type { PromiseTier } from '../../ucp/api/awaited/promise-tier.ts';
import type { Request, RequestParams } from '../../ucp/api/request.ts';
import { throwLater } from '../../ucs/debug/uncaught.ts';
import type { Clock } from '../../ucs/sys/clock.ts';
import type { Status } from '../../ucs/type/status.ts';

/** Time that libucp has to end what may hang. */
const CLOSE_TIMEOUT_NS = 1e9;

/** The worker. */
export interface TeardownWorker {
  readonly context: { readonly clock: Clock };
  readonly promises: PromiseTier;
  readonly closed: boolean;
  flushUcp(params: RequestParams | undefined): Status | Request;
}

/** The teardown. */
export class Teardown {
  readonly #worker: TeardownWorker;
  /** Of everything together, once the worker is closing. */
  #closeTimeoutEnds = Number.POSITIVE_INFINITY;

  constructor(worker: TeardownWorker) {
    this.#worker = worker;
  }

  /** The worker is closing. */
  begin(): void {
    this.#closeTimeoutEnds = this.#worker.context.clock.nowNs() + CLOSE_TIMEOUT_NS;
  }

  /** Waits for something, for a while. */
  async waitFor(isOver: () => boolean): Promise<void> {
    const { clock } = this.#worker.context;
    const closeTimeoutEnds = clock.nowNs() + CLOSE_TIMEOUT_NS;
    await this.#worker.promises.until(() => isOver() || clock.nowNs() > closeTimeoutEnds);
  }

  /** Waits for the closing of an endpoint. Where it may hang, for a while: the peer may never answer what libucp waits for. */
  async closed(closing: Status | Request, mayHang: () => boolean, timeoutNs: number = CLOSE_TIMEOUT_NS): Promise<void> {
    if (typeof closing === 'number') return;
    const { clock } = this.#worker.context;
    const closeTimeoutEnds = Math.min(this.#closeTimeoutEnds, clock.nowNs() + timeoutNs);
    const isOver = this.freeEventually(closing);
    await this.#worker.promises.until(() => isOver() || (mayHang() && clock.nowNs() > closeTimeoutEnds));
  }

  /**
   * Drives progress for a while: libucp drops the lanes of an endpoint that was closed by force in progress, and the peer sees it then. It is not waited for, as
   * what hangs on other endpoints may hold it up.
   */
  dropLanes(): void {
    const worker = this.#worker;
    if (this.#closeTimeoutEnds !== Number.POSITIVE_INFINITY) return;
    const flush = worker.flushUcp({ noImmediateCompletion: true });
    if (typeof flush === 'number') return;
    const isOver = this.freeEventually(flush);
    this.waitFor(() => isOver() || worker.closed).catch(throwLater);
  }

  /** Gives a request back as soon as it has ended. @returns whether it has */
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
