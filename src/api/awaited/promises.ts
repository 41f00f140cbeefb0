/** The awaited tier on top of the nbx tier: turns requests into promises. */

import { checkOptions } from '../../ucs/type/check-options.ts';
import { statusError, throwIfAborted } from '../../ucs/type/error.ts';
import { Status } from '../../ucs/type/status.ts';
import { addAbortCallback, checkSignal, removeAbortCallback } from '../contract/listener.ts';
import type { Request, RequestParams } from '../contract/request.ts';
import type { ProgressDriver } from '../progress/progress-driver.ts';

/** The result of an operation: transport, device and protocol (undefined if no bytes moved), and the received message. */
export interface Outcome {
  readonly protocol: string | undefined;
  readonly transport: string | undefined;
  readonly device: string | undefined;
  /** Bytes of the operation. */
  readonly byteLength: number;
  /** Bytes of the received message. */
  readonly receivedBytes: number;
  /** Tag of the received message. */
  readonly senderTag: bigint;
  /** Value of the word before an atomic operation. */
  readonly atomicResult: bigint;
}

const NO_OUTCOME: Outcome = {
  protocol: undefined,
  transport: undefined,
  device: undefined,
  byteLength: 0,
  receivedBytes: 0,
  senderTag: 0n,
  atomicResult: 0n,
};

/** Starts an operation of the nbx tier. */
export type StartOperation = (params: RequestParams) => Status | Request;

/** The result of a request, read before the request is freed. */
interface RequestResult {
  readonly status: Status;
  readonly outcome: Outcome;
  readonly error: unknown;
}

/** A started operation. */
interface Started {
  readonly slot: ResultSlot;
  readonly returned: Status | Request;
}

/** Receives the result in the callback of a request. */
interface ResultSlot {
  result: RequestResult | undefined;
  notify: () => void;
}

/** The cause of a failed operation, if the engine knows it; the request is undefined for an operation that ended in its call. */
export type CauseOf = (status: Status, request: Request | undefined) => unknown;

/** The awaited operations of one worker. */
export class PromiseTier {
  readonly #driver: ProgressDriver;
  readonly #causeOf: CauseOf;
  #running = 0;
  /** Operations that wait for a free request, in order, and the number of operations that were granted one and have not continued yet. */
  readonly #waiting: (() => void)[] = [];
  #granted = 0;
  readonly #idle: (() => void)[] = [];

  constructor(driver: ProgressDriver, causeOf: CauseOf) {
    this.#driver = driver;
    this.#causeOf = causeOf;
  }

  /**
   * Runs an operation to its end. If it is executed despite an abort, its promise resolves, so that a program that repeats aborted operations repeats nothing
   * that was done.
   * @throws UcxError with the failure of the operation; AbortError (code ABORT_ERR) if it was not executed because `signal` fired, as soon as no transport
   * uses the caller's memory
   */
  async run(what: string, signal: AbortSignal | undefined, start: StartOperation): Promise<Outcome> {
    if (signal !== undefined) checkSignal(signal);
    // It follows the operations that already wait for a request.
    let hasWaited = this.#waiting.length + this.#granted > 0;
    if (hasWaited) await this.#awaitRequest(signal, true);
    for (;;) {
      throwIfAborted(signal);
      const started = this.#start(start);
      // An operation that has waited before stays in front; a new one is queued last.
      if (started.returned === Status.NO_RESOURCE) {
        await this.#awaitRequest(signal, !hasWaited);
        hasWaited = true;
        continue;
      }
      const result = await this.#resultOf(started, signal);
      await this.#driver.yieldIfDue();
      if (result.status >= 0) return result.outcome;
      throwIfAborted(signal);
      throw statusError(result.status, what, result.error);
    }
  }

  /** Called when a request was freed: the first waiting operation continues. */
  requestFreed(): void {
    const next = this.#waiting.shift();
    if (next === undefined) return;
    this.#granted += 1;
    next();
  }

  /** Ends the sleep of {@link until}: its condition may have become true. */
  wake(): void {
    this.#driver.wake();
  }

