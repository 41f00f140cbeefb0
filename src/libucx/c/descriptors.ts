/**
 * Descriptors for libucp: where few are left, it ends the process by an assertion, or leaves out transports. So they are counted before a call that takes some.
 */

import { close, dup, Errno, isSyscallError, OpenFlag, open, SyscallError } from '../../sys/index.ts';

/** What a call needs at most: more than it takes on a machine with many network devices (1.13: a context 2, a worker 15 of 16 it needs, an endpoint 3). */
export const DESCRIPTORS = { ucp_init: 8, ucp_worker_create: 24, ucp_ep_create: 6 } as const;

/**
 * Checks that a call of libucp has the descriptors that it takes.
 * @throws UcxError ERR_SYSCALL_EMFILE with the number that it needs
 */
export function requireDescriptors(call: keyof typeof DESCRIPTORS): void {
  const taken: number[] = [];
  try {
    taken.push(open('/dev/null', OpenFlag.RDONLY));
    while (taken.length < DESCRIPTORS[call]) taken.push(dup(taken[0]!));
  } catch (error) {
    if (!isSyscallError(error, Errno.EMFILE)) throw error;
    const summary = `libucp needs ${DESCRIPTORS[call]} free descriptors, and ${taken.length} are left: raise \`ulimit -n\`, or close endpoints`;
    throw new SyscallError(call, Errno.EMFILE, summary, error);
  } finally {
    for (const fd of taken) close(fd);
  }
}
