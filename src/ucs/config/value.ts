/**
 * The scalar value types of UCX's configuration: each parses a string to a value, and prints a value as a string that parses to the same value.
 *
 * Source of the syntax: UCX `src/ucs/config/parser.c`, master of 2026. Two differences: words are case-insensitive, and characters after a number are an error,
 * where UCX ignores them.
 */

/** The syntax of the values of a field. */
export interface ConfigType<T> {
  /** The rule for values, which completes "must be ...": used in errors and by `info -c`. */
  readonly syntax: string;
  /** Parses `text`, which is one line; undefined if it does not conform to the syntax. Surrounding blanks are ignored. */
  parse(text: string): T | undefined;
  /** Prints a value so that {@link parse} returns an equal one. */
  print(value: T): string;
}

/** A switch that can also be "try": on if available. */
export type Ternary = 'yes' | 'no' | 'try';

const TRUE_WORDS: ReadonlySet<string> = new Set(['y', 'yes', 'on', '1', 'true']);
const FALSE_WORDS: ReadonlySet<string> = new Set(['n', 'no', 'off', '0', 'false']);

const KIB = 2 ** 10;
const MIB = 2 ** 20;
const GIB = 2 ** 30;
const TIB = 2 ** 40;
/** Quantity prefixes in lower case; binary, as in UCX. */
const QUANTITY: Readonly<Record<string, number>> = { '': 1, k: KIB, m: MIB, g: GIB, t: TIB };
/** Time units in nanoseconds; m is minutes, and no unit means seconds, as in UCX. */
const TIME: Readonly<Record<string, number>> = { '': 1e9, ns: 1, us: 1e3, ms: 1e6, s: 1e9, m: 60e9 };

function parseBool(text: string): boolean | undefined {
  const word = text.trim().toLowerCase();
  if (TRUE_WORDS.has(word)) return true;
  return FALSE_WORDS.has(word) ? false : undefined;
}

export const boolType: ConfigType<boolean> = {
  syntax: 'y, n, yes, no, on, off, 1, 0, true or false',
  parse: parseBool,
  print: (value) => (value ? 'y' : 'n'),
};

/** Yes, no or "try": use the feature if it is available. */
export const ternaryType: ConfigType<Ternary> = {
  syntax: 'y, n or try',
  parse(text) {
    if (/^(try|maybe)$/i.test(text.trim())) return 'try';
    const value = parseBool(text);
    return value === undefined ? undefined : value ? 'yes' : 'no';
  },
  print: (value) => (value === 'try' ? 'try' : value.charAt(0)),
};

/** Like {@link ternaryType}, with `auto`, which UCX accepts for some switches and treats like "try". */
export const ternaryAutoType: ConfigType<Ternary> = {
  syntax: 'y, n, try or auto',
  parse: (text) => (text.trim().toLowerCase() === 'auto' ? 'try' : ternaryType.parse(text)),
  print: ternaryType.print,
};

/** Any string, without surrounding blanks. */
export const stringType: ConfigType<string> = {
  syntax: 'a string of one line',
  parse: (text) => text.trim(),
  print: (value) => value,
};

/** An unsigned integer, decimal or hexadecimal with 0x. */
export const uintType: ConfigType<number> = {
  syntax: 'an unsigned integer',
  parse: (text) => (/^(\d+|0x[\da-f]+)$/i.test(text.trim()) ? safeInteger(Number(text)) : undefined),
  print: String,
};

/** An unsigned integer, or `inf`, which is Infinity. */
export const uintInfType: ConfigType<number> = orInf(uintType);

/** Bytes: 8192, 512K, 1mb, 4G, or `inf`, which is Infinity. */
export const memorySizeType: ConfigType<number> = orInf({
  syntax: 'a size: <number>[b|k|m|g|t]',
  parse(text) {
    const match = /^(\d+)([kmgt]?)b?$/i.exec(text.trim());
    return match === null ? undefined : safeInteger(Number(match[1]) * QUANTITY[match[2]!.toLowerCase()]!);
  },
  print(value) {
    if (value === 0) return '0';
    for (const letter of ['t', 'g', 'm', 'k']) {
      if (value % QUANTITY[letter]! === 0) return `${value / QUANTITY[letter]!}${letter.toUpperCase()}`;
    }
    return String(value);
  },
});

