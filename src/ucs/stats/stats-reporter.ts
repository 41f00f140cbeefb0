/** Writes the statistics of one context when its trigger fires, and at the end. It counts nothing. */

import { isAllowed } from '../config/list.ts';
import type { Log } from '../debug/log.ts';
import type { Clock } from '../sys/clock.ts';
import { atExit } from '../sys/process-events.ts';
import type { StatsConfig } from './stats-config.ts';
import { filterStats, type StatsNode } from './stats-node.ts';
import { openStatsOutput, type StatsOutput } from './stats-output.ts';
import { onTrigger } from './stats-trigger.ts';

/** Collaborators of a reporter. */
export interface StatsReporterOptions {
  readonly config: StatsConfig;
  /** Returns the current statistics. */
  readonly read: () => StatsNode;
  readonly clock: Clock;
  readonly log: Log;
}

/** A reporter. */
export class StatsReporter {
  readonly #output: StatsOutput | undefined;
  readonly #config: StatsConfig;
  readonly #read: () => StatsNode;
  readonly #stop: () => void;
  #closed = false;

  /** @throws UcxError ERR_STATS_FILE */
  constructor({ config, read, clock, log }: StatsReporterOptions) {
    this.#config = config;
    this.#read = read;
    this.#output = openStatsOutput(config.STATS_DEST, config.STATS_FORMAT, log);
    if (this.#output === undefined) {
      this.#stop = () => {};
      return;
    }
    const report = (): void => this.report();
    const stopTrigger = onTrigger(config.STATS_TRIGGER, clock, report);
    // A context that is not closed is reported when the process ends.
    const stopAtExit = atExit(report);
    this.#stop = () => {
      stopTrigger();
      stopAtExit();
    };
  }

  /** Writes the current statistics. */
  report(): void {
    this.#output?.write(filterStats(this.#read(), (counter) => isAllowed(this.#config.STATS_FILTER, counter)));
  }

  /** Writes the last report and stops. Idempotent. */
  close(): void {
    if (this.#closed) return;
    this.#closed = true;
    this.#stop();
    this.report();
    this.#output?.close();
  }
}
