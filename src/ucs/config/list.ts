/** The composite value types of UCX's configuration: lists, allow-lists with negation, ranges and globs, and key-value lists. */

import type { ConfigType } from './value.ts';

/** A selection of names. */
export interface AllowList {
  /** `all`: every name; `allow`: names that match an item; `deny`: names that match none (written with `^`). */
  readonly mode: 'all' | 'allow' | 'deny';
  /** Items as written: a name, a glob with `*` and `?`, or a range such as `mlx5_[0-3]`; empty in mode `all`. */
  readonly items: readonly string[];
}

/** A value for some of the keys `K`. */
export type KeyValues<K extends string, T> = { readonly [key in K]?: T };

/** Limit for the length of an item, for which a regular expression is made: the longest name of a file; names of network devices are shorter. */
const ITEM_LENGTH_MAX = 255;

/** Key of the item without a key, in key-value lists that allow one. */
export const DEFAULT_KEY = 'default';

/** Items of `item` separated by commas. Superfluous commas are ignored, as in UCX; an empty string is an empty list. */
export function listType<T>(item: ConfigType<T>): ConfigType<readonly T[]> {
  return {
    syntax: `a list separated by commas, each item ${item.syntax}`,
    parse(text) {
      const values: T[] = [];
      for (const part of splitList(text)) {
        const value = item.parse(part);
        if (value === undefined) return undefined;
        values.push(value);
      }
      return values;
    },
    print: (values) => values.map((value) => item.print(value)).join(','),
  };
}

/** `all`, a list of names, or `^` and a list of excluded names. */
export const allowListType: ConfigType<AllowList> = {
  syntax:
    'the word all, or a list of names, globs (*, ?) and ranges ([0-3]) separated by commas, ^ before the list to exclude its items, ' +
    `each item of at most ${ITEM_LENGTH_MAX} characters`,
  parse(text) {
    const trimmed = text.trim();
    const deny = trimmed.startsWith('^');
    const items = splitList(deny ? trimmed.slice(1) : trimmed);
    if (items.some((item) => /[\s^]/.test(item) || !isItem(item))) return undefined;
    // `^all` excludes every name and `^` none, which is never intended; a name next to `all` has no effect. UCX rejects all three for UCX_TLS.
    if (items.includes('all')) return deny || items.length > 1 ? undefined : { mode: 'all', items: [] };
    if (deny) return items.length === 0 ? undefined : { mode: 'deny', items };
    return { mode: 'allow', items };
  },
  print(value) {
    if (value.mode === 'all') return 'all';
    return (value.mode === 'deny' ? '^' : '') + value.items.join(',');
  },
};

/** True if `list` selects `name`. */
export function isAllowed(list: AllowList, name: string): boolean {
  if (list.mode === 'all') return true;
  return list.items.some((item) => matchesItem(item, name)) === (list.mode === 'allow');
}

/** True if a string can be an item of an {@link AllowList}: it is not too long, and its ranges ascend. */
export function isItem(text: string): boolean {
  return text.length <= ITEM_LENGTH_MAX && rangesOf(text).every(({ low, high }) => low <= high);
}

/** True if an item of an {@link AllowList} (name, glob or range) matches `name`. */
export function matchesItem(item: string, name: string): boolean {
  const pattern = item
    .split(/(\[\d+-\d+\])/)
    .map((part, index) => (index % 2 === 1 ? '(\\d+)' : part.replace(/[\\^$.|+()[\]{}]/g, '\\$&')))
    .join('')
    .replaceAll('*', '.*')
    .replaceAll('?', '.');
  const match = new RegExp(`^${pattern}$`, 's').exec(name);
  if (match === null) return false;
  return rangesOf(item).every(({ low, high }, index) => {
    const number = Number(match[index + 1]);
    return number >= low && number <= high;
  });
}

/**
 * `key:value` items separated by commas, for example `host:512K,cuda:4M`. When `keys` contains {@link DEFAULT_KEY}, one item
 * may stand without a key, for example `10000MBs,h2d:8300MBs`.
 */
export function keyValueType<K extends string, T>(
  keys: readonly K[],
  type: ConfigType<T>,
): ConfigType<KeyValues<K, T>> {
  const hasDefault = keys.some((key) => key === DEFAULT_KEY);
  const named = keys.filter((key) => key !== DEFAULT_KEY);
  return {
    syntax: `${hasDefault ? '[<value>,]' : ''}<key>:<value>,... with keys ${named.join(', ')}, each value ${type.syntax}`,
    parse(text) {
      const values: { [key in K]?: T } = {};
      for (const part of splitList(text)) {
        const colon = part.indexOf(':');
        const word = colon < 0 ? DEFAULT_KEY : part.slice(0, colon).trim();
        const key = keys.find((each) => each === word);
        const value = type.parse(part.slice(colon + 1));
        if (key === undefined || value === undefined || Object.hasOwn(values, key)) return undefined;
        values[key] = value;
      }
      return values;
    },
    print: (values) =>
      keys
        .flatMap((key) => {
          const value = values[key];
          return value === undefined ? [] : [(key === DEFAULT_KEY ? '' : `${key}:`) + type.print(value)];
        })
        .join(','),
  };
}

function splitList(text: string): string[] {
  return text
    .split(',')
    .map((part) => part.trim())
    .filter((part) => part !== '');
}

function rangesOf(item: string): { low: number; high: number }[] {
  return [...item.matchAll(/\[(\d+)-(\d+)\]/g)].map((match) => ({ low: Number(match[1]), high: Number(match[2]) }));
}
