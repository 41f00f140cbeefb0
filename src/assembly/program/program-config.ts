/** The configuration of a program as an object: read once, queried, changed, copied, printed, and passed to contexts (ucp_config_t). */

import { join } from 'node:path';
import {
  type Config,
  type ConfigEntry,
  type ConfigTable,
  loadConfig,
  optionName,
  unknownOption,
} from '../../ucs/config/config.ts';
import { type ConfigFile, configDirectories, readConfigFiles } from '../../ucs/config/file.ts';
import { type ConfigPrintOptions, printConfig } from '../../ucs/config/print.ts';
import { machineFact } from '../../ucs/sys/machine-facts.ts';
import { PACKAGE_FOLDER } from '../../ucs/sys/package.ts';
import { checkFlag, checkOptions, checkString } from '../../ucs/type/check-options.ts';
import { invalidParam } from '../../ucs/type/error.ts';
import { CONFIG_TABLES } from './config.ts';

/** Environment variables in the form of process.env. */
export type Environment = Readonly<Record<string, string | undefined>>;

/** Sources of a configuration; all options have defaults. */
export interface ConfigReadOptions {
  /** Environment to read. Default: process.env. */
  readonly env?: Environment | undefined;
  /** Layered prefix: `MPI` makes `MPI_UCX_TLS` override `UCX_TLS`. */
  readonly envPrefix?: string | undefined;
  /** Folders with `ucx.conf` files; later folders override earlier ones. Default: those of UCX. */
  readonly configDirectories?: readonly string[] | undefined;
}

/** The options of {@link ConfigReadOptions}. */
export const CONFIG_SOURCES = ['env', 'envPrefix', 'configDirectories'] as const;

/** The layers below the options. */
interface Layers {
  readonly env: Environment;
  readonly files: readonly ConfigFile[];
  readonly envPrefix: string | undefined;
}

/**
 * A configuration. Contexts use its values at the time of their creation: a later change affects later contexts.
 *
 * Names are those of variables, with or without `UCX_`; deprecated names work too.
 */
export class ProgramConfig {
  readonly #layers: Layers;
  #options: Readonly<Record<string, string>>;
  #values: Config;

  private constructor(layers: Layers, options: Readonly<Record<string, string>>) {
    this.#layers = layers;
    this.#options = options;
    this.#values = load(layers, options);
  }

  /**
   * Reads files and environment (ucp_config_read).
   * @param options override the sources, like {@link modify}
   * @throws UcxError ERR_CONFIG_VALUE, ERR_CONFIG_UNKNOWN, ERR_CONFIG_FILE, ERR_INVALID_PARAM
   */
  static read(sources: ConfigReadOptions = {}, options: Readonly<Record<string, string>> = {}): ProgramConfig {
    checkSources(sources);
    // Copied, because later changes of the environment must not affect the values.
    const env = { ...(sources.env ?? process.env) };
    const files = readConfigFiles(sources.configDirectories ?? defaultDirectories(env), machineFact);
    return new ProgramConfig({ env, files, envPrefix: sources.envPrefix }, withOptions({}, options));
  }

  /** The environment that was read, for variables outside the tables. */
  get env(): Environment {
    return this.#layers.env;
  }

  /** The parsed values, by table; they do not change when the configuration is modified. */
  get values(): Config {
    return this.#values;
  }

  /** All fields, with their values and origins. */
  get entries(): readonly ConfigEntry[] {
    return this.#values.entries;
  }

  /**
   * The values of one table. Functions that expect the values of a table call it, so that a Config can be passed to them.
   * @throws UcxError ERR_INVALID_PARAM if the table was not loaded
   */
  get<V>(table: ConfigTable<V>): Readonly<V>;
  /**
   * The value of a field as a string.
   * @throws UcxError ERR_CONFIG_UNKNOWN with the nearest name
   */
  get(name: string): string;
  get<V>(name: string | ConfigTable<V>): string | Readonly<V> {
    if (typeof name === 'object' && name !== null) return this.#values.get(name);
    const variable = optionName(name);
    const entry =
      this.entries.find((each) => each.name === variable) ?? this.entries.find((each) => answers(each, variable));
    if (entry !== undefined) return entry.text;
    const known = this.entries.flatMap(({ name: own, inherits }) => [own, ...inherits]);
    const deprecated = this.entries.flatMap(({ name: own, field }) =>
      (field.deprecatedAliases ?? []).map((alias): [string, string] => [alias, own]),
    );
    throw unknownOption(variable, known, new Map(deprecated));
  }

