/** Whether a value is a byte array. */

import { types } from 'node:util';

/**
 * Whether a value is a Uint8Array, or of a subclass such as Buffer: also those of other realms, but no proxy and no object that has only the prototype, whose
 * properties throw. As fast as `instanceof`.
 */
export function isBytes(value: unknown): value is Uint8Array {
  return types.isUint8Array(value);
}
