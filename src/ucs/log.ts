/**
 * Logging with the levels of UCX. Not a global: whoever needs a log is handed one.
 *
 * Style: lower case, the cause and not a guess, errno text always. Whoever decides that something is an error logs it once.
 */

/** The levels of UCX in order of severity (`ucs_log_level_t`). */
export const LogLevel = {
  FATAL: 0,
  ERROR: 1,
  WARN: 2,
  DIAG: 3,
  INFO: 4,
  DEBUG: 5,
  TRACE: 6,
} as const;

/** One of the values of {@link LogLevel}. */
export type LogLevel = (typeof LogLevel)[keyof typeof LogLevel];

/** The spelling of the levels in UCX_LOG_LEVEL, indexed by level. */
export const LOG_LEVEL_NAMES = ['fatal', 'error', 'warn', 'diag', 'info', 'debug', 'trace'] as const;

/** Takes finished records; must not throw. */
export type LogSink = (level: LogLevel, component: string, message: string) => void;

/** A log of one component. */
export interface Log {
  /** Records above this level are dropped: check it before building an expensive message. */
  readonly level: LogLevel;
  error(message: string): void;
  warn(message: string): void;
  diag(message: string): void;
  info(message: string): void;
  debug(message: string): void;
  trace(message: string): void;
  /** The same log under the name of another component. */
  child(component: string): Log;
}

/** The log that writes every record of `level` and above in severity to `sink`. */
export function createLog(component: string, level: LogLevel, sink: LogSink): Log {
  const at =
    (recordLevel: LogLevel) =>
    (message: string): void => {
      if (recordLevel <= level) sink(recordLevel, component, message);
    };
  return {
    level,
    error: at(LogLevel.ERROR),
    warn: at(LogLevel.WARN),
    diag: at(LogLevel.DIAG),
    info: at(LogLevel.INFO),
    debug: at(LogLevel.DEBUG),
    trace: at(LogLevel.TRACE),
    child: (name) => createLog(name, level, sink),
  };
}

/** Writes records to standard error, one line each: `[gaudi-ucx] component WARN  message`. */
export const standardErrorSink: LogSink = (level, component, message) => {
  const name = (LOG_LEVEL_NAMES[level] ?? 'trace').toUpperCase().padEnd(5);
  process.stderr.write(`[gaudi-ucx] ${component} ${name} ${message}\n`);
};
