/** Interruptible wait. */

import type { Clock } from '../../ucs/sys/clock.ts';

/** Waits for `ns` nanoseconds. Resolves to false if the signal is aborted before. */
export function pause(clock: Clock, ns: number, signal: AbortSignal): Promise<boolean> {
  return new Promise((resolve) => {
    const end = (isOver: boolean): void => {
      timer.cancel();
      signal.removeEventListener('abort', onAbort);
      resolve(isOver);
    };
    const onAbort = (): void => end(false);
    const timer = clock.setTimer(ns, () => end(true));
    timer.ref();
    if (signal.aborted) end(false);
    else signal.addEventListener('abort', onAbort);
  });
}
