/** The checks of arguments that calls of hl-thunk share. Each failure is ERR_GAUDI_INVALID_PARAMS and names argument, rule and value. */

import type { UcxError } from '../ucs/error.ts';
import { GaudiErrorCode, gaudiError } from './gaudi-error.ts';

/** The error for a bad argument of the Gaudi layer. Code ERR_GAUDI_INVALID_PARAMS. */
export function invalidArgument(argument: string, rule: string, value: unknown): UcxError {
  const shown = typeof value === 'bigint' ? `0x${value.toString(16)}` : String(value);
  return gaudiError(GaudiErrorCode.INVALID_PARAMS, `argument ${argument} ${rule}, got ${shown}`, {
    argument,
    rule,
    value: shown,
  });
}

/** Throws unless `value` is an integer from 1 to 2^53 - 1. */
export function checkLength(argument: string, value: number): void {
  if (!Number.isSafeInteger(value) || value <= 0) {
    throw invalidArgument(argument, 'must be a positive integer below 2^53', value);
  }
}

/** Throws unless `value` fits an unsigned 64-bit word. */
export function checkWord64(argument: string, value: bigint): void {
  if (value < 0n || value >= 1n << 64n) throw invalidArgument(argument, 'must fit in 64 bits, unsigned', value);
}

/** Throws unless `value` is an integer of 0 to 2^32 - 1. */
export function checkWord32(argument: string, value: number): void {
  if (!Number.isInteger(value) || value < 0 || value >= 2 ** 32) {
    throw invalidArgument(argument, 'must be an integer from 0 to 2^32 - 1', value);
  }
}
