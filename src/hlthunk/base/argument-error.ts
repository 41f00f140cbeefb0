/** Argument checks shared by the calls of hl-thunk. Each failure is ERR_GAUDI_INVALID_PARAMS and names the argument, the rule and the value. */

import { isOptions, missingMethod, nullOption, unknownOption } from '../../ucs/type/check-options.ts';
import { describeValue, outsideText, type SizedRange, type UcxError } from '../../ucs/type/error.ts';
import { GaudiErrorCode, gaudiError } from './gaudi-error.ts';

/** The error for an invalid argument of the Gaudi layer. Code ERR_GAUDI_INVALID_PARAMS. */
export function invalidArgument(argument: string, rule: string, value: unknown): UcxError {
  const shown =
    typeof value === 'bigint' ? `0x${value.toString(16)}` : typeof value === 'string' ? value : describeValue(value);
  return badArgument(argument, rule, shown, `argument ${argument} ${rule}, got ${shown}`);
}

/** The error for a range outside of its memory; see `outsideOf`. */
export function outsideArgument(memory: string, argument: string, range: SizedRange): UcxError {
  const text = outsideText(memory, range);
  return badArgument(argument, text, `${range.byteLength}`, text);
}

function badArgument(argument: string, rule: string, value: string, message: string): UcxError {
  return gaudiError(GaudiErrorCode.INVALID_PARAMS, message, { argument, rule, value });
}

/** End of user addresses of x86-64. */
const HOST_ADDRESS_END = 2 ** 47;

/** Throws unless `value` is a possible address of user memory. */
export function checkHostAddress(argument: string, value: number): void {
  if (!Number.isSafeInteger(value) || value <= 0 || value >= HOST_ADDRESS_END) {
    throw invalidArgument(argument, 'must be a user address below 2^47', value);
  }
}

/** Throws unless `value` is an integer from 1 to 2^53 - 1. */
export function checkLength(argument: string, value: number): void {
  if (!Number.isSafeInteger(value) || value <= 0) {
    throw invalidArgument(argument, 'must be a positive integer below 2^53', value);
  }
}

/** Throws unless `value` fits an unsigned 64-bit word. */
export function checkWord64(argument: string, value: bigint): void {
  if (typeof value !== 'bigint' || value < 0n || value >= 1n << 64n)
    throw invalidArgument(argument, 'must be a bigint of 64 bits, unsigned', value);
}

/** Throws unless `value` is an integer of 0 to 2^32 - 1. */
export function checkWord32(argument: string, value: number): void {
  if (!Number.isInteger(value) || value < 0 || value >= 2 ** 32) {
    throw invalidArgument(argument, 'must be an integer from 0 to 2^32 - 1', value);
  }
}

/** Throws unless `value` is an integer from `least` to 2^53 - 1. */
export function checkInteger(argument: string, value: number, least = 0): void {
  if (!Number.isSafeInteger(value) || value < least) {
    throw invalidArgument(argument, `must be an integer from ${least} to 2^53 - 1`, value);
  }
}

/**
 * Throws unless `value` is an object. Its fields are checked where they are used.
 * @param names of the permitted options, which must not be null; without them any is accepted
 */
export function checkObject(argument: string, value: object, names?: readonly string[]): void {
  if (typeof value !== 'object' || value === null) throw invalidArgument(argument, 'must be an object', value);
  if (names === undefined) return;
  if (!isOptions(value)) throw invalidArgument(argument, `must be an object with ${names.join(', ')}`, value);
  const unknown = unknownOption(value, names);
  if (unknown !== undefined)
    throw badArgument(argument, unknown.rule, unknown.name, `argument ${argument} ${unknown.rule}`);
  const isNull = nullOption(value);
  if (isNull !== undefined) throw invalidArgument(isNull, 'must be left out for its default', null);
}

/** Throws unless `value` is a boolean, or undefined for its default. */
export function checkFlag(argument: string, value: boolean | undefined): void {
  if (value !== undefined && typeof value !== 'boolean') throw invalidArgument(argument, 'must be a boolean', value);
}

/** Throws unless `value` is a string. */
export function checkText(argument: string, value: string): void {
  if (typeof value !== 'string') throw invalidArgument(argument, 'must be a text', value);
}

/** Throws unless `value` has these methods: for interfaces, which programs may implement. */
export function checkMethods<T extends object>(
  argument: string,
  value: T,
  methods: readonly (keyof T & string)[],
): void {
  checkObject(argument, value);
  const missing = missingMethod(value, methods);
  if (missing !== undefined) throw invalidArgument(argument, `must have the method ${missing}`, value);
}
