/**
 * A FUSE file cannot do everything that a device node does (mmap, stat, statx, ioctls with descriptors). A seccomp filter stops these system calls of a
 * program, and the supervisor executes them. Calls on other files continue unchanged.
 *
 * A program may change its memory after the supervisor has read it and before the call continues. That is harmless: a mapping can only use the file of the
 * open device, and if an export reaches the FUSE file in spite of this, device-file.ts rejects it.
 */

import { readlinkSync } from 'node:fs';
import {
  allocateScratch,
  type BpfInstruction,
  close as closeFd,
  copyFromProcess,
  copyToProcess,
  type DescriptorFile,
  descriptorFile,
  deviceOfPath,
  Errno,
  isSyscallError,
  OpenFlag,
  PollEvent,
  pollNow,
  processOfThread,
  type ScratchBlock,
  type SeccompListener,
  STATX,
} from '../../sys/index.ts';
import {
  DRM_COMMAND_BASE,
  DRM_IOCTL_TYPE,
  HABANALABS_COMMAND_BASE,
  HABANALABS_IOCTL_TYPE,
  HL_MEM_ARGS,
  HL_MEM_OP,
  IoctlIndex,
  ioctlSize,
} from '../../uapi/index.ts';
import type { LimitedLog } from '../../ucs/debug/limited-log.ts';
import { asError } from '../../ucs/type/error.ts';
import { EXPORT_FLAGS_WORD, GIVEN_WORD } from '../driver/base/ioctl-request.ts';
import type { PrimaryFile } from '../driver/ioctl/file.ts';
import { NO_ADDRESS } from '../driver/memory/user-memory.ts';
import type { EmulatedNode } from '../emulated-node.ts';
import { type DeviceNode, DeviceTree } from './device-tree.ts';

const MEMORY_BYTES: number = HL_MEM_ARGS.size;
const OP_WORD: number = HL_MEM_ARGS.in.words.op;
const S_IFCHR_ALL = 0o020666;
const BLOCK_BYTES = 4096;
/** struct stat of x86-64: arch/x86/include/uapi/asm/stat.h. */
const STAT = { DEV: 0, INO: 8, LINKS: 16, MODE: 24, RDEV: 40, BLOCK_SIZE: 56, BYTES: 144 } as const;
const STATX_BASIC_STATS = 0x7ff;

/** The device nodes that a process serves to programs, and the file systems that contain them. */
export class ServedDevices {
  readonly tree: DeviceTree;
  readonly node: EmulatedNode;
  readonly log: LimitedLog;
  /** Device numbers of the served file systems, such as `0:52`. */
  readonly fileSystems: Set<string> = new Set();

  constructor(node: EmulatedNode, log: LimitedLog) {
    this.tree = new DeviceTree(node);
    this.node = node;
    this.log = log;
  }

  /** The open primary node of a card. */
  primary(minor: number): PrimaryFile | undefined {
    return this.node.card(minor).file;
  }
}

/** A device node opened by a program. */
interface Descriptor {
  readonly device: DeviceNode;
  readonly fileSystem: string;
}

/** The supervisor of one filter. */
export class Supervisor {
  readonly #listener: SeccompListener;
  readonly #served: ServedDevices;
  readonly #scratch: ScratchBlock = allocateScratch(STATX.BYTES);

  /** Takes ownership of the listener. */
  constructor(listener: SeccompListener, served: ServedDevices) {
    this.#listener = listener;
    this.#served = served;
  }

  /** Handles one waiting call, if any. Returns false once no process has the filter any more. */
  serve(): boolean {
    const listener = this.#listener;
    const ready = pollNow(listener.fd, PollEvent.IN);
    if ((ready & PollEvent.IN) === 0) return (ready & PollEvent.HUP) === 0;
    if (!listener.receive()) return true;
    try {
      const file = this.#file();
      if (file === undefined) listener.proceed();
      else this.#answer(file);
    } catch (error) {
      this.#served.log.warn(`unexpected error in a system call: ${asError(error).stack}`);
      listener.answer(-1, Errno.EIO);
    }
    return true;
  }

