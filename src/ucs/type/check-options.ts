/** Checks option objects and implementations of interfaces. It does not check the values of options. */

import { invalidParam } from './error.ts';
import { nearestName } from './nearest-name.ts';

/**
 * Checks that options are an object, and that all of them are known.
 * @param argument name of the argument
 * @param names known options; without it any are accepted
 * @throws UcxError ERR_INVALID_PARAM that names an unknown option and the nearest known one
 */
export function checkOptions(options: object, argument = 'options', names?: readonly string[]): void {
  if (typeof options !== 'object' || options === null) throw invalidParam(argument, 'must be an object', options);
  const unknown = names === undefined ? undefined : unknownOption(options, names);
  if (unknown !== undefined) throw invalidParam(argument, unknown.rule, unknown.name);
}

/** The first option that is not among the names, and the rule that it breaks: with the nearest name that exists, or all of them. */
export function unknownOption(
  options: object,
  names: readonly string[],
): { readonly name: string; readonly rule: string } | undefined {
  for (const name in options) {
    if (names.includes(name)) continue;
    const nearest = nearestName(name, names);
    const known = nearest === undefined ? ` (${names.join(', ')})` : `; did you mean ${nearest}?`;
    return { name, rule: `must have known options only${known}` };
  }
  return undefined;
}

/**
 * Checks an implementation of an interface that a program provides.
 * @throws UcxError ERR_INVALID_PARAM
 */
export function checkMethods<T extends object>(
  argument: string,
  value: T,
  methods: readonly (keyof T & string)[],
): void {
  checkOptions(value, argument);
  const missing = missingMethod(value, methods);
  if (missing !== undefined) throw invalidParam(argument, `must have the method ${missing}`, value);
}

/** The first of some methods that an object does not have. */
export function missingMethod<T extends object>(value: T, methods: readonly (keyof T & string)[]): string | undefined {
  return methods.find((name) => typeof value[name] !== 'function');
}
