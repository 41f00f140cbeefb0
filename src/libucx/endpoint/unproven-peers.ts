/**
 * Endpoints to programs that do not use this library, until the first reply of their peer. libucp waits without a limit for a peer that cannot reply,
 * because it has exited or lacks a transport for the reply. A flush completes once the lanes are connected.
 */

import type { WorkerOptions } from '../../api/contract/worker.ts';
import type { Clock, Timer } from '../../ucs/sys/clock.ts';
import { systemRandomBytes } from '../../ucs/sys/random.ts';
import { UcxError } from '../../ucs/type/error.ts';
import { Status } from '../../ucs/type/status.ts';
import type { LibucpFunctions } from '../c/functions.ts';
import type { EngineEndpoint } from '../engine/engine.ts';

/** Time limit for the first reply. */
export const ANSWER_LIMIT_S = 30;
/** The limit is counted in periods: a pause of the program, in which libucp makes no progress, counts as one. */
const PERIODS = 10;
const PERIOD_NS = (ANSWER_LIMIT_S * 1e9) / PERIODS;

/** An endpoint whose peer has not replied. */
interface Unproven {
  readonly endpoint: EngineEndpoint;
  /** The libucp request of the flush. */
  readonly flush: number;
  periods: number;
}

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

  /** Whether there is work for {@link progress}. */
  get isDue(): boolean {
    return this.#isDue;
  }

  /** Number of flushes that libucp has not ended. */
  get size(): number {
    this.#forgetProven();
    return this.#all.length;
  }

  /** Limits the time until the first reply of the peer. */
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

  /** Stops the checks. libucp keeps the requests of the flushes. */
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
      `no reply within ${ANSWER_LIMIT_S} s from the peer, which does not use this library: it makes no progress, has ended, or lacks a transport for ` +
      "the reply; select common transports by UCX_TLS, or use errorHandling: 'none', which needs no reply over shared memory",
    details: { limitSeconds: ANSWER_LIMIT_S },
  });
}

/**
 * Notices by which the two ends of a connection by socket address detect that both use this engine, so that they send each other close messages: libucp
 * reports a closing peer and a killed one alike, and its connection requests have no private data.
 *
 * Worker ids that the program did not choose are marked, and a client sends its marked id. The listener then greets the client by an internal message, and
 * the client greets it back. Other UCX programs do not have a marked id, so they receive no such message.
 */

/** The upper half of a marked id is the lower half times this number, modulo 2^32. The number is odd, so that all ids differ. */
const MARK = 0x6755_4359;
const HALF_BITS = 32n;

/** Headers of messages with the AM id of close messages; a close message has no header. */
export const Notice = {
  /** The sender uses this engine. */
  GREETING: 1,
  /** The sender has handled the close message. */
  ACKNOWLEDGEMENT: 2,
} as const;
export type Notice = (typeof Notice)[keyof typeof Notice];

/** A random client id that listeners of this engine recognise. */
export function markedClientId(): bigint {
  return markedWith(new DataView(systemRandomBytes(4).buffer).getUint32(0, true));
}

/** Adds a marked id to the options of a worker, unless the program chose an id. Options that are not an object are rejected later. */
export function withMarkedId(options: WorkerOptions): WorkerOptions {
  if (typeof options !== 'object' || options === null || options.clientId !== undefined) return options;
  return { ...options, clientId: markedClientId() };
}

/** Whether a client id is marked. A random id of another program is with a probability of 2^-32. */
export function isMarked(clientId: bigint): boolean {
  return clientId !== 0n && markedWith(Number(clientId & 0xffff_ffffn)) === clientId;
}

function markedWith(low: number): bigint {
  return (BigInt(Math.imul(low, MARK) >>> 0) << HALF_BITS) | BigInt(low);
}
