/** The new value of a word under an atomic operation that the device executes as compare and swap. */

import { type AtomicCall, AtomicOperation } from '../../api/iface.ts';

/** The word after the operation, if it was `before`. */
export function newWord({ operation, value64 }: AtomicCall, before: bigint): bigint {
  switch (operation) {
    case AtomicOperation.AND:
      return before & value64;
    case AtomicOperation.OR:
      return before | value64;
    case AtomicOperation.XOR:
      return before ^ value64;
    default:
      return value64;
  }
}

/** Whether a device has the operation itself, so that one attempt is enough. */
export function isNative(operation: AtomicOperation): boolean {
  return operation === AtomicOperation.ADD || operation === AtomicOperation.CSWAP;
}
