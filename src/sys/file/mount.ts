/** Mounts, and the mount namespace of a thread. Needs CAP_SYS_ADMIN. */

import { readFileSync } from 'node:fs';
import { errno, mountCall, umount2, unshareCall } from '../base/libc.ts';
import { SyscallError } from '../base/syscall-error.ts';

const CLONE_NEWNS = 0x20000;
const MNT_DETACH = 2;

/** Flags of {@link mount}: `include/uapi/linux/mount.h`. */
export const MountFlag = {
  RDONLY: 1,
  NOSUID: 2,
  BIND: 0x1000,
  REC: 0x4000,
  PRIVATE: 0x40000,
} as const;

/** A mount of this thread's namespace. */
export interface MountEntry {
  /** Device number of its file system, such as `0:52`. */
  readonly device: string;
  readonly target: string;
  readonly type: string;
  /** The mounted device; a name for file systems without a device. */
  readonly source: string;
}

/** Arguments of {@link mount}. */
export interface MountOptions {
  readonly source?: string;
  readonly type?: string;
  /** Bits of {@link MountFlag}. */
  readonly flags?: number;
  /** Options of the file system. */
  readonly data?: string;
}

/** Mounts a file system, binds a path or changes the propagation of mounts. Throws SyscallError as mount(2). */
export function mount(target: string, options: MountOptions): void {
  const { source = 'none', type, flags = 0, data } = options;
  if (mountCall(source, target, type ?? null, flags, data ?? null) === 0) return;
  throw new SyscallError('mount', errno(), `${type ?? source} on ${target}`);
}

/** Detaches the topmost mount of a path; the mount ends when it is no longer in use. Throws SyscallError as umount2(2). */
export function unmount(target: string): void {
  if (umount2(target, MNT_DETACH) !== 0) throw new SyscallError('umount2', errno(), target);
}

/**
 * Gives this thread a copy of its mount namespace. Changes of mounts then affect only this thread and processes that it starts.
 * @throws SyscallError EPERM
 */
export function unshareMounts(): void {
  if (unshareCall(CLONE_NEWNS) !== 0) throw new SyscallError('unshare', errno(), 'the mount namespace');
}

/** The mounts that this thread sees, in the order of /proc. */
export function readMounts(): readonly MountEntry[] {
  return parseMounts(readFileSync('/proc/thread-self/mountinfo', 'utf8'));
}

/** Parses the text of /proc/PID/mountinfo: proc(5). */
export function parseMounts(text: string): readonly MountEntry[] {
  return text
    .trimEnd()
    .split('\n')
    .map((line) => {
      const fields = line.split(' ');
      const separator = fields.indexOf('-');
      return {
        device: fields[2]!,
        target: withoutEscapes(fields[4]!),
        type: fields[separator + 1]!,
        source: withoutEscapes(fields[separator + 2]!),
      };
    });
}

/** Blanks and a few other characters are written in octal: seq_path in fs/seq_file.c. */
function withoutEscapes(path: string): string {
  return path.replace(/\\([0-7]{3})/g, (_all, octal: string) => String.fromCharCode(Number.parseInt(octal, 8)));
}
