/**
 * JavaScript functions that C calls: a function pointer, without exceptions across the frames of C. Not for frequent calls from other
 * threads: each waits for the event loop (30 us).
 */

import { throwLater } from '../../ucs/debug/uncaught.ts';
import { invalidParam } from '../../ucs/type/error.ts';
import type { NativeType } from './dynamic-library.ts';
import { koffi } from './koffi.ts';

/** Maximum number of parameters. */
const PARAMETERS_MAX = 6;

let openCount = 0;

/** Number of open {@link NativeCallback}s of this thread. */
export function openNativeCallbacks(): number {
  return openCount;
}

/** Function called by C. 64-bit integers are Numbers up to 2^53 and bigints beyond. */
// biome-ignore lint/suspicious/noExplicitAny: the parameters of any callback
export type NativeCallbackFunction = (...values: any[]) => unknown;

/** Parameters of a {@link NativeCallback}. */
export interface NativeCallbackInit {
  readonly parameters: readonly NativeType[];
  readonly result: NativeType;
  /** Result for C if the function throws or does not return a number; omitted if the result is void. */
  readonly fallback?: number;
  readonly call: NativeCallbackFunction;
}

/** A C function pointer that runs a JavaScript function (70 ns). There are at most 8192 at once, in all threads together. */
export class NativeCallback {
  /** The function pointer; calling it after {@link close} is undefined. */
  readonly address: number;
  #registration: bigint | undefined;

  /** @throws UcxError ERR_INVALID_PARAM for more than six parameters, or a missing fallback if there is a result */
  constructor(init: NativeCallbackInit) {
    const { parameters, result } = init;
    if (parameters.length > PARAMETERS_MAX) {
      throw invalidParam('parameters', `must be ${PARAMETERS_MAX} at most`, parameters.length);
    }
    if (result !== 'void' && init.fallback === undefined) {
      throw invalidParam('fallback', `must be given for a result of type ${result}`, init.fallback);
    }
    const proto = prototypeOf(result, parameters);
    this.#registration = koffi.register(result === 'void' ? guardedProcedure(init) : guardedFunction(init), proto);
    this.address = Number(this.#registration);
    openCount++;
  }

  /** Releases the pointer; the next callback may have the same. Must not be called within the callback itself. Idempotent. */
  close(): void {
    if (this.#registration === undefined) return;
    koffi.unregister(this.#registration);
    this.#registration = undefined;
    openCount--;
  }
}

/** The pointer type of each signature: koffi keeps every type for ever. */
const prototypes: Map<string, ReturnType<typeof koffi.pointer>> = new Map();

function prototypeOf(result: string, parameters: readonly string[]): ReturnType<typeof koffi.pointer> {
  const signature = [result, ...parameters].join();
  let proto = prototypes.get(signature);
  if (proto === undefined) {
    proto = koffi.pointer(koffi.proto(result, [...parameters]));
    prototypes.set(signature, proto);
  }
  return proto;
}

/** Explicit parameters: spreading them would create an array for each call. */
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
