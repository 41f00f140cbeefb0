/**
 * Endpoints to programs that do not use this library, until their peer has answered: libucp waits without a limit for a peer that cannot answer, because it
 * has no transport for that, or does not run any more. A flush ends once the lanes are connected.
 */

import type { Clock, Timer } from '../../ucs/sys/clock.ts';
import { UcxError } from '../../ucs/type/error.ts';
import { Status } from '../../ucs/type/status.ts';
import type { LibucpFunctions } from '../c/functions.ts';
import type { EngineEndpoint } from '../engine/engine.ts';

/** Time limit for the first answer. */
export const ANSWER_LIMIT_S = 30;
/** The limit consists of periods: a pause of the program, in which libucp makes no progress, counts as one. */
const PERIODS = 10;
const PERIOD_NS = (ANSWER_LIMIT_S * 1e9) / PERIODS;

/** An endpoint whose peer has not answered. */
interface Unproven {
  readonly endpoint: EngineEndpoint;
  /** The flush, a request of libucp. */
  readonly flush: number;
  periods: number;
}

/** The unproven peers of one worker. */
export class UnprovenPeers {
  readonly #functions: LibucpFunctions;
  readonly #param: number;
  readonly #clock: Clock;
  readonly #onDue: () => void;
  #all: Unproven[] = [];
  #timer: Timer | undefined;
  #isDue = false;

  /** @param param empty parameters of an operation (ucp_request_param_t) @param onDue called when {@link isDue} becomes true */
  constructor(functions: LibucpFunctions, param: number, clock: Clock, onDue: () => void) {
    this.#functions = functions;
    this.#param = param;
    this.#clock = clock;
    this.#onDue = onDue;
  }

  /** True if there is work for {@link progress}. */
  get isDue(): boolean {
    return this.#isDue;
  }

  /** Number of flushes that libucp has not ended. */
  get size(): number {
    this.#forgetProven();
    return this.#all.length;
  }

  /** Limits the time until the first answer of the peer of an endpoint. */
  expect(endpoint: EngineEndpoint): void {
    const flush = this.#functions.ucp_ep_flush_nbx(endpoint.handle, this.#param);
    if (flush <= 0) return;
    this.#all.push({ endpoint, flush, periods: PERIODS });
    this.#timer ??= this.#clock.setTimer(PERIOD_NS, this.#onPeriod);
  }

  /** Fails the endpoints whose limit has passed. */
  progress(): number {
    this.#isDue = false;
    this.#forgetProven();
    const failed = this.#all.filter(({ endpoint, periods }) => periods === 0 && endpoint.status === Status.OK);
    for (const { endpoint } of failed) endpoint.onFailed(Status.UNREACHABLE, false, unanswered());
    return failed.length;
  }

  /** Stops. The flushes stay with libucp. */
  close(): void {
    this.#timer?.cancel();
    this.#timer = undefined;
  }

  readonly #onPeriod = (): void => {
    this.#forgetProven();
    for (const unproven of this.#all) if (unproven.periods > 0) unproven.periods -= 1;
    this.#timer = this.#all.length === 0 ? undefined : this.#clock.setTimer(PERIOD_NS, this.#onPeriod);
    if (!this.#all.some(({ endpoint, periods }) => periods === 0 && endpoint.status === Status.OK)) return;
    this.#isDue = true;
    this.#onDue();
  };

  #forgetProven(): void {
    this.#all = this.#all.filter(({ flush }) => {
      if (this.#functions.ucp_request_check_status(flush) === Status.INPROGRESS) return true;
      this.#functions.ucp_request_free(flush);
      return false;
    });
  }
}

function unanswered(): UcxError {
  return new UcxError({
    code: 'ERR_UNREACHABLE',
    status: Status.UNREACHABLE,
    message:
      `the peer, which does not use this library, has not answered for ${ANSWER_LIMIT_S} s: it makes no progress, has ended, or has no transport to ` +
      "answer on; errorHandling: 'none' needs no answer over shared memory, and UCX_TLS selects the transports",
    details: { limitSeconds: ANSWER_LIMIT_S },
  });
}
