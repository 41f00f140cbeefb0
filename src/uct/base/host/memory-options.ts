/** The options of memory domains: their names, and the check of access flags. Their meaning is documented in uct/api. */

import { checkOptions } from '../../../ucs/type/check-options.ts';
import { invalidParam } from '../../../ucs/type/error.ts';
import { type AllocateOptions, MemAccess, type RegisterOptions } from '../../api/memory-domain.ts';

/** Of memAlloc. */
export const ALLOCATE_OPTIONS: readonly (keyof AllocateOptions)[] = ['memoryType', 'sysDevice', 'shared', 'access'];

/** Of memDereg. */
export const DEREGISTER_OPTIONS: readonly string[] = ['invalidate', 'force'];

/** The access flags of a registration. @throws UcxError ERR_INVALID_PARAM */
export function registeredAccess(options: RegisterOptions = {}): number {
  checkOptions(options, 'options', ['access']);
  return checkAccess(options.access);
}

/** Checks access flags; all by default. @throws UcxError ERR_INVALID_PARAM */
export function checkAccess(access: number = MemAccess.ALL): number {
  if (Number.isInteger(access) && access > 0 && (access & ~MemAccess.ALL) === 0) return access;
  throw invalidParam('access', 'must be bits of MemAccess', access);
}
