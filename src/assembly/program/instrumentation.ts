/** Opens the instrumentation of a context that its configuration enables: statistics and profile. Composition only. */

import { gettid } from '../../sys/index.ts';
import { Profile } from '../../ucs/profile/profile.ts';
import { PROFILE_CONFIG_TABLE } from '../../ucs/profile/profile-config.ts';
import { STATS_CONFIG_TABLE } from '../../ucs/stats/stats-config.ts';
import type { StatsNode } from '../../ucs/stats/stats-node.ts';
import { StatsReporter } from '../../ucs/stats/stats-reporter.ts';
import type { Program } from './program.ts';

/** The opened instrumentation. */
export interface Instrumentation {
  /** Writes the final output. */
  close(): void;
}

/**
 * Opens the instrumentation that the configuration enables.
 * @throws UcxError ERR_STATS_FILE, ERR_PROFILE_FILE
 */
export function openInstrumentation(program: Program, context: { stats(): StatsNode }): Instrumentation {
  const { config, log, clock } = program;
  const profile = Profile.acquire(config.get(PROFILE_CONFIG_TABLE), log, gettid());
  let reporter: StatsReporter;
  try {
    reporter = new StatsReporter({ config: config.get(STATS_CONFIG_TABLE), read: () => context.stats(), clock, log });
  } catch (error) {
    profile?.release();
    throw error;
  }
  return {
    close(): void {
      reporter.close();
      profile?.release();
    },
  };
}
