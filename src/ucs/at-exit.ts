/** Runs call-backs when the process ends by itself: after its last event, by process.exit() or by an uncaught exception. Nothing runs after a signal kills it. */

const callbacks = new Set<() => void>();

function runAll(): void {
  for (const callback of [...callbacks]) callback();
}

/**
 * Has `callback` run when the process ends; only what is done when it returns is done. One listener serves all, however many there are.
 * @returns what takes that back
 */
export function atExit(callback: () => void): () => void {
  if (callbacks.size === 0) process.on('exit', runAll);
  callbacks.add(callback);
  return () => {
    callbacks.delete(callback);
    if (callbacks.size === 0) process.off('exit', runAll);
  };
}
