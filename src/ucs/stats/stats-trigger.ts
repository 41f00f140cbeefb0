/** Triggers of statistics: signals and timers. It writes nothing. */

import { constants } from 'node:os';
import type { Clock, Timer } from '../sys/clock.ts';
import { atSignal } from '../sys/process-events.ts';
import { keysOf } from '../type/keys.ts';

/** When statistics are written. */
export type StatsTrigger =
  | { readonly kind: 'exit' }
  | { readonly kind: 'signal'; readonly signal: NodeJS.Signals }
  | { readonly kind: 'timer'; readonly intervalNs: number };

/** The signal with a name (`SIGUSR1`, `usr1`) or number that a program can handle; undefined if there is none. */
export function signalNumber(text: string): NodeJS.Signals | undefined {
  const word = text.trim().toUpperCase();
  const { signals } = constants;
  const found = keysOf(signals).find((name) => [name, name.slice(3), String(signals[name])].includes(word));
  // A process cannot handle these two.
  return found === 'SIGKILL' || found === 'SIGSTOP' ? undefined : found;
}

/**
 * Runs `write` at every trigger except the end of the process. Neither signal nor timer keeps the process alive.
 * @returns a function that stops it
 */
export function onTrigger(trigger: StatsTrigger, clock: Clock, write: () => void): () => void {
  if (trigger.kind === 'signal') return atSignal(trigger.signal, write);
  if (trigger.kind === 'exit') return () => {};
  let timer: Timer | undefined;
  const again = (): void => {
    timer = clock.setTimer(trigger.intervalNs, () => {
      write();
      again();
    });
  };
  again();
  return () => timer?.cancel();
}
