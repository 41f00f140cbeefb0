/**
 * The filter for programs with emulated device nodes: which system calls their supervisor answers. The answers are in supervisor.ts.
 *
 * | Call | Why |
 * | --- | --- |
 * | fstat, newfstatat and statx of a descriptor | A FUSE file has no device number |
 * | ioctl MEMORY of both families | A FUSE answer cannot contain a descriptor, as the export of a dma-buf returns |
 * | mmap of a file, but not of a program or library (MAP_DENYWRITE, which has no other effect) | The kernel maps the file behind a device node without asking, at any offset |
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
export const SystemCall = { FSTAT: 5, MMAP: 9, IOCTL: 16, NEWFSTATAT: 262, STATX: 332 } as const;

/** With an empty path, the call applies to the descriptor: include/uapi/linux/fcntl.h. */
const AT_EMPTY_PATH = 0x1000;

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

/** Classic BPF: include/uapi/linux/bpf_common.h. */
const LOAD_WORD = 0x20;
const AND = 0x54;
const JUMP_EQUAL = 0x15;
const JUMP_SET = 0x45;
const RETURN = 0x06;

/** An instruction that may jump to a label if its condition holds, or a label. */
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
  ifEqual(SystemCall.FSTAT, 'notify'),
  ifEqual(SystemCall.NEWFSTATAT, 'newfstatat'),
  ifEqual(SystemCall.STATX, 'statx'),
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
  'newfstatat',
  load(argument(3)),
  ifSet(AT_EMPTY_PATH, 'notify'),
  give(RET_ALLOW),
  'statx',
  load(argument(2)),
  ifSet(AT_EMPTY_PATH, 'notify'),
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

/** The filter. */
export const DEVICE_FILTER: readonly BpfInstruction[] = assemble(LINES);
