/** Signals of faults, such as SIGSEGV: a process can wait for a debugger at one, where it would end. */

import { dlsym, signalCall } from '../base/libc.ts';

/**
 * Makes the thread that causes or receives one of these signals wait in pause(2). A handler must be a C function, as JavaScript cannot run in one; pause returns
 * only behind another handler, and then the faulty instruction faults again.
 */
export function waitAtSignals(signals: readonly number[]): void {
  const pause = dlsym(0, 'pause');
  for (const signal of signals) signalCall(signal, pause);
}
