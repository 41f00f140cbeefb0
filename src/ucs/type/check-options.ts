/** Checks option objects, implementations of interfaces, and simple values. */

import { argumentError, invalidParam } from './error.ts';
import { nearestName } from './nearest-name.ts';

/**
 * Checks that options are an object, and that all of them are known.
 * @param argument name of the argument
 * @param names known options; without it any are accepted
 * @throws UcxError ERR_INVALID_PARAM that names an unknown option and the nearest known one
 */
export function checkOptions(options: object, argument = 'options', names?: readonly string[]): void {
  if (typeof options !== 'object' || options === null) throw invalidParam(argument, 'must be an object', options);
  if (names === undefined) return;
  if (!isOptions(options)) throw invalidParam(argument, `must be an object with ${names.join(', ')}`, options);
  const unknown = unknownOption(options, names);
  if (unknown !== undefined) {
    throw argumentError(argument, unknown.rule, unknown.name, `argument ${argument} ${unknown.rule}`);
  }
}

/** Checks that options are left out rather than null, which is no default. @throws UcxError ERR_INVALID_PARAM */
export function checkNoNulls(options: object): void {
  const name = nullOption(options);
  if (name !== undefined) throw invalidParam(name, 'must be left out for its default', null);
}

/** The first option that is null. */
export function nullOption(options: object): string | undefined {
  return Object.keys(options).find((key) => options[key as keyof typeof options] === null);
}

/** Checks an optional flag. @throws UcxError ERR_INVALID_PARAM */
export function checkFlag(argument: string, value: boolean | undefined): void {
  if (value !== undefined && typeof value !== 'boolean') throw invalidParam(argument, 'must be a boolean', value);
}

/** Checks a string. @throws UcxError ERR_INVALID_PARAM */
export function checkString(argument: string, value: string): void {
  if (typeof value !== 'string') throw invalidParam(argument, 'must be a string', value);
}

/** Checks a size or a number of things. @throws UcxError ERR_INVALID_PARAM */
export function checkPositive(argument: string, value: number): void {
  if (!Number.isSafeInteger(value) || value < 1) throw invalidParam(argument, 'must be an integer of 1 or more', value);
}

/** Whether an object may have options: bytes, lists and signals are common mistakes, whose own fields would be named. */
export function isOptions(value: object): boolean {
  return !(ArrayBuffer.isView(value) || Array.isArray(value) || value instanceof AbortSignal);
}

/** The first option that is not among the names, and the rule that it breaks: with the nearest name that exists, or all of them. */
export function unknownOption(
  options: object,
  names: readonly string[],
): { readonly name: string; readonly rule: string } | undefined {
  for (const name in options) {
    if (names.includes(name)) continue;
    const nearest = nearestName(name, names);
    const known = nearest === undefined ? `, only ${names.join(', ')}` : `; did you mean ${nearest}?`;
    return { name, rule: `has no field ${name}${known}` };
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
