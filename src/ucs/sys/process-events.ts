/**
 * Callbacks for the end of the process and for signals. One listener of `process` serves all callbacks, so that Node does not warn about too many
 * listeners.
 */

type Callbacks = Set<() => void>;

const callbacksOf = new Map<string, { readonly callbacks: Callbacks; readonly listener: () => void }>();

/**
 * Runs `callback` at the end of the process: after its last event, by process.exit() or by an uncaught exception. Asynchronous work of the callback is not
 * completed. If a signal kills the process, the callback does not run.
 * @returns a function that removes the callback
 */
export function atExit(callback: () => void): () => void {
  return on('exit', callback);
}

/** Runs `callback` at each signal of this kind, which then no longer ends the process. Returns a function that removes the callback. */
export function atSignal(signal: NodeJS.Signals, callback: () => void): () => void {
  return on(signal, callback);
}

function on(event: 'exit' | NodeJS.Signals, callback: () => void): () => void {
  let known = callbacksOf.get(event);
  if (known === undefined) {
    const callbacks: Callbacks = new Set();
    known = { callbacks, listener: () => runAll(callbacks) };
    callbacksOf.set(event, known);
    process.on(event, known.listener);
  }
  const { callbacks, listener } = known;
  callbacks.add(callback);
  return () => {
    callbacks.delete(callback);
    if (callbacks.size > 0 || callbacksOf.get(event)?.callbacks !== callbacks) return;
    callbacksOf.delete(event);
    process.off(event, listener);
  };
}

/** Runs all callbacks, even if one throws; the first error is thrown after the last callback. */
function runAll(callbacks: Callbacks): void {
  const errors: unknown[] = [];
  for (const callback of [...callbacks]) {
    try {
      callback();
    } catch (error) {
      errors.push(error);
    }
  }
  if (errors.length > 0) throw errors[0];
}
