/**
 * UCX's configuration system: tables of fields, the names of their variables, and the sources that set them. The caller passes the environment and the files.
 *
 * A name is `UCX_` + table prefix + field. A field of a sub-table can be set with the prefix of the sub-table and with the prefix of every table around it; the
 * outermost overrides the others: `UCX_IB_X` < `UCX_RC_X` < `UCX_RC_VERBS_X`. So `UCX_RCACHE_X` sets a field of every cache whose table is embedded without a
 * prefix, `UCX_GAUDI_COPY_RCACHE_X` that of one cache. For one name the environment overrides the files, and explicit options override everything.
 */

import { checkString } from '../type/check-options.ts';
import { describeValue, invalidParam, joinedError, UcxError } from '../type/error.ts';
import { nearestName } from '../type/nearest-name.ts';
import { Status } from '../type/status.ts';
import { beforeComment, type ConfigFile } from './file.ts';
import type { ConfigType } from './value.ts';

export interface ConfigField<N extends string, T> {
  /** In capitals, without any prefix: `RCACHE_MAX_REGIONS`. */
  readonly name: N;
  readonly type: ConfigType<T>;
  /** The default, in the syntax of `type`. */
  readonly default: string;
  /** What the field does, in sentences, with units. */
  readonly doc: string;
  /** Names without `UCX_` that C UCX has for the field too, such as `RC_VERBS_TIMEOUT`. They are more specific than the field's own name and override it. */
  readonly aliases?: readonly string[];
  /** Complete variable names that also set the field: a `UCT_` name is reported at level info, any other as a warning. */
  readonly deprecatedAliases?: readonly string[] | undefined;
  /** True for fields that `info -c` shows only on request. */
  readonly hidden?: boolean | undefined;
}

/** The fields that a table may have if its values are of type `V`. */
export type ConfigFieldOf<V> = { readonly [K in keyof V & string]: ConfigField<K, V[K]> }[keyof V & string];

/**
 * A table of fields whose values form the flat record `V`: one property per field of the table and of its sub-tables.
 */
export interface ConfigTable<V> {
  /**
   * Ends in an underscore, for example `GAUDI_COPY_`. If empty, the fields have the prefix of the surrounding table, and `UCX_` alone sets them too.
   */
  readonly prefix: string;
  readonly fields: readonly ConfigFieldOf<V>[];
  /** Tables whose fields belong to this one too: `ConfigTable<W>` where `V` extends `W`. */
  readonly subTables?: readonly ConfigSubTable<V>[] | undefined;
}

/** A table with fields for some of the properties of `V`. Its sub-tables are checked where the table itself is defined. */
export interface ConfigSubTable<V> {
  readonly prefix: string;
  readonly fields: readonly ConfigFieldOf<V>[];
  readonly subTables?: readonly AnyConfigTable[] | undefined;
}

/** A field of any table. */
export type AnyConfigField = ConfigField<string, unknown>;

/** A table with any values. */
export interface AnyConfigTable {
  readonly prefix: string;
  readonly fields: readonly AnyConfigField[];
  readonly subTables?: readonly AnyConfigTable[] | undefined;
}

/** Where values come from. */
export interface ConfigSources {
  /** The environment, usually `process.env`. */
  readonly env?: Readonly<Record<string, string | undefined>>;
  /** Parsed files; a later one overrides an earlier one. */
  readonly files?: readonly ConfigFile[];
  /** Explicit options by variable name, with or without the leading `UCX_`; see {@link optionName}. An unknown name is an error. */
  readonly overrides?: Readonly<Record<string, string>>;
  /** A prefix of variable names: `MPI` makes every `MPI_UCX_X` override `UCX_X`. */
  readonly envPrefix?: string;
}

/** A field with its value and the source of the value. */
export interface ConfigEntry {
  /** The full name of the variable: `UCX_GAUDI_COPY_RCACHE`. */
  readonly name: string;
  /** The field in its table. */
  readonly field: AnyConfigField;
  /** The parsed value. */
  readonly value: unknown;
  /** The value in the syntax of its type, which parses to the same value. */
  readonly text: string;
  /** `"default"`, `"file /x/ucx.conf:12"`, `"environment"` or `"option"`. */
  readonly source: string;
  /** The name under which the value was given; differs from `name` for sub-tables, prefixes and aliases. */
  readonly setBy: string | undefined;
  /** Names of lower precedence that set this field and fields of other tables too: those with the prefixes of inner tables. */
  readonly inherits: readonly string[];
}

