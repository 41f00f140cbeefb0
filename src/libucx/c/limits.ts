/**
 * System limits that libucp handles badly, checked before its calls. Shared memory: if the directory of its posix transport is full or not writable, no
 * worker can be created although other transports work, so posix is left out. File descriptors: with too few, libucp aborts on an assertion or leaves out
 * transports.
 */

import { randomUUID } from 'node:crypto';
import { statfsSync, unlinkSync } from 'node:fs';
import { join } from 'node:path';
import { close, dup, Errno, isSyscallError, OpenFlag, open, SyscallError } from '../../sys/index.ts';
import type { Config } from '../../ucs/config/config.ts';
import { isUcxError } from '../../ucs/type/error.ts';

/** Settings of posix whose defaults differ between libucp and the native engine: those of libucp (1.13). */
const DEFAULTS = {
  POSIX_DIR: '/dev/shm',
  POSIX_FIFO_SIZE: 64,
  POSIX_FIFO_ELEM_SIZE: 128,
  POSIX_SEG_SIZE: 8256,
} as const;
/** Receive descriptors that a worker allocates first, and the overhead of each in bytes, rounded up (1.13). */
const SEGMENT_DESCRIPTORS = 512;
const DESCRIPTOR_OVERHEAD = 192;
const KIB = 1024;
/** The names in UCX_TLS that select posix, and for each the other transports that it selects. */
const GROUPS: Readonly<Record<string, readonly string[]>> = {
  posix: [],
  mm: ['sysv'],
  sm: ['sysv', 'cma'],
  shm: ['sysv', 'cma'],
};

const REMEDY = 'enlarge it, set UCX_POSIX_DIR to another folder, or exclude posix by UCX_TLS=^posix';

/** Reason why a libucp worker cannot allocate its shared memory, with the remedy; undefined if it can. */
export function posixShortage(config: Config): string | undefined {
  const folder = given(config, 'POSIX_DIR')?.text ?? DEFAULTS.POSIX_DIR;
  const number = (name: 'POSIX_FIFO_SIZE' | 'POSIX_FIFO_ELEM_SIZE' | 'POSIX_SEG_SIZE'): number =>
    Number(given(config, name)?.value ?? DEFAULTS[name]);
  const fifo = number('POSIX_FIFO_SIZE') * number('POSIX_FIFO_ELEM_SIZE');
  const needed = fifo + SEGMENT_DESCRIPTORS * (number('POSIX_SEG_SIZE') + DESCRIPTOR_OVERHEAD);
  const failure = creationFailure(folder);
  if (failure !== undefined) return `cannot create shared memory in ${folder}: ${failure}; ${REMEDY}`;
  // A tmpfs without a size limit reports no free space, and libucp does not use it either (1.13).
  const { bavail, bsize } = statfsSync(folder);
  if (bavail * bsize >= needed) return undefined;
  const [free, used] = [Math.floor((bavail * bsize) / KIB), Math.ceil(needed / KIB)];
  return `${folder} has ${free} KiB free, but a libucp worker needs ${used} KiB; ${REMEDY}`;
}

/** UCX_TLS without posix; undefined if it does not contain posix, or nothing else. */
export function tlsWithoutPosix(config: Config): string | undefined {
  const text = given(config, 'TLS')?.text ?? 'all';
  const names = text
    .replace(/^\^/, '')
    .split(',')
    .map((name) => name.trim());
  if (text.startsWith('^')) return names.includes('posix') ? undefined : `${text},posix`;
  if (names.includes('all')) return '^posix';
  if (!names.some((name) => name in GROUPS)) return undefined;
  const others = [...new Set(names.flatMap((name) => GROUPS[name] ?? [name]))];
  return others.length === 0 ? undefined : others.join(',');
}

function given(config: Config, field: string) {
  return config.entries.find(({ name, source }) => name === `UCX_${field}` && source !== 'default');
}

/** The error of creating a file in a folder; undefined if that works. */
function creationFailure(folder: string): string | undefined {
  const path = join(folder, `gaudi-ucx-probe.${randomUUID()}`);
  try {
    close(open(path, OpenFlag.RDWR | OpenFlag.CREAT | OpenFlag.EXCL));
  } catch (error) {
    if (isUcxError(error)) return error.message;
    throw error;
  }
  unlinkSync(path);
  return undefined;
}

/** Upper bounds of the descriptors that a call opens, for machines with many network devices (1.13: a context 2, a worker 15 and one spare, an endpoint 3). */
export const DESCRIPTORS = { ucp_init: 8, ucp_worker_create: 24, ucp_ep_create: 6 } as const;

/**
 * Checks that enough descriptors are free for a call of libucp.
 * @throws UcxError ERR_SYSCALL_EMFILE with the number that it needs
 */
export function requireDescriptors(call: keyof typeof DESCRIPTORS): void {
  const taken: number[] = [];
  try {
    taken.push(open('/dev/null', OpenFlag.RDONLY));
    while (taken.length < DESCRIPTORS[call]) taken.push(dup(taken[0]!));
  } catch (error) {
    if (!isSyscallError(error, Errno.EMFILE)) throw error;
    const summary = `libucp needs ${DESCRIPTORS[call]} free file descriptors, but only ${taken.length} are left: raise \`ulimit -n\`, or close endpoints`;
    throw new SyscallError(call, Errno.EMFILE, summary, { cause: error });
  } finally {
    for (const fd of taken) close(fd);
  }
}
