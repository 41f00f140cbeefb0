/** Limits log lines whose number depends on a peer or a card, so that they cannot fill a disk: a few per time window are written, the others only counted. */

import type { Clock } from '../sys/clock.ts';
import { type Log, LogLevel } from './log.ts';

/** Maximum number of warnings within {@link WINDOW_NS}; further ones are only counted. */
export const WARNINGS_MAX = 10;
/** Length of the time window. */
export const WINDOW_NS = 10e9;

/** Options of the limit. */
export interface LimitedLogOptions {
  /** Maximum number of lines within {@link WINDOW_NS}. Default {@link WARNINGS_MAX}. */
  readonly linesMax?: number;
  /** Noun for the count of omitted lines. */
  readonly what?: string;
}

export class LimitedLog {
  readonly #log: Log;
  readonly #clock: Clock;
  readonly #linesMax: number;
  readonly #what: string;
  #windowNs = Number.NEGATIVE_INFINITY;
  #written = 0;
  #left = 0;

  constructor(log: Log, clock: Clock, options: LimitedLogOptions = {}) {
    this.#log = log;
    this.#clock = clock;
    this.#linesMax = options.linesMax ?? WARNINGS_MAX;
    this.#what = options.what ?? 'warnings about peers';
  }

  warn(message: string): void {
    this.#write(LogLevel.WARN, message);
  }

  /** Like {@link warn}, at level error. */
  error(message: string): void {
    this.#write(LogLevel.ERROR, message);
  }

  /** At level diag, without a limit. */
  diag(message: string): void {
    this.#log.diag(message);
  }

  /** At level debug, without a limit. */
  debug(message: string): void {
    this.#log.debug(message);
  }

  /** Logs the number of omitted lines, if any. */
  reportOmitted(): void {
    if (this.#left > 0) this.#log.warn(`${this.#left} more ${this.#what} were left out`);
    this.#left = 0;
  }

  #write(level: LogLevel, message: string): void {
    const nowNs = this.#clock.nowNs();
    if (nowNs - this.#windowNs >= WINDOW_NS) {
      this.reportOmitted();
      this.#windowNs = nowNs;
      this.#written = 0;
    }
    if (this.#written < this.#linesMax) {
      this.#written += 1;
      if (level === LogLevel.WARN) this.#log.warn(message);
      else this.#log.error(message);
    } else {
      this.#left += 1;
    }
  }
}
