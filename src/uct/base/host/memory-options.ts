/** Checks of the options of memory domains. Their meaning is documented in uct/api. */

import { MEMORY_TYPE_NAMES, type MemoryType } from '../../../ucs/memory/memory-type.ts';
import { checkFlag, checkOptions } from '../../../ucs/type/check-options.ts';
import { invalidParam } from '../../../ucs/type/error.ts';
import { type AllocateOptions, MemAccess, type RegisterOptions } from '../../api/memory-domain.ts';
import { checkSysDevice } from '../range.ts';

const ALLOCATE_OPTIONS: readonly (keyof AllocateOptions)[] = ['memoryType', 'sysDevice', 'shared', 'access'];
const REGISTER_OPTIONS: readonly (keyof RegisterOptions)[] = ['access'];
const DEREGISTER_OPTIONS: readonly (keyof DeregisterOptions)[] = ['invalidate', 'force'];

/** Options of memDereg. */
export interface DeregisterOptions {
  readonly invalidate?: boolean;
  readonly force?: boolean;
}

/**
 * The access flags of an allocation.
 * @param memoryType the only one that the memory domain allocates
 * @throws UcxError ERR_INVALID_PARAM
 */
export function allocatedAccess(options: AllocateOptions, memoryType: MemoryType, mdName: string): number {
  checkOptions(options, 'options', ALLOCATE_OPTIONS);
  if (options.memoryType !== memoryType) {
    const rule = `must be ${MEMORY_TYPE_NAMES[memoryType]} in memory domain ${mdName}`;
    throw invalidParam('memoryType', rule, options.memoryType);
  }
  checkSysDevice(options.sysDevice);
  checkFlag('shared', options.shared);
  return checkAccess(options.access);
}

/** The access flags of a registration. @throws UcxError ERR_INVALID_PARAM */
export function registeredAccess(options: RegisterOptions = {}): number {
  checkOptions(options, 'options', REGISTER_OPTIONS);
  return checkAccess(options.access);
}

/** @throws UcxError ERR_INVALID_PARAM */
export function checkDeregister(options: DeregisterOptions): void {
  checkOptions(options, 'options', DEREGISTER_OPTIONS);
  checkFlag('invalidate', options.invalidate);
  checkFlag('force', options.force);
}

/** Checks access flags; all by default. @throws UcxError ERR_INVALID_PARAM */
export function checkAccess(access: number = MemAccess.ALL): number {
  if (Number.isInteger(access) && access > 0 && (access & ~MemAccess.ALL) === 0) return access;
  throw invalidParam('access', 'must be bits of MemAccess', access);
}