/** Bytes, `inf` or `auto`: the memory units of UCX. */
export const memoryUnitsType: ConfigType<number | 'auto'> = orAuto(memorySizeType);

/** Bytes per second: 10000MBs, 8GB/s, 100Gbs (bits); the prefixes are binary. */
export const bandwidthType: ConfigType<number> = {
  syntax: 'a bandwidth: <number>[k|m|g|t](B|b)[p|/]s, where b is bits',
  parse(text) {
    const match = /^([^kmgtb]+?)([kmgt]?)(b)[p/]?s$/i.exec(text.trim());
    if (match === null) return undefined;
    const number = parseDecimal(match[1]!.trim());
    if (number === undefined) return undefined;
    const perSecond = (number * QUANTITY[match[2]!.toLowerCase()]!) / (match[3] === 'b' ? 8 : 1);
    return Number.isFinite(perSecond) ? perSecond : undefined;
  },
  print(value) {
    if (value < MIB) return `${value}Bs`;
    // Division by a power of two is exact, so the printed value parses to the same Number.
    return value % GIB === 0 ? `${value / GIB}GBs` : `${value / MIB}MBs`;
  },
};

/** Nanoseconds: 1.8us, 20s, 5m (minutes), 3 (seconds), or `inf`, which is Infinity. */
export const timeType: ConfigType<number> = orInf({
  syntax: 'a time: <number>[ns|us|ms|s|m]',
  parse: parseTime,
  print(value) {
    for (const unit of ['s', 'ms', 'us']) {
      const text = `${value / TIME[unit]!}${unit}`;
      if (value >= TIME[unit]! && parseTime(text) === value) return text;
    }
    return `${value}ns`;
  },
});

/** One of `names`, case-insensitive. */
export function enumType<N extends string>(names: readonly N[]): ConfigType<N> {
  return {
    syntax: names.length > 1 ? `${names.slice(0, -1).join(', ')} or ${names.at(-1)}` : names.join(),
    parse(text) {
      const word = text.trim().toLowerCase();
      return names.find((name) => name.toLowerCase() === word);
    },
    print: (value) => value,
  };
}

/** Extends `type` by the value `auto`. */
export function orAuto<T>(type: ConfigType<T>): ConfigType<T | 'auto'> {
  return {
    syntax: `${type.syntax}, or auto`,
    parse: (text) => (text.trim().toLowerCase() === 'auto' ? 'auto' : type.parse(text)),
    print: (value) => (value === 'auto' ? 'auto' : type.print(value)),
  };
}

/** Extends `type` by the value `inf`, which is Infinity. */
export function orInf(type: ConfigType<number>): ConfigType<number> {
  return {
    syntax: `${type.syntax}, or inf`,
    parse: (text) => (text.trim().toLowerCase() === 'inf' ? Infinity : type.parse(text)),
    print: (value) => (value === Infinity ? 'inf' : type.print(value)),
  };
}

/** The values of `type` that satisfy a rule. @param rule completes "must be ..." */
export function restricted<T>(type: ConfigType<T>, rule: string, isGood: (value: T) => boolean): ConfigType<T> {
  return {
    syntax: rule,
    parse(text) {
      const value = type.parse(text);
      return value !== undefined && isGood(value) ? value : undefined;
    },
    print: type.print,
  };
}

function safeInteger(value: number): number | undefined {
  return Number.isSafeInteger(value) ? value : undefined;
}

function parseDecimal(text: string): number | undefined {
  if (!/^(\d+\.?\d*|\.\d+)(e[+-]?\d+)?$/i.test(text)) return undefined;
  const value = Number(text);
  return Number.isFinite(value) ? value : undefined;
}

function parseTime(text: string): number | undefined {
  const [, count = '', unit = ''] = /^(.*?)(ns|us|ms|s|m|)$/.exec(text.trim()) ?? [];
  const number = parseDecimal(count.trim());
  if (number === undefined) return undefined;
  const ns = number * TIME[unit]!;
  return Number.isFinite(ns) ? ns : undefined;
}
