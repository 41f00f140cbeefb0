/** Rethrows an error of an application callback as an uncaught exception after the current call, so that the call completes its work. */

export function throwLater(error: unknown): void {
  queueMicrotask(() => {
    throw error;
  });
}
