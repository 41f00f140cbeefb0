/**
 * Turns an error thrown by a callback of the application into an uncaught exception after the current call, so that the remaining work of that call
 * is done.
 */

/** Throws an error as an uncaught exception after the current call. */
export function throwLater(error: unknown): void {
  queueMicrotask(() => {
    throw error;
  });
}