  /**
   * Sets a field, overriding files and environment (ucp_config_modify), and earlier values under any of its names. If it throws, nothing has changed.
   * @throws UcxError ERR_CONFIG_UNKNOWN with the nearest name; ERR_CONFIG_VALUE; ERR_INVALID_PARAM unless it is a string
   */
  modify(name: string, value: string): this {
    const options = withOptions(this.#without(name), { [name]: value });
    this.#values = load(this.#layers, options);
    this.#options = options;
    return this;
  }

  /** An independent copy. */
  clone(): ProgramConfig {
    return new ProgramConfig(this.#layers, this.#options);
  }

  /** The options, without fields that `name` also sets. */
  #without(name: string): Readonly<Record<string, string>> {
    const variable = optionName(name);
    const isReplaced = (other: string): boolean => {
      const fields = this.entries.filter((entry) => answers(entry, other));
      return fields.every((entry) => answers(entry, variable));
    };
    return Object.fromEntries(Object.entries(this.#options).filter(([other]) => !isReplaced(other)));
  }

  /** The configuration as text, readable as a `ucx.conf` (ucp_config_print). */
  print(options?: ConfigPrintOptions): string {
    if (options !== undefined) checkPrintOptions(options);
    return printConfig(this.entries, options);
  }
}

const PRINT_OPTIONS = ['decorated', 'hidden', 'commentDefaults', 'filter'];

function checkPrintOptions(options: ConfigPrintOptions): void {
  checkOptions(options, 'options', PRINT_OPTIONS);
  const { filter, ...flags } = options;
  if (filter !== undefined) checkString('filter', filter);
  for (const [name, flag] of Object.entries(flags)) checkFlag(name, flag);
}

function checkSources(sources: ConfigReadOptions): void {
  checkOptions(sources, 'sources', CONFIG_SOURCES);
  const { env, configDirectories: directories, envPrefix } = sources;
  if (env !== undefined) checkOptions(env, 'env');
  if (envPrefix !== undefined && typeof envPrefix !== 'string') {
    throw invalidParam('envPrefix', 'must be a string', envPrefix);
  }
  if (directories === undefined) return;
  const isList = Array.isArray(directories) && directories.every((each) => typeof each === 'string');
  if (!isList) throw invalidParam('configDirectories', 'must be an array of strings', directories);
}

/** Options by the names of their variables; later ones replace earlier ones. */
function withOptions(
  before: Readonly<Record<string, string>>,
  options: Readonly<Record<string, string>>,
): Readonly<Record<string, string>> {
  if (typeof options !== 'object' || options === null) throw invalidParam('config', 'must be an object', options);
  const all: Record<string, string> = { ...before };
  for (const [name, value] of Object.entries(options)) {
    if (typeof value !== 'string') throw invalidParam(`config.${name}`, 'must be a string', value);
    all[optionName(name)] = value;
  }
  return all;
}

function load({ env, files, envPrefix }: Layers, overrides: Readonly<Record<string, string>>): Config {
  return loadConfig(CONFIG_TABLES, { env, files, overrides, ...(envPrefix === undefined ? {} : { envPrefix }) });
}

/** All names of a field, the current one first. */
function namesOf({ name, inherits, field }: ConfigEntry): string[] {
  const aliases = (field.aliases ?? []).map((alias) => `UCX_${alias}`);
  return [...aliases, name, ...inherits, ...(field.deprecatedAliases ?? [])];
}

function answers(entry: ConfigEntry, variable: string): boolean {
  return namesOf(entry).includes(variable);
}

function defaultDirectories(env: Environment): string[] {
  return configDirectories({
    installEtc: '/etc/ucx',
    libraryEtc: join(PACKAGE_FOLDER, 'etc/ucx'),
    home: env['HOME'],
    configDirectory: env['UCX_CONFIG_DIR'],
    currentDirectory: currentDirectory(),
  });
}

/** Undefined if the working directory was removed. */
function currentDirectory(): string | undefined {
  try {
    return process.cwd();
  } catch {
    return undefined;
  }
}
