/** Triggers of statistics: signals and timers. It writes nothing. */

import { constants } from 'node:os';
import type { Clock, Timer } from '../sys/clock.ts';
import { atSignal } from '../sys/process-events.ts';

/** When statistics are written. */
export type StatsTrigger =
  | { readonly kind: 'exit' }
  | { readonly kind: 'signal'; readonly signal: NodeJS.Signals }
  | { readonly kind: 'timer'; readonly intervalNs: number };

/** The signal with a name (`SIGUSR1`, `usr1`) or number that a program can handle; undefined if there is none. */
export function signalNumber(text: string): NodeJS.Signals | undefined {
  const word = text.trim().toUpperCase();
  const entries = Object.entries(constants.signals) as [NodeJS.Signals, number][];
  const found = entries.find(([name, number]) => name === word || name === `SIG${word}` || String(number) === word);
  // A process cannot handle these two.
  if (found === undefined || found[0] === 'SIGKILL' || found[0] === 'SIGSTOP') return undefined;
  return found[0];
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
