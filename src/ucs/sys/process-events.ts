/** The end of the process and its signals, for as many as want to hear of them: one listener of `process` serves all, so that none is one too many. */

type Callbacks = Set<() => void>;

const callbacksOf = new Map<string, { readonly callbacks: Callbacks; readonly listener: () => void }>();

/**
 * Has `callback` run when the process ends by itself: after its last event, by process.exit() or by an uncaught exception. Only what is done when it
 * returns is done. Nothing runs when a signal kills the process.
 * @returns what takes that back
 */
export function atExit(callback: () => void): () => void {
  return on('exit', callback);
}

/** Has `callback` run at every such signal, which no longer ends the process. Returns what takes that back. */
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

/** Runs all, whatever one of them throws; the first such error is thrown behind them. */
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
