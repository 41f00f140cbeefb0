/** Checks whether this process may read and write the memory of another one, and if not, which privilege is missing. No bytes are copied. */

import { readFileSync, statSync } from 'node:fs';
import { allocateScratch, copyFromProcess, Errno, errnoName } from '../../../sys/index.ts';
import { effectiveUserId } from '../../../ucs/sys/user-id.ts';

const YAMA_SCOPE = '/proc/sys/kernel/yama/ptrace_scope';
/** Page 0 is never mapped: the kernel checks the permission, and then finds nothing to copy. */
const UNMAPPED_ADDRESS = 8;

/** The reason why the memory of a process is not accessible, as text for users; undefined if it is. */
export function accessRefusal(pid: number): string | undefined {
  const block = allocateScratch(8);
  const result = copyFromProcess(pid, UNMAPPED_ADDRESS, block.address, 8);
  block.free();
  switch (-result) {
    case 0:
    case Errno.EFAULT:
      return undefined;
    case Errno.ESRCH:
      return 'its process has ended';
    case Errno.ENOSYS:
      return 'this kernel has no process_vm_readv (CONFIG_CROSS_MEMORY_ATTACH)';
    case Errno.EPERM:
      return missingPrivilege(pid);
    default:
      return `process_vm_readv fails with ${errnoName(-result)}`;
  }
}

/**
 * The reason why keys of a process cannot be read, if it belongs to another user: they are in shared memory of that user, which is not trusted, also if
 * this process may read all memory.
 */
export function otherUser(pid: number): string | undefined {
  const { uid } = statSync(`/proc/${pid}`, { throwIfNoEntry: false }) ?? {};
  return uid === undefined || uid === effectiveUserId() ? undefined : `process ${pid} belongs to another user`;
}

/** The meaning of EPERM for access to this process. */
export function missingPrivilege(pid: number): string {
  const scope = yamaScope();
  const ofScope: Readonly<Record<string, string>> = {
    '1': 'kernel.yama.ptrace_scope is 1, which allows it for child processes only: set it to 0, or grant CAP_SYS_PTRACE',
    '2': 'kernel.yama.ptrace_scope is 2, which needs CAP_SYS_PTRACE',
    '3': 'kernel.yama.ptrace_scope is 3, which forbids it to all processes until the next boot',
  };
  const reason =
    ofScope[scope] ??
    'it belongs to another user, is not dumpable, or a container forbids it: run both as one user, or grant CAP_SYS_PTRACE';
  return `no permission for the memory of process ${pid}: ${reason}`;
}

function yamaScope(): string {
  try {
    return readFileSync(YAMA_SCOPE, 'latin1').trim();
  } catch {
    return ''; // A kernel without Yama.
  }
}