  /** Runs a function with several awaited operations, which {@link idle} waits for. */
  async track<T>(run: () => Promise<T>): Promise<T> {
    this.#running += 1;
    try {
      return await run();
    } finally {
      this.#running -= 1;
      if (this.#running === 0) for (const resolve of this.#idle.splice(0)) resolve();
    }
  }

  /** Runs an operation, which {@link idle} waits for. */
  runTracked(what: string, signal: AbortSignal | undefined, start: StartOperation): Promise<Outcome> {
    return this.track(() => this.run(what, signal, start));
  }

  /** Whether no function of {@link track} is running. */
  get isIdle(): boolean {
    return this.#running === 0;
  }

  /** Resolves when no function of {@link track} is running. */
  idle(): Promise<void> {
    if (this.isIdle) return Promise.resolve();
    return new Promise((resolve) => {
      this.#idle.push(resolve);
    });
  }

  /** Drives progress until `isDone`, for closing. */
  async until(isDone: () => boolean): Promise<void> {
    while (!isDone()) await this.#driver.step();
  }

  /** Waits for a free request. @param isNew false for an operation that has waited before: it stays in front */
  async #awaitRequest(signal: AbortSignal | undefined, isNew: boolean): Promise<void> {
    let cancel: () => void = () => {};
    const granted = new Promise<void>((resolve) => {
      const run = (): void => resolve();
      if (isNew) this.#waiting.push(run);
      else this.#waiting.unshift(run);
      cancel = () => {
        const at = this.#waiting.indexOf(run);
        if (at < 0) return;
        this.#waiting.splice(at, 1);
        this.#granted += 1;
        resolve();
      };
    });
    if (signal !== undefined) addAbortCallback(signal, cancel);
    this.#driver.begin();
    await granted;
    this.#driver.end();
    if (signal !== undefined) removeAbortCallback(signal, cancel);
    this.#granted -= 1;
    // The request goes to the next operation.
    if (signal?.aborted === true) this.requestFreed();
  }

  /** Starts an operation; if it is in progress, its result is stored in the slot. */
  #start(start: StartOperation): Started {
    const slot: ResultSlot = { result: undefined, notify: () => {} };
    const callback = (request: Request, status: Status): void => {
      const error = status < 0 ? (request.error ?? this.#causeOf(status, request)) : undefined;
      slot.result = { status, outcome: outcomeOf(request), error };
      request.free();
      slot.notify();
    };
    try {
      const returned = start({ noImmediateCompletion: true, callback });
      const isEnded = typeof returned === 'number' && returned !== Status.NO_RESOURCE;
      // An operation without bytes, or on a failed connection, has ended without using the request that it was granted, which the next operation gets.
      if (isEnded && slot.result === undefined) this.requestFreed();
      return { slot, returned };
    } catch (error) {
      // The next operation gets the request that this one was granted.
      this.requestFreed();
      throw error;
    }
  }

  async #resultOf({ slot, returned }: Started, signal: AbortSignal | undefined): Promise<RequestResult> {
    if (typeof returned !== 'number' && slot.result === undefined) await this.#awaitEnd(returned, slot, signal);
    return slot.result ?? this.#immediateResult(returned as Status);
  }

  async #awaitEnd(request: Request, slot: ResultSlot, signal: AbortSignal | undefined): Promise<void> {
    const cancel = (): void => {
      // After the end of the operation, the request belongs to another one.
      if (slot.result === undefined) request.cancel();
    };
    // Before driving starts, because the operation may end immediately.
    const ended = new Promise<void>((resolve) => {
      slot.notify = resolve;
    });
    if (signal !== undefined) addAbortCallback(signal, cancel);
    this.#driver.begin();
    try {
      await ended;
    } finally {
      this.#driver.end();
      if (signal !== undefined) removeAbortCallback(signal, cancel);
    }
  }

  #immediateResult(status: Status): RequestResult {
    const error = status < 0 ? this.#causeOf(status, undefined) : undefined;
    return { status, outcome: NO_OUTCOME, error };
  }
}

function outcomeOf(request: Request): Outcome {
  const { protocol, transport, device, byteLength, receivedBytes, senderTag, atomicResult } = request;
  return { protocol, transport, device, byteLength, receivedBytes, senderTag, atomicResult };
}

/** The signal of options without other fields. @throws UcxError ERR_INVALID_PARAM */
export function signalOf(options: { readonly signal?: AbortSignal | undefined }): AbortSignal | undefined {
  checkOptions(options, 'options', ['signal']);
  if (options.signal !== undefined) checkSignal(options.signal);
  return options.signal;
}
