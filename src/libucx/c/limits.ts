/**
 * Checks that the shared-memory directory of libucp's transport posix is writable and has free space. If not, no worker of libucp can be created,
 * although other transports work: then posix is omitted. The free descriptors, counted before a call of libucp that opens some: with too few, libucp
 * aborts by an assertion or omits transports.
 */

import { randomUUID } from 'node:crypto';
import { statfsSync, unlinkSync } from 'node:fs';
import { join } from 'node:path';
import { close, dup, Errno, isSyscallError, OpenFlag, open, SyscallError } from '../../sys/index.ts';
import type { Config } from '../../ucs/config/config.ts';
import { isUcxError } from '../../ucs/type/error.ts';

/** Settings of posix of which libucp and the native engine have different defaults, with those of libucp (1.13). */
const DEFAULTS = {
  POSIX_DIR: '/dev/shm',
  POSIX_FIFO_SIZE: 64,
  POSIX_FIFO_ELEM_SIZE: 128,
  POSIX_SEG_SIZE: 8256,
} as const;
/** Receive descriptors that a worker allocates first, and what each has beside its bytes, rounded up (1.13). */
const SEGMENT_DESCRIPTORS = 512;
const DESCRIPTOR_OVERHEAD = 192;
const KIB = 1024;
/** Alternatives to posix in UCX_TLS; names of groups that contain it. */
const GROUPS: Readonly<Record<string, readonly string[]>> = {
  posix: [],
  mm: ['sysv'],
  sm: ['sysv', 'cma'],
  shm: ['sysv', 'cma'],
};

/** What to do. */
const REMEDY = 'enlarge it, set UCX_POSIX_DIR to another folder, or exclude posix by UCX_TLS=^posix';

/** Why a worker of libucp cannot have its shared memory, and what to do; undefined if it can. */
export function posixShortage(config: Config): string | undefined {
  const folder = given(config, 'POSIX_DIR')?.text ?? DEFAULTS.POSIX_DIR;
  const number = (name: 'POSIX_FIFO_SIZE' | 'POSIX_FIFO_ELEM_SIZE' | 'POSIX_SEG_SIZE'): number =>
    Number(given(config, name)?.value ?? DEFAULTS[name]);
  const fifo = number('POSIX_FIFO_SIZE') * number('POSIX_FIFO_ELEM_SIZE');
  const needed = fifo + SEGMENT_DESCRIPTORS * (number('POSIX_SEG_SIZE') + DESCRIPTOR_OVERHEAD);
  const refused = refusalOf(folder);
  if (refused !== undefined) return `no shared memory in ${folder}: ${refused}; ${REMEDY}`;
  // A tmpfs without a limit has none free either: libucp does not use it (1.13).
  const { bavail, bsize } = statfsSync(folder);
  if (bavail * bsize >= needed) return undefined;
  const [free, taken] = [Math.floor((bavail * bsize) / KIB), Math.ceil(needed / KIB)];
  return `${folder} has ${free} KiB free, and a worker of libucp takes ${taken} KiB; ${REMEDY}`;
}

/** UCX_TLS without posix; undefined if it does not contain it, or nothing else. */
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

/** Why a file cannot be created in a folder. */
function refusalOf(folder: string): string | undefined {
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
