/**
 * The awaited tier on top of the nbx tier: turns requests into promises. progress-driver.ts drives the progress meanwhile.
 */

import { AbortError, invalidParam, statusError } from '../../../ucs/type/error.ts';
import { Status } from '../../../ucs/type/status.ts';
import { checkOptions } from '../check-options.ts';
import type { Request, RequestParams } from '../request.ts';
import { AbortListeners } from './abort-listeners.ts';
import type { ProgressDriver } from './progress-driver.ts';

/** What an operation tells when it has ended: what carried it (undefined where there was nothing to carry), and what was received. */
export interface Outcome {
  readonly protocol: string | undefined;
  readonly transport: string | undefined;
  readonly device: string | undefined;
  /** Bytes of the message that a receive has got. */
  readonly receivedBytes: number;
  /** Its tag. */
  readonly senderTag: bigint;
  /** Word before an atomic operation. */
  readonly atomicResult: bigint;
}

const NO_OUTCOME: Outcome = {
  protocol: undefined,
  transport: undefined,
  device: undefined,
  receivedBytes: 0,
  senderTag: 0n,
  atomicResult: 0n,
};

/** Starts an operation of the nbx tier. */
export type StartOperation = (params: RequestParams) => Status | Request;

/** How a request ended; taken before it is given back. */
interface Ending {
  readonly status: Status;
  readonly outcome: Outcome;
  readonly error: unknown;
}

/** An operation that was started. */
interface Started {
  readonly slot: EndingSlot;
  readonly result: Status | Request;
}

/** Where the callback of a request leaves its ending. */
interface EndingSlot {
  ending: Ending | undefined;
  notify: () => void;
}

/** What an engine knows about why an operation has failed; the request is undefined for one that ended at once. */
export type CauseOf = (status: Status, request: Request | undefined) => unknown;

/** The awaited operations of one worker. */
export class PromiseTier {
  readonly #driver: ProgressDriver;
  readonly #causeOf: CauseOf;
  readonly #listeners: AbortListeners = new AbortListeners();
  #running = 0;
  /** Operations that wait for a request, in order, and how many have been told that there is one. */
  readonly #turns: (() => void)[] = [];
  #granted = 0;
  readonly #idle: (() => void)[] = [];

  constructor(driver: ProgressDriver, causeOf: CauseOf) {
    this.#driver = driver;
    this.#causeOf = causeOf;
  }

  /**
   * Runs an operation to its end.
   * @param keepsResult what has come in spite of an abort is not thrown away: for receives
   * @throws UcxError with the failure of the operation; AbortError (code ABORT_ERR) when `signal` fired, as soon as no transport touches
   *   the caller's memory any more
   */
  async run(
    what: string,
    signal: AbortSignal | undefined,
    start: StartOperation,
    keepsResult = false,
  ): Promise<Outcome> {
    if (signal !== undefined) checkSignal(signal);
    // Behind those that came before and found no request.
    let hadTurn = this.#turns.length + this.#granted > 0;
    if (hadTurn) await this.#turn(signal, true);
    for (;;) {
      throwIfAborted(signal);
      const started = this.#start(start);
      // One that had its turn and found none stays in front; a new one stands behind the others at once.
      if (started.result === Status.NO_RESOURCE) {
        await this.#turn(signal, !hadTurn);
        hadTurn = true;
        continue;
      }
      const ending = await this.#end(started, signal);
      await this.#driver.breathe();
      if (ending.status < 0 || !keepsResult) throwIfAborted(signal);
      if (ending.status < 0) throw statusError(ending.status, what, ending.error);
      return ending.outcome;
    }
  }

