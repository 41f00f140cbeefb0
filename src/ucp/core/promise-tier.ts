/**
 * The awaited tier on top of the nbx tier: turns requests into promises and drives progress by itself. It polls for a short time, then sleeps
 * on the events of the transports; a program that awaits nothing uses no CPU.
 */

import type { Clock } from '../../ucs/clock.ts';
import { AbortError, statusError, type UcxError } from '../../ucs/error.ts';
import { Status } from '../../ucs/status.ts';
import type { Iface } from '../../uct/api/iface.ts';
import type { Request, RequestParams } from './request.ts';

/** Longest sleep without a look at the world: bounds the cost of an event that never comes. */
const SLEEP_NS_MAX = 1e9;

/** Polls of one turn at most, whatever the clock says. */
const POLLS_MAX = 10_000;
/** Pause between two turns in which there is nothing to wait for. */
const PAUSE_NS = 1e6;

/** What the tier drives. */
export interface Progressable {
  progress(): number;
  readonly ifaces: readonly Iface[];
}

/** Which transport moved the bytes. */
export interface Carrier {
  readonly transport: string | undefined;
  readonly device: string | undefined;
  readonly protocol: string | undefined;
}

const NO_CARRIER: Carrier = { transport: undefined, device: undefined, protocol: undefined };

/** Starts an operation of the nbx tier. */
export type StartOperation = (params: RequestParams) => Status | Request;

/** The awaited operations of one worker. */
export class PromiseTier {
  readonly #worker: Progressable;
  readonly #clock: Clock;
  readonly #spinNs: number;
  /** Operations that somebody awaits. */
  #awaited = 0;
  #driving = false;

  constructor(worker: Progressable, clock: Clock, spinNs: number) {
    this.#worker = worker;
    this.#clock = clock;
    this.#spinNs = spinNs;
  }

  /**
   * Runs an operation to its end.
   * @throws UcxError with the failure of the operation; AbortError (code ABORT_ERR) when `signal` fired, as soon as no transport touches
   *   the caller's memory any more
   */
  async run(what: string, signal: AbortSignal | undefined, start: StartOperation): Promise<Carrier> {
    for (;;) {
      throwIfAborted(signal);
      const ended = deferred<Status>();
      let carrier = NO_CARRIER;
      let iface: Iface | undefined;
      const result = start({
        noImmediateCompletion: true,
        callback: (request, status) => {
          carrier = { transport: request.transport, device: request.device, protocol: request.protocol };
          iface = request.lane?.iface;
          ended.resolve(status);
        },
      });
      if (result === Status.NO_RESOURCE) {
        await this.#driveOnce();
        continue;
      }
      if (typeof result === 'number') {
        if (result < 0) throw this.#failure(result, what, undefined);
        return NO_CARRIER;
      }
      const status = await this.#awaitRequest(result, ended.promise, signal);
      result.free();
      throwIfAborted(signal);
      if (status < 0) throw this.#failure(status, what, iface);
      return carrier;
    }
  }

  /** Runs an operation to its end whatever becomes of it, for closing. */
  async settle(start: StartOperation): Promise<void> {
    const ended = deferred<Status>();
    const result = start({ noImmediateCompletion: true, callback: (_request, status) => ended.resolve(status) });
    if (typeof result === 'number') return;
    await this.#awaitRequest(result, ended.promise, undefined);
    result.free();
  }

  /** The error for a failed operation, with what its transport knows as the cause; a flush may have failed on any of them. */
  #failure(status: Status, what: string, iface: Iface | undefined): UcxError {
    const asked = iface === undefined ? this.#worker.ifaces : [iface];
    const cause = asked.map((candidate) => candidate.errorOf(status)).find((error) => error !== undefined);
    return statusError(status, what, cause);
  }

  async #awaitRequest(request: Request, ended: Promise<Status>, signal: AbortSignal | undefined): Promise<Status> {
    if (request.isCompleted) return request.status;
    const cancel = (): void => {
      request.cancel();
    };
    signal?.addEventListener('abort', cancel, { once: true });
    this.#awaited += 1;
    void this.#drive();
    try {
      return await ended;
    } finally {
      this.#awaited -= 1;
      signal?.removeEventListener('abort', cancel);
    }
  }

  /** Polls and sleeps by turns until nobody awaits anything. */
  async #drive(): Promise<void> {
    if (this.#driving) return;
    this.#driving = true;
    try {
      while (this.#awaited > 0) await this.#driveOnce();
    } finally {
      this.#driving = false;
    }
  }

  /** One turn: polls for the spin time, then sleeps until a transport has something new. */
  async #driveOnce(): Promise<void> {
    const deadline = this.#clock.nowNs() + this.#spinNs;
    for (let polls = 0; polls < POLLS_MAX; polls++) {
      if (this.#worker.progress() > 0) {
        // Lets the promises that were just resolved run, and start what they start next.
        await Promise.resolve();
        return;
      }
      if (this.#clock.nowNs() >= deadline) break;
    }
    const sleeping = this.#worker.ifaces.filter((iface) => iface.outstanding > 0);
    if (sleeping.length > 0) await Promise.race(sleeping.map((iface) => iface.wait(SLEEP_NS_MAX)));
    else await this.#pause();
  }

  /** Lets the event loop turn where no transport has an event: the application must free requests first. */
  #pause(): Promise<void> {
    return new Promise((resolve) => {
      this.#clock.setTimer(PAUSE_NS, resolve).ref();
    });
  }
}

/** A promise with its resolver. */
interface Deferred<T> {
  readonly promise: Promise<T>;
  resolve(value: T): void;
}

function deferred<T>(): Deferred<T> {
  let resolve: (value: T) => void = () => {};
  const promise = new Promise<T>((settle) => {
    resolve = settle;
  });
  return { promise, resolve };
}

function throwIfAborted(signal: AbortSignal | undefined): void {
  if (signal?.aborted === true) throw new AbortError(signal);
}
