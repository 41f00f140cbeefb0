/** Shared memory of System V (shmat), as far as programs of other libraries use it. This package has none of its own. */

import { Errno } from '../base/errno.ts';
import { errno, shmat, shmdt } from '../base/libc.ts';
import { SyscallError } from '../base/syscall-error.ts';

const SHM_RDONLY = 0o10000;

/**
 * Attaches a segment, which exists until it is detached, even if its owner ends.
 * @returns the address for {@link detachSegment}; undefined if there is no such segment in this namespace
 * @throws SyscallError EACCES, ENOMEM
 */
export function attachSegment(id: number): number | undefined {
  const address = shmat(id, 0, SHM_RDONLY);
  if (address !== -1) return address;
  const code = errno();
  if (code === Errno.EINVAL || code === Errno.EIDRM) return undefined;
  throw new SyscallError('shmat', code, `segment ${id}`);
}

/** Detaches a segment. */
export function detachSegment(address: number): void {
  shmdt(address);
}
