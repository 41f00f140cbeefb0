/** What a callback of the application throws while others still have to be served: it becomes an uncaught exception, as from any other callback. */

/** Throws an error when the code at hand has ended. */
export function throwLater(error: unknown): void {
  queueMicrotask(() => {
    throw error;
  });
}
