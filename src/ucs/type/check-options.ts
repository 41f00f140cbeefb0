/** Checks the objects that calls take beside their arguments, and those that they are handed. What is in them is checked where it is used. */

import { invalidParam } from './error.ts';

/**
 * Checks that options are an object.
 * @param argument its name
 * @throws UcxError ERR_INVALID_PARAM
 */
export function checkOptions(options: object, argument = 'options'): void {
  if (typeof options !== 'object' || options === null) throw invalidParam(argument, 'must be an object', options);
}

/**
 * Checks an implementation of an interface, which anybody may bring.
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
