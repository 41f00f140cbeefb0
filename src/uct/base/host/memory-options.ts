/** The names of the options of memory domains. Their meaning is documented in uct/api. */

import type { AllocateOptions } from '../../api/memory-domain.ts';

/** Of memAlloc. */
export const ALLOCATE_OPTIONS: readonly (keyof AllocateOptions)[] = ['memoryType', 'sysDevice', 'shared'];

/** Of memDereg. */
export const DEREGISTER_OPTIONS: readonly string[] = ['invalidate', 'force'];