/** The configuration of a program. */
export interface Config {
  /**
   * The values of one of the loaded tables, frozen.
   * @throws UcxError ERR_INVALID_PARAM when the table was not loaded
   */
  get<V>(table: ConfigTable<V>): Readonly<V>;
  /** All fields in the order of the tables. */
  readonly entries: readonly ConfigEntry[];
  /** One sentence for each use of a deprecated name, to be logged once as a warning. */
  readonly warnings: readonly string[];
  /** One sentence for each use of an older `UCT_` name, which documents of the cards mention; for the log at level info. */
  readonly notes: readonly string[];
  /** One sentence for each section of a file that does not apply to this machine; explains why a value is missing. */
  readonly skipped: readonly string[];
  /** Variables that no field reads, to be reported unless UCX_WARN_UNUSED_ENV_VARS is off. */
  readonly unused: readonly UnusedVariable[];
}

/** The values of a configuration by table. */
export type ConfigValues = Pick<Config, 'get'>;

/** A variable that no field reads. */
export class UnusedVariable {
  /** With its prefix: `UCX_TSL`. */
  readonly variable: string;
  readonly text: string;
  readonly #what: string;
  readonly #nearest: (others: Iterable<string>) => string | undefined;

  /** @param nearest the name that may have been meant */
  constructor({ variable, text, source }: Setting, nearest: (others: Iterable<string>) => string | undefined) {
    this.variable = variable;
    this.text = text;
    this.#what = source === 'environment' ? 'environment variable' : `variable in ${source}`;
    this.#nearest = nearest;
  }

  /** Warning for the log. @param others further names that the hint may suggest, such as those of another library */
  warningBeside(others: Iterable<string>): string {
    const nearest = this.#nearest(others);
    const hint = nearest === undefined ? '' : ` (maybe: ${nearest}?)`;
    return `unused ${this.#what}: ${this.variable}${hint} (set UCX_WARN_UNUSED_ENV_VARS=n to suppress this warning)`;
  }
}

/** Prefix of the variables of older programs and documents. */
const OLDER_PREFIX = 'UCT_';
/** Variables that are read before the configuration exists. */
const READ_ELSEWHERE = ['UCX_CONFIG_DIR'];

/**
 * Computes the values of all fields of `tables`. A single error reports all problems; its code and details are those of the first.
 * @throws UcxError ERR_CONFIG_VALUE for a value that its field does not accept (variable, rule, value and source in the details); ERR_CONFIG_UNKNOWN for an
 *   override that names no field; ERR_INVALID_PARAM for two tables that define the same variable
 */
export function loadConfig(tables: readonly AnyConfigTable[], sources: ConfigSources = {}): Config {
  return new Loader(tables, sources).load();
}

/**
 * The variable that an option sets: the option's own name, or that name after `UCX_`.
 * @throws UcxError ERR_INVALID_PARAM
 */
export function optionName(name: string): string {
  checkString('name', name);
  return /^UC[XT]_/.test(name) ? name : `UCX_${name}`;
}

/**
 * The error for an option that is not a configuration field, with the nearest of the `known` names. Code ERR_CONFIG_UNKNOWN.
 * @param deprecated deprecated names and their replacements
 */
export function unknownOption(
  variable: string,
  known: Iterable<string>,
  deprecated: ReadonlyMap<string, string>,
): UcxError {
  const nearest = nearestOf(variable, known, deprecated);
  return new UcxError({
    code: 'ERR_CONFIG_UNKNOWN',
    status: Status.NO_ELEM,
    message: `option ${variable} is not a configuration field${nearest === undefined ? '' : ` (maybe: ${nearest}?)`}`,
    details: { variable, nearest },
  });
}

