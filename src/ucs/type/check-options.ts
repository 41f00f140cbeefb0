/** Checks option objects, implementations of interfaces, and simple values. */

import { argumentError, invalidParam } from './error.ts';
import { nearestName } from './nearest-name.ts';

/**
 * Checks that options are an object with known fields only.
 * @param argument name of the argument
 * @param names known options; if omitted, any are accepted
 * @throws UcxError ERR_INVALID_PARAM with the unknown option and the nearest known one
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

/** Checks that options are omitted rather than null, which does not select the default. @throws UcxError ERR_INVALID_PARAM */
export function checkNoNulls(options: object): void {
  const name = nullOption(options);
  if (name !== undefined) throw invalidParam(name, 'must be omitted to use its default', null);
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

/** Checks a positive integer. @throws UcxError ERR_INVALID_PARAM */
export function checkPositive(argument: string, value: number): void {
  if (!Number.isSafeInteger(value) || value < 1) throw invalidParam(argument, 'must be an integer of 1 or more', value);
}

/**
 * Whether an object can be an options object: byte arrays, arrays and signals are common mistakes, for which a list of their own fields would be a misleading
 * error.
 */
export function isOptions(value: object): boolean {
  return !(ArrayBuffer.isView(value) || Array.isArray(value) || value instanceof AbortSignal);
}

/** The first option that is not among the names, and the violated rule, with the nearest known name or all names. */
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
 * Checks an interface implementation that a program provides.
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
