/**
 * JavaScript functions that C calls: a function pointer, and the rule that nothing which is thrown crosses the frames of C. Not for calls from other
 * threads in quantity: each waits for the event loop (30 us).
 */

import './platform.ts';
import koffi from 'koffi';
import { throwLater } from '../ucs/debug/uncaught.ts';
import { invalidParam } from '../ucs/type/error.ts';
import type { NativeType } from './dynamic-library.ts';

/** Parameters at most. */
const PARAMETERS_MAX = 6;

let openCount = 0;

/** How many {@link NativeCallback}s of this thread are open. */
export function openNativeCallbacks(): number {
  return openCount;
}

/** What C calls. Integers of 64 bits are Numbers up to 2^53 and bigints beyond. */
// biome-ignore lint/suspicious/noExplicitAny: the parameters of any callback
export type NativeCallbackFunction = (...values: any[]) => unknown;

/** What is needed to build a {@link NativeCallback}. */
export interface NativeCallbackInit {
  readonly parameters: readonly NativeType[];
  readonly result: NativeType;
  /** What C gets when the function throws, or returns what is no number; nothing where the result is void. */
  readonly fallback?: number;
  readonly call: NativeCallbackFunction;
}

/** A pointer to a function of C that runs one of JavaScript (70 ns). There are 8192 at most at once, in all threads together. */
export class NativeCallback {
  /** The function pointer; calling it after {@link close} is undefined. */
  readonly address: number;
  #registration: bigint | undefined;

  /** @throws UcxError ERR_INVALID_PARAM for more than six parameters, or no fallback where there is a result */
  constructor(init: NativeCallbackInit) {
    const { parameters, result } = init;
    if (parameters.length > PARAMETERS_MAX) {
      throw invalidParam('parameters', `must be ${PARAMETERS_MAX} at most`, parameters.length);
    }
    if (result !== 'void' && init.fallback === undefined) {
      throw invalidParam('fallback', `must be given for a result of type ${result}`, init.fallback);
    }
    const proto = koffi.pointer(koffi.proto(result, [...parameters]));
    this.#registration = koffi.register(result === 'void' ? guardedProcedure(init) : guardedFunction(init), proto);
    this.address = Number(this.#registration);
    openCount++;
  }

  /** Gives the pointer back; the next callback may get the same. Not from within the callback itself. Idempotent. */
  close(): void {
    if (this.#registration === undefined) return;
    koffi.unregister(this.#registration);
    this.#registration = undefined;
    openCount--;
  }
}

/** Parameters are counted out: spreading them would make an array for each call. */
type Guarded = (a: unknown, b: unknown, c: unknown, d: unknown, e: unknown, f: unknown) => number | undefined;

function guardedProcedure({ call }: NativeCallbackInit): Guarded {
  return (a, b, c, d, e, f) => {
    try {
      call(a, b, c, d, e, f);
    } catch (error) {
      throwLater(error);
    }
    return undefined;
  };
}

function guardedFunction({ call, fallback }: NativeCallbackInit): Guarded {
  return (a, b, c, d, e, f) => {
    try {
      const result = call(a, b, c, d, e, f);
      if (typeof result === 'number') return result;
      throw invalidParam('call', 'must return a number', result);
    } catch (error) {
      throwLater(error);
      return fallback;
    }
  };
}