  /** Ends the supervision: filtered calls fail with ENOSYS. */
  close(): void {
    closeFd(this.#listener.fd);
    this.#listener.free();
    this.#scratch.free();
  }

  #answer({ ino, device: fileSystem }: DescriptorFile): void {
    const { number } = this.#listener;
    const device = this.#served.fileSystems.has(fileSystem) ? this.#served.tree.device(ino) : undefined;
    if (device === undefined) {
      if (number === SystemCall.MMAP && this.#isAttribute(fileSystem)) this.#listener.answer(-1, Errno.ENODEV);
      else this.#listener.proceed();
      return;
    }
    const descriptor = { device, fileSystem };
    if (number === SystemCall.IOCTL) this.#ioctl(descriptor);
    else if (number === SystemCall.MMAP) this.#mmap(descriptor);
    else if (number === SystemCall.STATX) this.#statx(descriptor);
    else this.#fstat(descriptor);
  }

  /** The file of the call; undefined for none. */
  #file(): DescriptorFile | undefined {
    const fd = this.#fd;
    return fd < 0 ? undefined : descriptorFile(this.#listener.tid, fd);
  }

  get #fd(): number {
    return this.#listener.argument(this.#listener.number === SystemCall.MMAP ? 4 : 0) | 0;
  }

  /**
   * Whether the file is an attribute of a card. Like files of sysfs and debugfs, it must not be mapped: this process serves the file, and would wait for
   * itself if it accessed the mapping. Overlays of the served file system have other device numbers, so the path is compared too.
   */
  #isAttribute(fileSystem: string): boolean {
    if (this.#served.fileSystems.has(fileSystem)) return true;
    let path: string;
    try {
      path = readlinkSync(`/proc/${this.#listener.tid}/fd/${this.#fd}`);
    } catch {
      return false; // Closed by another thread: the call fails anyway.
    }
    return path.startsWith('/sys/') && BigInt(deviceNumber(...numbersOf(fileSystem))) !== deviceOfPath('/sys');
  }

