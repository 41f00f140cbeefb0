/** Writes the statistics of one context when its trigger fires, and at the end. */

import { isAllowed, matchesItem } from '../config/list.ts';
import type { Log } from '../debug/log.ts';
import type { Clock } from '../sys/clock.ts';
import { atExit } from '../sys/process-events.ts';
import { nearestName } from '../type/nearest-name.ts';
import type { StatsConfig } from './stats-config.ts';
import { filterStats, type StatsNode } from './stats-node.ts';
import { onTrigger, openStatsOutput, type StatsOutput } from './stats-output.ts';

export interface StatsReporterOptions {
  readonly config: StatsConfig;
  /** Returns the current statistics. */
  readonly read: () => StatsNode;
  readonly clock: Clock;
  readonly log: Log;
}

export class StatsReporter {
  readonly #output: StatsOutput | undefined;
  readonly #config: StatsConfig;
  readonly #read: () => StatsNode;
  readonly #stop: () => void;
  readonly #log: Log;
  #closed = false;

  /** @throws UcxError ERR_STATS_FILE */
  constructor({ config, read, clock, log }: StatsReporterOptions) {
    this.#config = config;
    this.#read = read;
    this.#log = log;
    this.#output = openStatsOutput(config.STATS_DEST, config.STATS_FORMAT, log);
    if (this.#output === undefined) {
      this.#stop = () => {};
      return;
    }
    const report = (): void => this.report();
    const stopTrigger = onTrigger(config.STATS_TRIGGER, clock, report);
    // A context that is never closed reports when the process ends.
    const stopAtExit = atExit(report);
    this.#stop = () => {
      stopTrigger();
      stopAtExit();
    };
  }

  /** Writes the current statistics. */
  report(): void {
    if (this.#output === undefined) return;
    this.#output.write(filterStats(this.#read(), (counter) => isAllowed(this.#config.STATS_FILTER, counter)));
  }

  /** Warns about names in UCX_STATS_FILTER that match no counter. Called at the end, because counters appear with the objects that they belong to. */
  #checkFilter(): void {
    const known = new Set<string>();
    filterStats(this.#read(), (counter) => known.add(counter).size > 0);
    for (const item of this.#config.STATS_FILTER.items) {
      if ([...known].some((counter) => matchesItem(item, counter))) continue;
      const nearest = nearestName(item, known);
      const hint = nearest === undefined ? '' : ` (maybe: ${nearest}?)`;
      this.#log.warn(
        `UCX_STATS_FILTER: no counter matches '${item}'${hint}; the counters are: ${[...known].sort().join(', ')}`,
      );
    }
  }

  /** Writes the last report and stops. Idempotent. */
  close(): void {
    if (this.#closed) return;
    this.#closed = true;
    this.#stop();
    this.report();
    if (this.#output !== undefined) this.#checkFilter();
    this.#output?.close();
  }
}