  /** A request was given back: an operation that found none goes on. */
  requestFreed(): void {
    if (this.#turns.length === 0) return;
    const next = this.#turns.shift()!;
    this.#granted += 1;
    next();
  }

  /** Ends the sleep of {@link until}: its condition may have become true. */
  wake(): void {
    this.#driver.wake();
  }

  /** Runs something that awaits several operations as one, so that {@link idle} sees no gap between them. */
  async whole<T>(run: () => Promise<T>): Promise<T> {
    this.#running += 1;
    try {
      return await run();
    } finally {
      this.#running -= 1;
      if (this.#running === 0) for (const resolve of this.#idle.splice(0)) resolve();
    }
  }

  /** Runs an operation whose result is kept in spite of an abort, so that {@link idle} sees it to its very end. */
  receive(what: string, signal: AbortSignal | undefined, start: StartOperation): Promise<Outcome> {
    return this.whole(() => this.run(what, signal, start, true));
  }

  /** Resolves when nothing that {@link whole} runs is under way. */
  idle(): Promise<void> {
    if (this.#running === 0) return Promise.resolve();
    return new Promise((resolve) => {
      this.#idle.push(resolve);
    });
  }

  /** Drives progress until `isDone`, for closing. */
  async until(isDone: () => boolean): Promise<void> {
    while (!isDone()) await this.#driver.step();
  }

  /** Waits until a request was given back. @param isNew false for an operation that had its turn and found none: it stays in front */
  async #turn(signal: AbortSignal | undefined, isNew: boolean): Promise<void> {
    let cancel: () => void = () => {};
    const granted = new Promise<void>((resolve) => {
      const run = (): void => resolve();
      if (isNew) this.#turns.push(run);
      else this.#turns.unshift(run);
      cancel = () => {
        const at = this.#turns.indexOf(run);
        if (at < 0) return;
        this.#turns.splice(at, 1);
        this.#granted += 1;
        resolve();
      };
    });
    if (signal !== undefined) this.#listeners.add(signal, cancel);
    this.#driver.begin();
    await granted;
    this.#driver.end();
    if (signal !== undefined) this.#listeners.remove(signal, cancel);
    this.#granted -= 1;
    // The request is for the next one.
    if (signal?.aborted === true) this.requestFreed();
  }

  /** Starts an operation; what has not ended ends in the slot. */
  #start(start: StartOperation): Started {
    const slot: EndingSlot = { ending: undefined, notify: () => {} };
    const callback = (request: Request, status: Status): void => {
      const error = status < 0 ? (request.error ?? this.#causeOf(status, request)) : undefined;
      slot.ending = { status, outcome: outcomeOf(request), error };
      request.free();
      slot.notify();
    };
    try {
      return { slot, result: start({ noImmediateCompletion: true, callback }) };
    } catch (error) {
      // The turn that it may have had is for the next one.
      this.requestFreed();
      throw error;
    }
  }

  async #end({ slot, result }: Started, signal: AbortSignal | undefined): Promise<Ending> {
    if (typeof result !== 'number' && slot.ending === undefined) await this.#awaitEnd(result, slot, signal);
    return slot.ending ?? this.#endedAtOnce(result as Status);
  }

  async #awaitEnd(request: Request, slot: EndingSlot, signal: AbortSignal | undefined): Promise<void> {
    const cancel = (): void => {
      // Once it has ended, the request belongs to another operation.
      if (slot.ending === undefined) request.cancel();
    };
    // Listening comes first: driving may end the operation at once.
    const ended = new Promise<void>((resolve) => {
      slot.notify = resolve;
    });
    if (signal !== undefined) this.#listeners.add(signal, cancel);
    this.#driver.begin();
    try {
      await ended;
    } finally {
      this.#driver.end();
      if (signal !== undefined) this.#listeners.remove(signal, cancel);
    }
  }

  #endedAtOnce(status: Status): Ending {
    const error = status < 0 ? this.#causeOf(status, undefined) : undefined;
    return { status, outcome: NO_OUTCOME, error };
  }
}

function outcomeOf(request: Request): Outcome {
  const { protocol, transport, device, receivedBytes, senderTag, atomicResult } = request;
  return { protocol, transport, device, receivedBytes, senderTag, atomicResult };
}

/** @throws UcxError ERR_INVALID_PARAM for what is no AbortSignal */
export function checkSignal(signal: AbortSignal): void {
  if (!(signal instanceof AbortSignal)) throw invalidParam('signal', 'must be an AbortSignal', signal);
}

/** The signal of options that have nothing else. @throws UcxError ERR_INVALID_PARAM */
export function signalOf(options: { readonly signal?: AbortSignal }): AbortSignal | undefined {
  checkOptions(options, 'options', ['signal']);
  if (options.signal !== undefined) checkSignal(options.signal);
  return options.signal;
}

function throwIfAborted(signal: AbortSignal | undefined): void {
  if (signal?.aborted === true) throw new AbortError(signal);
}
