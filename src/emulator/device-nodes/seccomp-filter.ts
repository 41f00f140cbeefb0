/**
 * The seccomp filter of programs with emulated device nodes: selects the system calls that their supervisor handles. All others run without it.
 *
 * | Call | Why |
 * | --- | --- |
 * | stat, lstat, fstat, newfstatat, statx | A FUSE file that programs can open has no device number |
 * | statfs, fstatfs | libraries accept /sys only if it is a sysfs |
 * | epoll_ctl that adds a descriptor | The files of the driver cannot be polled; those of FUSE can |
 * | ioctl MEMORY of both families | A FUSE reply cannot contain the descriptor that the export of a dma-buf returns |
 * | mmap of a file, except of a program or library (MAP_DENYWRITE, which has no other effect) | The kernel maps the file behind a device node at any
 * offset, without a request |
 */

import type { BpfInstruction } from '../../sys/index.ts';
import {
  DRM_COMMAND_BASE,
  DRM_IOCTL_TYPE,
  HABANALABS_COMMAND_BASE,
  HABANALABS_IOCTL_TYPE,
  IoctlIndex,
} from '../../uapi/index.ts';

/** Numbers of system calls on x86-64: arch/x86/entry/syscalls/syscall_64.tbl. */
export const SystemCall = {
  STAT: 4,
  FSTAT: 5,
  LSTAT: 6,
  MMAP: 9,
  IOCTL: 16,
  STATFS: 137,
  FSTATFS: 138,
  EPOLL_CTL: 233,
  NEWFSTATAT: 262,
  STATX: 332,
} as const;

/** EPOLL_CTL_ADD of include/uapi/linux/eventpoll.h. */
const EPOLL_ADD = 1;
const AUDIT_ARCH_X86_64 = 0xc000_003e;
const RET_ALLOW = 0x7fff_0000;
const RET_USER_NOTIF = 0x7fc0_0000;
/** Offsets in struct seccomp_data, of the low words of arguments. */
const NUMBER = 0;
const ARCH = 4;
const argument = (index: number): number => 16 + 8 * index;
const MAP_TYPE = 0x0f;
const MAP_SHARED = 1;
const MAP_SHARED_VALIDATE = 3;
const MAP_ANONYMOUS = 0x20;
const MAP_DENYWRITE = 0x800;
const MEMORY_REQUESTS = [
  (HABANALABS_IOCTL_TYPE << 8) | (HABANALABS_COMMAND_BASE + IoctlIndex.MEMORY),
  (DRM_IOCTL_TYPE << 8) | (DRM_COMMAND_BASE + IoctlIndex.MEMORY),
];

const STATUS_CALLS = [
  SystemCall.STAT,
  SystemCall.FSTAT,
  SystemCall.LSTAT,
  SystemCall.STATFS,
  SystemCall.FSTATFS,
  SystemCall.NEWFSTATAT,
  SystemCall.STATX,
];

/** Classic BPF: include/uapi/linux/bpf_common.h. */
const LOAD_WORD = 0x20;
const AND = 0x54;
const JUMP_EQUAL = 0x15;
const JUMP_SET = 0x45;
const RETURN = 0x06;

/** An instruction that jumps to a label if its condition holds, or a label. */
type Line = { readonly code: number; readonly value: number; readonly to?: string } | string;

const load = (offset: number): Line => ({ code: LOAD_WORD, value: offset });
const and = (mask: number): Line => ({ code: AND, value: mask });
const ifEqual = (value: number, to: string): Line => ({ code: JUMP_EQUAL, value, to });
const ifSet = (mask: number, to: string): Line => ({ code: JUMP_SET, value: mask, to });
const give = (value: number): Line => ({ code: RETURN, value });

const LINES: readonly Line[] = [
  load(ARCH),
  ifEqual(AUDIT_ARCH_X86_64, 'native'),
  give(RET_ALLOW),
  'native',
  load(NUMBER),
  ifEqual(SystemCall.IOCTL, 'ioctl'),
  ifEqual(SystemCall.MMAP, 'mmap'),
  ifEqual(SystemCall.EPOLL_CTL, 'epoll'),
  ...STATUS_CALLS.map((call) => ifEqual(call, 'notify')),
  give(RET_ALLOW),
  'ioctl',
  load(argument(1)),
  and(0xffff),
  ...MEMORY_REQUESTS.map((request) => ifEqual(request, 'notify')),
  give(RET_ALLOW),
  'mmap',
  load(argument(3)),
  ifSet(MAP_ANONYMOUS, 'allow'),
  and(MAP_TYPE),
  ifEqual(MAP_SHARED, 'notify'),
  ifEqual(MAP_SHARED_VALIDATE, 'notify'),
  load(argument(3)),
  ifSet(MAP_DENYWRITE, 'allow'),
  give(RET_USER_NOTIF),
  'epoll',
  load(argument(1)),
  ifEqual(EPOLL_ADD, 'notify'),
  'allow',
  give(RET_ALLOW),
  'notify',
  give(RET_USER_NOTIF),
];

/** Resolves the labels: jumps are relative to the next instruction. */
function assemble(lines: readonly Line[]): readonly BpfInstruction[] {
  const places = new Map<string, number>();
  let count = 0;
  for (const line of lines) {
    if (typeof line === 'string') places.set(line, count);
    else count += 1;
  }
  const instructions: BpfInstruction[] = [];
  for (const line of lines) {
    if (typeof line === 'string') continue;
    const { code, value, to } = line;
    const jumpTrue = to === undefined ? 0 : places.get(to)! - instructions.length - 1;
    instructions.push({ code, value, jumpTrue, jumpFalse: 0 });
  }
  return instructions;
}

/** The instructions, in the form that installSeccompFilter loads. */
export const DEVICE_FILTER: readonly BpfInstruction[] = assemble(LINES);