/** The known name nearest to a misspelt one; for a misspelt deprecated name, its replacement. */
function nearestOf(
  variable: string,
  known: Iterable<string>,
  deprecated: ReadonlyMap<string, string>,
): string | undefined {
  const nearest = nearestName(variable, [...known, ...deprecated.keys()]);
  return nearest === undefined ? undefined : (deprecated.get(nearest) ?? nearest);
}

interface Setting {
  readonly variable: string;
  readonly text: string;
  readonly source: string;
  /** True for sources that several programs share: some of the programs do not know every variable. */
  readonly isCommon?: boolean;
}

class Loader {
  readonly #tables: readonly AnyConfigTable[];
  readonly #envPrefixes: readonly string[];
  readonly #given = new Map<string, Setting>();
  readonly #options = new Map<string, Setting>();
  /** Names of all fields that are not deprecated: candidates for hints. */
  readonly #known = new Set<string>();
  /** Deprecated names and their replacements. */
  readonly #deprecated = new Map<string, string>();
  readonly #names = new Set<string>();
  readonly #entries: ConfigEntry[] = [];
  readonly #warnings: string[] = [];
  readonly #notes: string[] = [];
  readonly #skipped: string[] = [];
  readonly #problems: UcxError[] = [];

  constructor(tables: readonly AnyConfigTable[], sources: ConfigSources) {
    this.#tables = tables;
    const custom = sources.envPrefix?.replace(/_+$/, '') ?? '';
    this.#envPrefixes = custom === '' ? ['UCX_'] : ['UCX_', `${custom}_UCX_`];
    for (const file of sources.files ?? []) this.#takeFile(file);
    for (const [variable, text] of Object.entries(sources.env ?? {})) {
      if (text !== undefined) this.#given.set(variable, { variable, text, source: 'environment' });
    }
    for (const [name, text] of Object.entries(sources.overrides ?? {})) {
      const variable = optionName(name);
      this.#options.set(variable, { variable, text, source: 'option' });
    }
  }

  load(): Config {
    const values = new Map<AnyConfigTable, Readonly<Record<string, unknown>>>();
    for (const table of this.#tables) {
      const record: Record<string, unknown> = {};
      this.#loadTable(table, [], record);
      values.set(table, Object.freeze(record));
    }
    this.#checkOverrides();
    const problem = joinedError(this.#problems);
    if (problem !== undefined) throw problem;
    return {
      get<V>(table: ConfigTable<V>): Readonly<V> {
        const record = values.get(table);
        if (record === undefined) throw invalidParam('table', 'must be a table passed to loadConfig', table.prefix);
        return record as Readonly<V>;
      },
      entries: this.#entries,
      warnings: this.#warnings,
      notes: this.#notes,
      skipped: this.#skipped,
      unused: this.#unused(),
    };
  }

  #takeFile(file: ConfigFile): void {
    for (const { name, value, line, section } of file.assignments) {
      const source = `file ${file.path}:${line}`;
      this.#given.set(name, { variable: name, text: value, source, isCommon: section !== undefined });
    }
    this.#skipped.push(...file.skipped);
  }

