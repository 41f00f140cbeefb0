/**
 * What every program of this library begins with: the configuration out of environment and files, and the log that it asks for.
 */

import { UCP_CONFIG_TABLE } from '../ucp/core/config.ts';
import { type Clock, systemClock } from '../ucs/clock.ts';
import { type AnyConfigTable, type Config, loadConfig } from '../ucs/config.ts';
import { configDirectories, readConfigFiles } from '../ucs/config-file.ts';
import { GLOBAL_CONFIG_TABLE } from '../ucs/global-config.ts';
import { createLog, type Log, type LogSink } from '../ucs/log.ts';
import { openLogSink } from '../ucs/log-file.ts';
import { GAUDI_COPY_CONFIG_TABLE } from '../uct/gaudi/base/config.ts';
import { GAUDI_IPC_CONFIG_TABLE } from '../uct/gaudi/ipc/config.ts';
import { CMA_CONFIG_TABLE } from '../uct/shm/cma/config.ts';
import { POSIX_CONFIG_TABLE } from '../uct/shm/posix/config.ts';
import { GAUDI_CONFIG_TABLE } from './config.ts';

/** Every table of this library, in the order in which `info -c` prints them. */
export const CONFIG_TABLES: readonly AnyConfigTable[] = [
  GLOBAL_CONFIG_TABLE,
  UCP_CONFIG_TABLE,
  POSIX_CONFIG_TABLE,
  CMA_CONFIG_TABLE,
  GAUDI_CONFIG_TABLE,
  GAUDI_COPY_CONFIG_TABLE,
  GAUDI_IPC_CONFIG_TABLE,
];

/** Environment variables as process.env has them. */
export type Environment = Readonly<Record<string, string | undefined>>;

/** What a program may choose; everything has a default. */
export interface ProgramOptions {
  /** Configuration by variable name, with or without `UCX_`: `{ TLS: 'gaudi_cpy' }`. Beats environment and files. */
  readonly config?: Readonly<Record<string, string>>;
  /** Layered prefix: `MPI` makes `MPI_UCX_TLS` override `UCX_TLS`. */
  readonly envPrefix?: string;
  /** Environment to read. Default: process.env. */
  readonly env?: Environment;
  /** Folders with `ucx.conf` files. Default: those of UCX. */
  readonly configDirectories?: readonly string[];
  /** Where log records go. Default: what UCX_LOG_FILE says. */
  readonly logSink?: LogSink;
  readonly clock?: Clock;
}

/** Configuration, log, clock and environment of a program. */
export interface Program {
  readonly config: Config;
  readonly log: Log;
  readonly clock: Clock;
  readonly env: Environment;
}

/**
 * Reads the configuration. Its warnings are logged.
 * @throws UcxError ERR_CONFIG_VALUE, ERR_CONFIG_UNKNOWN, ERR_CONFIG_FILE, ERR_LOG_FILE
 */
export function startProgram(options: ProgramOptions = {}): Program {
  const env = options.env ?? process.env;
  const directories = options.configDirectories ?? defaultDirectories(env);
  const config = loadConfig(CONFIG_TABLES, {
    env,
    files: readConfigFiles(directories),
    ...(options.config === undefined ? {} : { overrides: options.config }),
    ...(options.envPrefix === undefined ? {} : { envPrefix: options.envPrefix }),
  });
  const { LOG_LEVEL, LOG_FILE, LOG_FILE_SIZE, LOG_FILE_ROTATE } = config.get(GLOBAL_CONFIG_TABLE);
  const sink = options.logSink ?? openLogSink({ file: LOG_FILE, sizeMax: LOG_FILE_SIZE, rotate: LOG_FILE_ROTATE });
  const log = createLog('ucp', LOG_LEVEL, sink);
  for (const warning of config.warnings) log.warn(warning);
  return { config, log, clock: options.clock ?? systemClock, env };
}

function defaultDirectories(env: Environment): string[] {
  return configDirectories({
    installEtc: '/etc/ucx',
    home: env['HOME'],
    configDirectory: env['UCX_CONFIG_DIR'],
    currentDirectory: process.cwd(),
  });
}
