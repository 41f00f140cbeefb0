/** The UCX-wide fields (prefix `UCX_` only) that every program has. */

import type { ConfigTable } from '../config/config.ts';
import { isItem } from '../config/list.ts';
import { boolType, type ConfigType, memorySizeType, stringType, uintType } from '../config/value.ts';
import { FILE_NAME_SYNTAX } from '../sys/file-name.ts';
import { type ComponentLevel, LOG_LEVEL_NAMES, LogLevel, type LogLevels } from './log.ts';

/** The values of {@link GLOBAL_CONFIG_TABLE}. */
export interface GlobalConfig {
  /** The least severe level that is logged, by component. */
  readonly LOG_LEVEL: LogLevels;
  /** Destination of log records, as a template. */
  readonly LOG_FILE: string;
  /** Bytes; Infinity for no bound. */
  readonly LOG_FILE_SIZE: number;
  readonly LOG_FILE_ROTATE: number;
  /** Whether variables that no field reads are reported. */
  readonly WARN_UNUSED_ENV_VARS: boolean;
}

/** A level for all components, and levels for individual ones: `warn`, `warn,gaudi_ipc:debug,card[0-3]:info`. */
export const logLevelsType: ConfigType<LogLevels> = {
  syntax: `[<level>,]<component>:<level>,... with levels ${LOG_LEVEL_NAMES.join(', ')}`,
  parse(text) {
    let level: LogLevel | undefined;
    const components: ComponentLevel[] = [];
    for (const item of text.split(',')) {
      const colon = item.lastIndexOf(':');
      const component = item.slice(0, Math.max(colon, 0)).trim();
      const parsed = parseLevel(item.slice(colon + 1));
      const isWrong = colon < 0 ? level !== undefined : component === '' || !isItem(component);
      if (parsed === undefined || isWrong) return undefined;
      if (colon < 0) level = parsed;
      else components.push({ component, level: parsed });
    }
    return { level: level ?? LogLevel.WARN, components };
  },
  print: ({ level, components }) =>
    [LOG_LEVEL_NAMES[level], ...components.map((each) => `${each.component}:${LOG_LEVEL_NAMES[each.level]}`)].join(),
};

/** Parses a level name; the finer trace levels also have an older name (`trace_data`). */
function parseLevel(text: string): LogLevel | undefined {
  const word = text.trim().toLowerCase();
  const known = word.replace(/^trace_(?=(req|data|async|func|poll)$)/, '');
  return Object.values(LogLevel).find((level) => LOG_LEVEL_NAMES[level] === known);
}

/** `UCX_LOG_*` and `UCX_WARN_UNUSED_ENV_VARS`. */
export const GLOBAL_CONFIG_TABLE: ConfigTable<GlobalConfig> = {
  prefix: '',
  fields: [
    {
      name: 'LOG_LEVEL',
      type: logLevelsType,
      default: 'warn',
      doc: 'Level of the log: messages of this level and more severe ones are logged. Components (transports, cardN, driver, emulator, ucp) can have their own level. From data on, each message that ucp sends or receives is logged, without its contents.',
    },
    {
      name: 'LOG_FILE',
      type: stringType,
      default: '',
      doc: `Destination of log messages: stderr (also when empty), stdout, or a file, to which messages are appended. Substitutions in the file name: ${FILE_NAME_SYNTAX}.`,
    },
    {
      name: 'LOG_FILE_SIZE',
      type: memorySizeType,
      default: 'inf',
      doc: 'Maximum size of the file of UCX_LOG_FILE in bytes; a message that does not fit starts a new file.',
    },
    {
      name: 'LOG_FILE_ROTATE',
      type: uintType,
      default: '0',
      doc: 'Number of full files that are kept, as <file>.1 (the latest), <file>.2, ...; 0: a full file is truncated.',
    },
    {
      name: 'WARN_UNUSED_ENV_VARS',
      type: boolType,
      default: 'y',
      doc: 'Warn about UCX_ variables that no component reads, with the nearest existing name.',
    },
  ],
};
