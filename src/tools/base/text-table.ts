/** Formats byte counts, times, rates and tables; a progress bar for terminals; an interruptible wait. */

import type { Clock } from '../../ucs/sys/clock.ts';

/** Note below figures that were measured on emulated cards. */
export const EMULATED_NOTE = 'emulated: these figures measure memory copies on this host, not cards.';

/** A megabyte as in ucx_info and ucx_perftest (UCS_MBYTE). */
export const MEGABYTE: number = 2 ** 20;

const KIB = 1024;

/** Formats a byte count, such as `92.1 MiB`. */
export function formatBytes(bytes: number): string {
  const units = ['B', 'KiB', 'MiB', 'GiB', 'TiB'];
  let value = bytes;
  let unit = 0;
  while (value >= KIB && unit < units.length - 1) {
    value /= KIB;
    unit += 1;
  }
  return unit === 0 ? `${bytes} B` : `${value.toFixed(1)} ${units[unit]}`;
}

/** Formats a time, such as `12.34 ms`. */
export function formatTime(ns: number): string {
  if (ns < 1e3) return `${ns.toFixed(0)} ns`;
  if (ns < 1e6) return `${(ns / 1e3).toFixed(2)} us`;
  return ns < 1e9 ? `${(ns / 1e6).toFixed(2)} ms` : `${(ns / 1e9).toFixed(2)} s`;
}

/** Formats a rate in GB/s, with GB = 10^9 bytes. */
export function formatRate(bytes: number, ns: number): string {
  return (bytes / ns).toFixed(2);
}

/** Formats rows; every column is padded to its widest cell. */
export function formatTable(rows: readonly (readonly string[])[]): string {
  const widths: number[] = [];
  for (const row of rows) {
    for (const [column, cell] of row.entries()) widths[column] = Math.max(widths[column] ?? 0, cell.length);
  }
  return rows
    .map((row) =>
      row
        .map((cell, column) => cell.padEnd(widths[column]!))
        .join('  ')
        .trimEnd(),
    )
    .join('\n');
}

const WIDTH = 32;

/** Output stream of a progress bar: standard output or standard error. */
export interface BarStream {
  readonly isTTY?: boolean;
  write(text: string): unknown;
}

/** Progress bar of a transfer. Without a terminal it prints nothing, or on request one line for each stage. */
export class ProgressBar {
  readonly #stream: BarStream;
  readonly #total: number;
  readonly #isLines: boolean;
  /** The displayed percentage; -1 if no bar is displayed. */
  #shown = -1;

  /**
   * @param total final value of {@link update}
   * @param isLines whether an output that is not a terminal gets a line for each stage
   */
  constructor(stream: BarStream, total: number, isLines = false) {
    this.#stream = stream;
    this.#isLines = isLines;
    this.#total = total;
  }

  /** Draws the bar if its percentage has changed. */
  update(label: string, done: number): void {
    if (this.#stream.isTTY !== true) {
      if (this.#isLines) this.#stream.write(`stage ${done} of ${this.#total}: ${label}\n`);
      return;
    }
    const filled = Math.round((done / this.#total) * WIDTH);
    const percent = Math.round((done / this.#total) * 100);
    if (percent === this.#shown && done !== this.#total) return;
    this.#shown = percent;
    const bar = '#'.repeat(filled).padEnd(WIDTH, '.');
    this.#stream.write(`\r[${bar}] ${String(percent).padStart(3)} %  ${label.padEnd(28)}`);
  }

  /** Removes the bar from the screen. */
  clear(): void {
    if (this.#shown < 0) return;
    this.#shown = -1;
    this.#stream.write(`\r${' '.repeat(WIDTH + 40)}\r`);
  }
}

/** Waits for `ns` nanoseconds. Resolves to false if the signal is aborted first. */
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