  /** @param outer prefixes of the enclosing tables, innermost first */
  #loadTable(table: AnyConfigTable, outer: readonly string[], record: Record<string, unknown>): void {
    const prefixes = [table.prefix, ...outer];
    for (const field of table.fields) record[field.name] = this.#loadField(field, prefixes);
    for (const subTable of table.subTables ?? []) this.#loadTable(subTable, prefixes, record);
  }

  #loadField(field: AnyConfigField, prefixes: readonly string[]): unknown {
    const name = `UCX_${prefixes.at(-1)}${field.name}`;
    if (this.#names.has(name)) throw invalidParam('tables', 'must not define a variable twice', name);
    this.#names.add(name);
    const setting = this.#settingOf(field, prefixes, name);
    const source = setting?.source ?? 'default';
    const text = setting?.text ?? field.default;
    const value = fitsLine(text.trim()) ? field.type.parse(text) : undefined;
    if (value === undefined) {
      this.#problems.push(badValue(setting?.variable ?? name, ruleOf(field, text.trim()), text, source));
      return undefined;
    }
    const inherits = prefixes.slice(0, -1).map((prefix) => `UCX_${prefix}${field.name}`);
    this.#entries.push({
      name,
      field,
      value,
      text: field.type.print(value),
      source,
      setBy: setting?.variable,
      inherits,
    });
    return value;
  }

  /** The setting of a field with the highest precedence; undefined if nothing sets it. */
  #settingOf(field: AnyConfigField, prefixes: readonly string[], name: string): Setting | undefined {
    const deprecated = field.deprecatedAliases ?? [];
    let setting = this.#deprecatedSetting(this.#given, deprecated, name);
    for (const envPrefix of this.#envPrefixes) {
      for (const prefix of prefixes) {
        const variable = `${envPrefix}${prefix}${field.name}`;
        this.#known.add(variable);
        setting = this.#given.get(variable) ?? setting;
      }
      for (const alias of field.aliases ?? []) {
        this.#known.add(`${envPrefix}${alias}`);
        setting = this.#given.get(`${envPrefix}${alias}`) ?? setting;
      }
    }
    setting = this.#deprecatedSetting(this.#options, deprecated, name) ?? setting;
    const names = [...prefixes.map((prefix) => `${prefix}${field.name}`), ...(field.aliases ?? [])];
    for (const each of names) setting = this.#options.get(`UCX_${each}`) ?? setting;
    return setting;
  }

  #deprecatedSetting(
    settings: ReadonlyMap<string, Setting>,
    aliases: readonly string[],
    name: string,
  ): Setting | undefined {
    let setting: Setting | undefined;
    for (const alias of aliases) {
      this.#deprecated.set(alias, name);
      const found = settings.get(alias);
      if (found === undefined) continue;
      if (alias.startsWith(OLDER_PREFIX)) this.#notes.push(`${alias} (${found.source}) is read as ${name}`);
      else this.#warnings.push(`${alias} (${found.source}) is deprecated, use ${name} instead`);
      setting = found;
    }
    return setting;
  }

  #checkOverrides(): void {
    for (const { variable } of this.#options.values()) {
      if (!this.#answers(variable)) this.#problems.push(unknownOption(variable, this.#known, this.#deprecated));
    }
  }

  #answers(variable: string): boolean {
    return this.#known.has(variable) || this.#deprecated.has(variable);
  }

  /** Whether an environment variable is addressed to this library or to UCX. */
  #isOurs(variable: string): boolean {
    return variable.startsWith(OLDER_PREFIX) || this.#envPrefixes.some((prefix) => variable.startsWith(prefix));
  }

  #unused(): UnusedVariable[] {
    const unused: UnusedVariable[] = [];
    for (const setting of this.#given.values()) {
      const { variable, source, isCommon } = setting;
      if (isCommon === true || this.#answers(variable) || READ_ELSEWHERE.includes(variable)) continue;
      if (source === 'environment' && !this.#isOurs(variable)) continue;
      const nearest = (others: Iterable<string>): string | undefined => {
        const theirs = this.#envPrefixes.flatMap((prefix) => [...others].map((name) => name.replace(/^UCX_/, prefix)));
        return nearestOf(variable, [...this.#known, ...theirs], this.#deprecated);
      };
      unused.push(new UnusedVariable(setting, nearest));
    }
    return unused;
  }
}

/** False for a value that cannot be written on a line of a file or of a printed configuration, because part of it would be read as a comment. */
function fitsLine(text: string): boolean {
  return !/[\r\n]/.test(text) && beforeComment(text) === text;
}

function ruleOf({ type }: AnyConfigField, text: string): string {
  if (beforeComment(text) === text) return type.syntax;
  return `${type.syntax}; a blank followed by ; is not allowed, because it begins a comment in ucx.conf`;
}

function badValue(variable: string, rule: string, value: string, source: string): UcxError {
  return new UcxError({
    code: 'ERR_CONFIG_VALUE',
    status: Status.INVALID_PARAM,
    message: `${variable} (${source}) must be ${rule}, got ${describeValue(value)}`,
    details: { variable, rule, value, source },
  });
}
