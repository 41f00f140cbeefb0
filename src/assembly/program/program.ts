/**
 * Start of every program of this library: the configuration from environment and files, and its log. Also the instrumentation of a context that its
 * configuration enables (statistics and profile), and the shared memory that connections of posix need.
 */

import { ucxVariableNamed, ucxVariableNames, unignorableSettings } from '../../libucx/c/ucx-variables.ts';
import { gettid } from '../../sys/index.ts';
import type { Config } from '../../ucs/config/config.ts';
import { GLOBAL_CONFIG_TABLE } from '../../ucs/debug/global-config.ts';
import { createLog, type Log, type LogSink } from '../../ucs/debug/log.ts';
import { openLogSink } from '../../ucs/debug/log-file.ts';
import { Profile } from '../../ucs/profile/profile.ts';
import { PROFILE_CONFIG_TABLE } from '../../ucs/profile/profile-config.ts';
import { STATS_CONFIG_TABLE } from '../../ucs/stats/stats-config.ts';
import type { StatsNode } from '../../ucs/stats/stats-node.ts';
import { StatsReporter } from '../../ucs/stats/stats-reporter.ts';
import { type Clock, systemClock } from '../../ucs/sys/clock.ts';
import { checkMethods, checkOptions } from '../../ucs/type/check-options.ts';
import { invalidParam, isUcxError } from '../../ucs/type/error.ts';
import { connectionBytes, POSIX_CONFIG_TABLE } from '../../uct/shm/posix/config.ts';
import { checkPosixFolder } from '../../uct/shm/posix/md.ts';
import { ENGINE_CONFIG_TABLE } from './config.ts';
import { CONFIG_SOURCES, type ConfigReadOptions, type Environment, ProgramConfig } from './program-config.ts';

export type { Environment } from './program-config.ts';

/** Options of a program; all have defaults. */
export interface ProgramOptions extends ConfigReadOptions {
  /**
   * Options by variable name, with or without `UCX_`: `{ TLS: 'gaudi_cpy' }`; they override environment and files. Alternatively a configuration that was
   * read before, which includes `env`, `envPrefix` and `configDirectories`.
   */
  readonly config?: Readonly<Record<string, string>> | ProgramConfig | undefined;
  /** Destination of log records. Default: according to UCX_LOG_FILE. */
  readonly logSink?: LogSink | undefined;
  readonly clock?: Clock | undefined;
}

/** The options of {@link ProgramOptions}. */
export const PROGRAM_OPTIONS: readonly string[] = ['config', 'logSink', 'clock', ...CONFIG_SOURCES];

/** Configuration, log, clock and environment of a program. */
export interface Program {
  readonly config: Config;
  /** The configuration behind the values, to derive a modified one. */
  readonly source: ProgramConfig;
  readonly log: Log;
  readonly clock: Clock;
  readonly env: Environment;
}

/**
 * Reads the configuration, unless it is given. Logs its warnings, including those about unused variables, unless UCX_ENGINE names libucp, which has its own
 * variables.
 * @throws UcxError as {@link readProgram}
 */
export function startProgram(options: ProgramOptions = {}): Program {
  const program = readProgram(options);
  if (program.config.get(ENGINE_CONFIG_TABLE).ENGINE === 'native') warnOfUnused(program);
  return program;
}

/**
 * Reads the configuration, unless it is given, without warnings about unused variables: those follow once the engine is selected.
 * @throws UcxError ERR_CONFIG_VALUE, ERR_CONFIG_UNKNOWN, ERR_CONFIG_FILE, ERR_LOG_FILE, ERR_INVALID_PARAM
 */
export function readProgram(options: ProgramOptions = {}): Program {
  const { logSink, clock } = options;
  if (logSink !== undefined && typeof logSink !== 'function')
    throw invalidParam('logSink', 'must be a function', logSink);
  if (clock !== undefined) checkMethods('clock', clock, ['nowNs', 'setTimer']);
  const source = configOf(options);
  const { values: config, env } = source;
  const { LOG_LEVEL, LOG_FILE, LOG_FILE_SIZE, LOG_FILE_ROTATE } = config.get(GLOBAL_CONFIG_TABLE);
  const sink = logSink ?? openLogSink({ file: LOG_FILE, sizeMax: LOG_FILE_SIZE, rotate: LOG_FILE_ROTATE });
  const log = createLog('ucp', LOG_LEVEL, sink);
  for (const warning of config.warnings) log.warn(warning);
  for (const note of config.notes) log.info(note);
  for (const section of config.skipped) log.debug(section);
  return { config, source, log, clock: clock ?? systemClock, env };
}