  #fstat({ device, fileSystem }: Descriptor): void {
    const listener = this.#listener;
    const isAt = listener.number === SystemCall.NEWFSTATAT;
    if (isAt && !this.#isEmptyPath()) {
      listener.proceed();
      return;
    }
    const { view, u8 } = this.#scratch;
    const [major, minor] = numbersOf(fileSystem);
    u8.fill(0);
    view.setBigUint64(STAT.DEV, BigInt(deviceNumber(major, minor)), true);
    view.setBigUint64(STAT.INO, BigInt(device.ino), true);
    view.setBigUint64(STAT.LINKS, 1n, true);
    view.setUint32(STAT.MODE, S_IFCHR_ALL, true);
    view.setBigUint64(STAT.RDEV, BigInt(deviceNumber(device.major, device.deviceMinor)), true);
    view.setBigInt64(STAT.BLOCK_SIZE, BigInt(BLOCK_BYTES), true);
    this.#return(listener.argument(isAt ? 2 : 1), STAT.BYTES);
  }

  #statx({ device, fileSystem }: Descriptor): void {
    const listener = this.#listener;
    if (!this.#isEmptyPath()) {
      listener.proceed();
      return;
    }
    const { view, u8 } = this.#scratch;
    const [major, minor] = numbersOf(fileSystem);
    u8.fill(0);
    view.setUint32(STATX.MASK, STATX_BASIC_STATS, true);
    view.setUint32(STATX.BLOCK_SIZE, BLOCK_BYTES, true);
    view.setUint32(STATX.LINKS, 1, true);
    view.setUint16(STATX.MODE, S_IFCHR_ALL, true);
    view.setBigUint64(STATX.INO, BigInt(device.ino), true);
    view.setUint32(STATX.RDEV_MAJOR, device.major, true);
    view.setUint32(STATX.RDEV_MINOR, device.deviceMinor, true);
    view.setUint32(STATX.DEV_MAJOR, major, true);
    view.setUint32(STATX.DEV_MINOR, minor, true);
    this.#return(listener.argument(4), STATX.BYTES);
  }

  /** Whether the path of newfstatat or statx is empty: AT_EMPTY_PATH alone only allows that. */
  #isEmptyPath(): boolean {
    const address = this.#listener.argument(1);
    // Linux 6.11 and newer accept a null pointer as an empty path.
    if (address === 0) return true;
    const { address: target, u8 } = this.#scratch;
    return copyFromProcess(this.#listener.tid, address, target, 1) === 1 && u8[0] === 0;
  }

  /** Writes the scratch memory to the program, as the result of a successful call. */
  #return(address: number, byteLength: number): void {
    const listener = this.#listener;
    const written = copyToProcess(listener.tid, address, this.#scratch.address, byteLength);
    listener.answer(written === byteLength ? 0 : -1, written === byteLength ? 0 : Errno.EFAULT);
  }

  /** Checks a mapping like the driver, which rejects unknown offsets and lengths that differ from that of the buffer; then the kernel maps. */
  #mmap({ device }: Descriptor): void {
    const listener = this.#listener;
    const file = this.#served.primary(device.minor);
    if (device.control || file === undefined) {
      listener.answer(-1, Errno.ENODEV);
      return;
    }
    try {
      const pid = processOfThread(listener.tid) ?? listener.tid;
      file.checkMmap(listener.argument(1), listener.bigArgument(5), pid);
      listener.proceed();
    } catch (error) {
      if (!isSyscallError(error)) throw error;
      listener.answer(-1, error.errno);
    }
  }

  #ioctl({ device }: Descriptor): void {
    const listener = this.#listener;
    const request = listener.argument(1) | 0;
    const address = listener.argument(2);
    const file = device.control ? undefined : this.#served.primary(device.minor);
    const { words, u8, address: local } = this.#scratch;
    u8.fill(0);
    const byteLength = Math.min(ioctlSize(request), MEMORY_BYTES);
    const isRead = copyFromProcess(listener.tid, address, local, byteLength) === byteLength;
    if (file === undefined || !isRead || words[OP_WORD] !== HL_MEM_OP.EXPORT_DMABUF_FD) listener.proceed();
    else this.#export(file, request, address, byteLength);
  }

  /** Exports a dma-buf, and passes its descriptor to the program. */
  #export(file: PrimaryFile, request: number, address: number, byteLength: number): void {
    const listener = this.#listener;
    const { words, address: local } = this.#scratch;
    const cloexec = (words[EXPORT_FLAGS_WORD]! & OpenFlag.CLOEXEC) !== 0;
    words[EXPORT_FLAGS_WORD] = words[EXPORT_FLAGS_WORD]! | OpenFlag.CLOEXEC;
    let result = file.ioctl(request, { address: NO_ADDRESS, words: words.subarray(0, MEMORY_BYTES / 4) });
    if (result === 0) {
      const own = words[GIVEN_WORD]!;
      const given = listener.addDescriptor(own, cloexec);
      closeFd(own);
      words[GIVEN_WORD] = given;
      if (given < 0) result = given;
    }
    if (copyToProcess(listener.tid, address, local, byteLength) !== byteLength) result = -Errno.EFAULT;
    listener.answer(result < 0 ? -1 : result, result < 0 ? -result : 0);
  }
}

function numbersOf(fileSystem: string): readonly [number, number] {
  const [major = 0, minor = 0] = fileSystem.split(':').map(Number);
  return [major, minor];
}

/** A device number as in st_dev: new_encode_dev of include/linux/kdev_t.h. */
function deviceNumber(major: number, minor: number): number {
  return (minor & 0xff) | (major << 8) | ((minor & ~0xff) << 12);
}

/**
 * The rest of this file: the seccomp filter for programs with emulated device nodes, which selects the system calls that their supervisor handles.
 *
 * | Call | Why |
 * | --- | --- |
 * | fstat, newfstatat and statx of a descriptor | A FUSE file has no device number |
 * | ioctl MEMORY of both families | A FUSE reply cannot contain the descriptor that the export of a dma-buf returns |
 * | mmap of a file, except of a program or library (MAP_DENYWRITE, which has no other effect) | The kernel maps the file behind a device node at any
 * offset, without a request |
 */

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

/** The instructions, in the form that installSeccompFilter loads. */
export const DEVICE_FILTER: readonly BpfInstruction[] = assemble(LINES);
