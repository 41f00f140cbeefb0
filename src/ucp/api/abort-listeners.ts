/**
 * Callbacks of AbortSignals: one listener per signal, shared by all operations, loops and waits of all workers, because Node warns about a signal with
 * more than ten.
 */

import { invalidParam } from '../../ucs/type/error.ts';

/** @throws UcxError ERR_INVALID_PARAM for a value that is not an AbortSignal */
export function checkSignal(signal: AbortSignal): void {
  if (!(signal instanceof AbortSignal)) throw invalidParam('signal', 'must be an AbortSignal', signal);
}

const CALLBACKS: WeakMap<AbortSignal, Set<() => void>> = new WeakMap();

function onAbort({ target }: Event): void {
  for (const callback of CALLBACKS.get(target as AbortSignal) ?? []) callback();
}

/** Calls `callback`, which must not throw, when the signal fires, until {@link removeAbortCallback}; soon if it has fired already. */
export function addAbortCallback(signal: AbortSignal, callback: () => void): void {
  if (signal.aborted) {
    queueMicrotask(callback);
    return;
  }
  let callbacks = CALLBACKS.get(signal);
  if (callbacks === undefined) {
    callbacks = new Set();
    CALLBACKS.set(signal, callbacks);
    signal.addEventListener('abort', onAbort);
  }
  callbacks.add(callback);
}

/** Removes a callback of {@link addAbortCallback}. Idempotent. */
export function removeAbortCallback(signal: AbortSignal, callback: () => void): void {
  const callbacks = CALLBACKS.get(signal);
  if (callbacks === undefined) return;
  callbacks.delete(callback);
  if (callbacks.size > 0) return;
  CALLBACKS.delete(signal);
  signal.removeEventListener('abort', onAbort);
}

/** {@link addAbortCallback} in the form of events.addAbortListener. */
export function addAbortListener(signal: AbortSignal, callback: () => void): Disposable {
  addAbortCallback(signal, callback);
  return { [Symbol.dispose]: () => removeAbortCallback(signal, callback) };
}
