/**
 * Teardown of one worker: what it waits for, and its close timeout. libucp never completes some operations to a failed peer, so closing waits for a limited
 * time.
 */

import type { PromiseTier } from '../../api/awaited/promises.ts';
import type { Request } from '../../api/contract/request.ts';
import type { Clock } from '../../ucs/sys/clock.ts';
import type { Status } from '../../ucs/type/status.ts';

/** Time limit for libucp operations that may hang. */
const CLOSE_TIMEOUT_NS = 1e9;

export class Teardown {
  readonly #clock: Clock;
  readonly #promises: PromiseTier;
  /** Deadline of the whole teardown, once the worker is closing. */
  #closeTimeoutEnds = Number.POSITIVE_INFINITY;

  constructor(clock: Clock, promises: PromiseTier) {
    this.#clock = clock;
    this.#promises = promises;
  }

  /** Whether the worker is closing. */
  get hasBegun(): boolean {
    return this.#closeTimeoutEnds !== Number.POSITIVE_INFINITY;
  }

  /** Starts the close timeout. */
  begin(): void {
    this.#closeTimeoutEnds = this.#clock.nowNs() + CLOSE_TIMEOUT_NS;
  }

  /** Waits for a condition, up to the close timeout. */
  async waitFor(isOver: () => boolean): Promise<void> {
    const clock = this.#clock;
    const closeTimeoutEnds = clock.nowNs() + CLOSE_TIMEOUT_NS;
    await this.#promises.until(() => isOver() || clock.nowNs() > closeTimeoutEnds);
  }

  /** Waits for a condition, up to the close timeouts of an endpoint and of the worker; on a forced close up to `forcedNs`. */
  async within(isOver: () => boolean, isForced: () => boolean, forcedNs: number): Promise<void> {
    const clock = this.#clock;
    const startedNs = clock.nowNs();
    const ends = Math.min(this.#closeTimeoutEnds, startedNs + CLOSE_TIMEOUT_NS);
    const isLate = (): boolean => clock.nowNs() > (isForced() ? Math.min(ends, startedNs + forcedNs) : ends);
    await this.#promises.until(() => isOver() || isLate());
  }

  /** Waits for an endpoint to close. If that may hang, only for a limited time: the peer may never reply. */
  async closed(closing: Status | Request, mayHang: () => boolean, timeoutNs: number = CLOSE_TIMEOUT_NS): Promise<void> {
    if (typeof closing === 'number') return;
    const clock = this.#clock;
    const closeTimeoutEnds = Math.min(this.#closeTimeoutEnds, clock.nowNs() + timeoutNs);
    const isOver = this.freeEventually(closing);
    await this.#promises.until(() => isOver() || (mayHang() && clock.nowNs() > closeTimeoutEnds));
  }

  /** Frees a request as soon as it has ended. @returns a function that tells whether it has ended */
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