/**
 * Warns about unused variables, unless UCX_WARN_UNUSED_ENV_VARS disables it. Variables of C UCX without effect here are not reported. Variables that must not
 * be ignored make a context fail; programs without a context warn about them, unless only RDMA devices are concerned.
 */
export function warnOfUnused({ config, log }: Program): void {
  if (!config.get(GLOBAL_CONFIG_TABLE).WARN_UNUSED_ENV_VARS) return;
  for (const refusal of unignorableSettings(config, false)) log.warn(refusal);
  for (const unused of config.unused) {
    const { variable } = unused;
    const known = ucxVariableNamed(variable);
    if (known === undefined) log.warn(unused.warningBeside(ucxVariableNames()));
    else if (known.use === 'none') log.debug(`${variable} has no effect here: ${known.reason}`);
  }
}

/**
 * Options with the driver as a setting of their configuration, which overrides UCX_GAUDI_DRIVER.
 * @throws UcxError ERR_INVALID_PARAM
 */
export function withDriver(options: ProgramOptions, driver: string | undefined): ProgramOptions {
  if (driver === undefined) return options;
  if (typeof driver !== 'string') throw invalidParam('driver', 'must be a string', driver);
  const { config } = options;
  if (config !== undefined) checkOptions(config, 'config');
  const changed =
    config instanceof ProgramConfig
      ? config.clone().modify('GAUDI_DRIVER', driver)
      : { ...config, GAUDI_DRIVER: driver };
  return { ...options, config: changed };
}

function configOf(options: ProgramOptions): ProgramConfig {
  const { config = {} } = options;
  const given = CONFIG_SOURCES.filter((source) => options[source] !== undefined);
  if (!(config instanceof ProgramConfig)) {
    return ProgramConfig.read(Object.fromEntries(given.map((source) => [source, options[source]])), config);
  }
  for (const source of given) {
    throw invalidParam(source, 'must not be combined with a Config, which was read with its own', options[source]);
  }
  return config;
}

/** The instrumentation of a context that its configuration enables. */
export class Instrumentation {
  /** Hides the context from other processes. */
  hide: () => void = () => {};
  readonly #reporter: StatsReporter;
  readonly #profile: Profile | undefined;

  /** @throws UcxError ERR_STATS_FILE, ERR_PROFILE_FILE */
  constructor({ config, log, clock }: Program, context: { stats(): StatsNode }) {
    this.#profile = Profile.acquire(config.get(PROFILE_CONFIG_TABLE), log, gettid());
    const read = (): StatsNode => context.stats();
    try {
      this.#reporter = new StatsReporter({ config: config.get(STATS_CONFIG_TABLE), read, clock, log });
    } catch (error) {
      this.#profile?.release();
      throw error;
    }
  }

  /** Writes the final output. */
  close(): void {
    this.hide();
    this.#reporter.close();
    this.#profile?.release();
  }
}

/** Shared memory for connections. */
export interface SharedMemorySpace {
  /** See UCX_POSIX_DIR. */
  readonly folder: string;
  /** Bytes of a connection within this host: a ring in each direction. */
  readonly connectionBytes: number;
}

/** @throws UcxError ERR_CONFIG_VALUE for inconsistent fields */
export function sharedMemorySpace(config: Config): SharedMemorySpace {
  const values = config.get(POSIX_CONFIG_TABLE);
  return { folder: values.DIR, connectionBytes: connectionBytes(values) };
}

/** Tests the folder of {@link sharedMemorySpace} as posix does when a context is created. Returns the reason of a failure; undefined if it works. */
export function sharedMemoryFailure(config: Config): string | undefined {
  try {
    checkPosixFolder(config.get(POSIX_CONFIG_TABLE));
    return undefined;
  } catch (error) {
    if (!isUcxError(error)) throw error;
    return error.message;
  }
}
