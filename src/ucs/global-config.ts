/** The UCX-wide fields (prefix `UCX_` alone) that every program has. Fields of a layer or transport are in tables of their own. */

import type { ConfigTable } from './config.ts';
import { boolType, type ConfigType } from './config-value.ts';
import { LOG_LEVEL_NAMES, type LogLevel } from './log.ts';

/** The values of {@link GLOBAL_CONFIG_TABLE}. */
export interface GlobalConfig {
  /** The least severe level that is logged. */
  readonly LOG_LEVEL: LogLevel;
  /** Whether variables that nothing reads are reported. */
  readonly WARN_UNUSED_ENV_VARS: boolean;
}

/** A log level by its name; the finer traces of UCX (`req`, `data`, `async`, `func`, `poll`) count as `trace`. */
export const logLevelType: ConfigType<LogLevel> = {
  syntax: LOG_LEVEL_NAMES.join(', '),
  parse(text) {
    const word = text.trim().toLowerCase();
    const known = /^(trace_)?(req|data|async|func|poll)$/.test(word) ? 'trace' : word;
    const index = (LOG_LEVEL_NAMES as readonly string[]).indexOf(known);
    return index < 0 ? undefined : (index as LogLevel);
  },
  print: (value) => LOG_LEVEL_NAMES[value],
};

/** `UCX_LOG_LEVEL` and `UCX_WARN_UNUSED_ENV_VARS`. */
export const GLOBAL_CONFIG_TABLE: ConfigTable<GlobalConfig> = {
  prefix: '',
  fields: [
    {
      name: 'LOG_LEVEL',
      type: logLevelType,
      default: 'warn',
      doc: 'Messages of this level and of more severe ones are written to standard error.',
    },
    {
      name: 'WARN_UNUSED_ENV_VARS',
      type: boolType,
      default: 'y',
      doc: 'Warn about UCX_ variables that nothing reads, with the nearest name that exists.',
    },
  ],
};
