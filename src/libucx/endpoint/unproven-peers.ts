/**
 * Endpoints to programs that do not use this library, until their peer has replied: libucp waits without a limit for a peer that cannot reply, because
 * it lacks a transport for the reply or has exited. A flush ends once the lanes are connected.
 */

import type { WorkerOptions } from '../../api/contract/worker.ts';
import type { Clock, Timer } from '../../ucs/sys/clock.ts';
import { systemRandomBytes } from '../../ucs/sys/random.ts';
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

/*
 * How the two ends of a connection by socket address recognise each other as ends of this engine, which tell each other when they close: libucp reports a
 * peer that closes and one that is killed alike, and a connection request has no private data of the program.
 *
 * Worker ids that the program has not chosen are marked, and a client sends its marked id. The listener's end then greets it by a message of the engine, and
 * is greeted back. Other UCX programs are sent no such message: they have no marked id.
 */

/** Multiplier of the mark: the upper half of a marked id is the lower half times this, modulo 2^32. An odd number, so that all ids differ. */
const MARK = 0x6755_4359;
const HALF_BITS = 32n;

/** The header of messages with the id of close messages, which have none. */
export const Notice = {
  /** The sender is of this engine. */
  GREETING: 1,
  /** The sender has consumed the close message. */
  ACKNOWLEDGEMENT: 2,
} as const;
export type Notice = (typeof Notice)[keyof typeof Notice];

/** A random client id that listeners of this engine recognise. */
export function markedClientId(): bigint {
  return markedWith(new DataView(systemRandomBytes(4).buffer).getUint32(0, true));
}

/** The options of a worker with a marked id, unless the program has chosen one; what is not an object is refused later. */
export function withMarkedId(options: WorkerOptions): WorkerOptions {
  if (typeof options !== 'object' || options === null || options.clientId !== undefined) return options;
  return { ...options, clientId: markedClientId() };
}

/** Whether a client id is marked. Of the random ids of other programs, one in 2^32 is. */
export function isMarked(clientId: bigint): boolean {
  return clientId !== 0n && markedWith(Number(clientId & 0xffff_ffffn)) === clientId;
}

function markedWith(low: number): bigint {
  return (BigInt(Math.imul(low, MARK) >>> 0) << HALF_BITS) | BigInt(low);
}
