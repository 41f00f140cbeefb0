/**
 * A FUSE file cannot do everything that a device node does. A seccomp filter stops system calls of a program (seccomp-filter.ts), and the supervisor, a small
 * process beside the program, executes them: the status of a device node is that of a character device, and the file systems of the merged trees are
 * those of the machine. Calls on other files continue unchanged. Calls that need the driver are forwarded to the node server.
 *
 * When the node server ends, a thread of the supervisor takes its place: calls on device nodes and files of cards then fail with ENODEV, and all other files
 * stay usable. The supervisor itself may wait for a file of a card, whose path it looks up.
 *
 * A program may change its memory after the supervisor has read it and before the call continues. That is harmless: a mapping can only use the file of the
 * open device, and if an export reaches the FUSE file in spite of this, device-file.ts rejects it.
 */

import {
  allocateScratch,
  close as closeFd,
  copyFromProcess,
  copyToProcess,
  type DescriptorFile,
  descriptorFile,
  dup,
  Errno,
  EventFd,
  EventSet,
  PAGE_SIZE,
  POLL_TIMEOUT_MS_MAX,
  PollEvent,
  pathFile,
  pollFor,
  ReadyFor,
  type ScratchBlock,
  SeccompListener,
  SocketType,
  STATX,
  startWorker,
  UnixSocket,
} from '../../sys/index.ts';
import { HL_MEM_ARGS, HL_MEM_OP, ioctlSize } from '../../uapi/index.ts';
import { asError } from '../../ucs/type/error.ts';
import type { MountGuard } from './orphaned-mount.ts';
import { SystemCall } from './seccomp-filter.ts';
import {
  FIRST_MESSAGE,
  receiveFilter,
  receiveTree,
  type SupervisedNode,
  type SupervisedTree,
} from './supervisor-link.ts';

const MEMORY_BYTES: number = HL_MEM_ARGS.size;
const OP_WORD: number = HL_MEM_ARGS.in.words.op;
const S_IFCHR_ALL = 0o020666;
const BLOCK_BYTES = 4096;
const AT_FDCWD = -100;
const AT_SYMLINK_NOFOLLOW = 0x100;
const AT_EMPTY_PATH = 0x1000;
/** struct stat of x86-64: arch/x86/include/uapi/asm/stat.h. */
const STAT = { DEV: 0, INO: 8, LINKS: 16, MODE: 24, RDEV: 40, BLOCK_SIZE: 56, BYTES: 144 } as const;
const STATX_BASIC_STATS = 0x7ff;
/** struct statfs of x86-64: include/uapi/asm-generic/statfs.h. */
const STATFS = { TYPE: 0, BLOCK_SIZE: 8, NAME_MAX: 64, FRAGMENT_SIZE: 72, BYTES: 120 } as const;
const NAME_MAX = 255;
const PATH_MAX = 4096;
const GUARD_THREAD = './mount-guard-thread';
/** Magic numbers of include/uapi/linux/magic.h. */
const SYSFS_MAGIC = 0x6265_6572;
const TMPFS_MAGIC = 0x0102_1994;
/** Forwarded calls that are remembered before those that were answered are forgotten. */
const FORWARDED_MAX = 1024;
const decoder = new TextDecoder();
/** Paths at which a file with the name of no device node can still be one. */
const INDIRECT = /^\/(proc|dev)\//;
/** Folders that depend on the process that names them. */
const OWN_FOLDER = /^\/(?:proc\/(?:self|thread-self)|dev(?=\/fd\/))\//;

/** The descriptors that a supervisor owns. */
interface SupervisorLinks {
  /** From the process that will execute the program: see supervisor-link.ts. */
  readonly starter: UnixSocket;
  /** To the node server, which answers the calls that need the driver. */
  readonly server: UnixSocket;
}

/** Tokens of the polled descriptors. */
const Source = { STARTER: 0, SERVER: 1, CALLS: 2 } as const;

/** The supervisor of the filter of one program. */
export class Supervisor {
  readonly #links: SupervisorLinks;
  readonly #device: string;
  readonly #nodes: ReadonlyMap<number, SupervisedNode>;
  readonly #names: ReadonlySet<string>;
  readonly #events: EventSet = new EventSet();
  readonly #scratch: ScratchBlock = allocateScratch(STATX.BYTES);
  readonly #path: ScratchBlock = allocateScratch(PATH_MAX);
  /** Types of disguised file systems by device number. */
  #types: ReadonlyMap<string, number> = new Map();
  #listener: SeccompListener | undefined;
  /** The last forwarded call of each thread. */
  readonly #forwarded: Map<number, Uint8Array> = new Map();
  #hasServer = true;

  /** Takes ownership of the descriptors. */
  constructor(links: SupervisorLinks, { device, nodes }: SupervisedTree) {
    this.#links = links;
    this.#device = device;
    this.#nodes = new Map(nodes.map((node) => [node.ino, node]));
    this.#names = new Set(nodes.map(({ name }) => name));
    this.#events.add(links.starter.fd, ReadyFor.READ, Source.STARTER);
    this.#events.add(links.server.fd, 0, Source.SERVER);
  }

  /**
   * Waits, and handles what has arrived.
   * @returns false once no process has the filter any more, or if the starter has ended without one
   */
  serve(): boolean {
    const count = this.#events.wait();
    for (let i = 0; i < count; i++) {
      const token = this.#events.token(i);
      if (token === Source.CALLS) {
        if ((this.#events.events(i) & ReadyFor.READ) === 0) return false;
        this.#call(this.#listener!);
      } else if (token === Source.STARTER) {
        if (!this.#begin()) return false;
      } else this.#endForwarding();
    }
    return true;
  }

  /** Begins to supervise the filter of the program. Returns false if there is none. */
  #begin(): boolean {
    const { starter, server } = this.#links;
    const filter = receiveFilter(starter);
    this.#events.remove(starter.fd);
    starter.close();
    if (filter === undefined) return false;
    this.#types = new Map(filter.disguised.map(({ device, type }) => [device, type]));
    // The server answers forwarded calls through its own descriptor.
    server.sendmsg(FIRST_MESSAGE, [filter.listener]);
    this.#listener = new SeccompListener(filter.listener);
    this.#events.add(filter.listener, ReadyFor.READ, Source.CALLS);
    return true;
  }

  /** The node server has ended: answers the calls that were forwarded to it. */
  #endForwarding(): void {
    this.#hasServer = false;
    this.#events.remove(this.#links.server.fd);
    this.#links.server.close();
    for (const record of this.#forwarded.values()) {
      this.#listener!.take(record);
      this.#listener!.answer(-1, Errno.ENODEV);
    }
    this.#forwarded.clear();
  }

  #call(listener: SeccompListener): void {
    if (!listener.receive()) return;
    try {
      this.#handle(listener);
    } catch (error) {
      process.stderr.write(`unexpected error in a system call: ${asError(error).stack}\n`);
      listener.answer(-1, Errno.EIO);
    }
  }

  #handle(listener: SeccompListener): void {
    switch (listener.number) {
      case SystemCall.FSTAT:
        this.#stat(listener, this.#open(0), listener.argument(1));
        break;
      case SystemCall.STAT:
        this.#stat(listener, this.#named(AT_FDCWD, listener.argument(0), 0), listener.argument(1));
        break;
      case SystemCall.LSTAT:
        this.#stat(listener, this.#named(AT_FDCWD, listener.argument(0), AT_SYMLINK_NOFOLLOW), listener.argument(1));
        break;
      case SystemCall.NEWFSTATAT:
        this.#stat(listener, this.#at(listener.argument(3)), listener.argument(2));
        break;
      case SystemCall.STATX:
        this.#statx(listener, this.#at(listener.argument(2)), listener.argument(4));
        break;
      case SystemCall.STATFS:
        this.#statfs(listener, this.#resolve(AT_FDCWD, this.#readPath(listener.argument(0)), 0));
        break;
      case SystemCall.FSTATFS:
        this.#statfs(listener, this.#open(0));
        break;
      case SystemCall.EPOLL_CTL:
        if (this.#node(this.#open(2)) === undefined) listener.proceed();
        else listener.answer(-1, Errno.EPERM);
        break;
      case SystemCall.MMAP:
        this.#mmap(listener, this.#open(4));
        break;
      default:
        this.#ioctl(listener, this.#node(this.#open(0)));
    }
  }

  /** The open file of a descriptor that is an argument of the call; undefined for none. */
  #open(index: number): DescriptorFile | undefined {
    const listener = this.#listener!;
    const fd = listener.argument(index) | 0;
    return fd < 0 ? undefined : descriptorFile(listener.tid, fd);
  }

  /** The file of newfstatat and statx. */
  #at(flags: number): DescriptorFile | undefined {
    const listener = this.#listener!;
    const address = listener.argument(1);
    // Linux 6.11 and newer accept a null pointer as an empty path.
    if ((flags & AT_EMPTY_PATH) !== 0 && (address === 0 || this.#readPath(address) === '')) return this.#open(0);
    return this.#named(listener.argument(0) | 0, address, flags);
  }

  /** The file of a path, if it may be a device node; undefined otherwise. */
  #named(directory: number, address: number, flags: number): DescriptorFile | undefined {
    const path = this.#readPath(address);
    const name = path.slice(path.lastIndexOf('/') + 1);
    if (!this.#names.has(name) && !INDIRECT.test(path)) return undefined;
    return this.#resolve(directory, path, flags);
  }

  #resolve(directory: number, path: string, flags: number): DescriptorFile | undefined {
    if (path === '') return undefined;
    const { tid } = this.#listener!;
    const noFollow = (flags & AT_SYMLINK_NOFOLLOW) !== 0;
    if (OWN_FOLDER.test(path)) return pathFile(path.replace(OWN_FOLDER, `/proc/${tid}/`), noFollow);
    if (path.startsWith('/')) return pathFile(`/proc/${tid}/root${path}`, noFollow);
    return pathFile(`/proc/${tid}/${directory === AT_FDCWD ? 'cwd' : `fd/${directory}`}/${path}`, noFollow);
  }

  /** Reads a path of the program; empty if it cannot be read. */
  #readPath(address: number): string {
    const { address: target, u8 } = this.#path;
    const { tid } = this.#listener!;
    for (let length = 0; length < PATH_MAX; ) {
      // Up to the end of a page: the next one may not be mapped.
      const count = Math.min(PAGE_SIZE - ((address + length) % PAGE_SIZE), PATH_MAX - length);
      const read = copyFromProcess(tid, address + length, target + length, count);
      if (read <= 0) return '';
      const end = u8.subarray(0, length + read).indexOf(0, length);
      if (end >= 0) return decoder.decode(u8.subarray(0, end));
      length += read;
    }
    return '';
  }

  /** The device node of a file; undefined for any other file. */
  #node(file: DescriptorFile | undefined): SupervisedNode | undefined {
    return file?.device === this.#device ? this.#nodes.get(file.ino) : undefined;
  }

  #stat(listener: SeccompListener, file: DescriptorFile | undefined, address: number): void {
    const node = this.#node(file);
    if (node === undefined) {
      listener.proceed();
      return;
    }
    const { view, u8 } = this.#scratch;
    u8.fill(0);
    view.setBigUint64(STAT.DEV, BigInt(deviceNumber(...numbersOf(file!.device))), true);
    view.setBigUint64(STAT.INO, BigInt(node.ino), true);
    view.setBigUint64(STAT.LINKS, 1n, true);
    view.setUint32(STAT.MODE, S_IFCHR_ALL, true);
    view.setBigUint64(STAT.RDEV, BigInt(deviceNumber(node.major, node.minor)), true);
    view.setBigInt64(STAT.BLOCK_SIZE, BigInt(BLOCK_BYTES), true);
    this.#return(address, STAT.BYTES);
  }

  #statx(listener: SeccompListener, file: DescriptorFile | undefined, address: number): void {
    const node = this.#node(file);
    if (node === undefined) {
      listener.proceed();
      return;
    }
    const { view, u8 } = this.#scratch;
    const [major, minor] = numbersOf(file!.device);
    u8.fill(0);
    view.setUint32(STATX.MASK, STATX_BASIC_STATS, true);
    view.setUint32(STATX.BLOCK_SIZE, BLOCK_BYTES, true);
    view.setUint32(STATX.LINKS, 1, true);
    view.setUint16(STATX.MODE, S_IFCHR_ALL, true);
    view.setBigUint64(STATX.INO, BigInt(node.ino), true);
    view.setUint32(STATX.RDEV_MAJOR, node.major, true);
    view.setUint32(STATX.RDEV_MINOR, node.minor, true);
    view.setUint32(STATX.DEV_MAJOR, major, true);
    view.setUint32(STATX.DEV_MINOR, minor, true);
    this.#return(address, STATX.BYTES);
  }

  #statfs(listener: SeccompListener, file: DescriptorFile | undefined): void {
    const type = file === undefined ? undefined : this.#typeOf(file);
    if (type === undefined) {
      listener.proceed();
      return;
    }
    const { view, u8 } = this.#scratch;
    u8.fill(0);
    view.setBigUint64(STATFS.TYPE, BigInt(type), true);
    view.setBigUint64(STATFS.BLOCK_SIZE, BigInt(BLOCK_BYTES), true);
    view.setBigUint64(STATFS.NAME_MAX, BigInt(NAME_MAX), true);
    view.setBigUint64(STATFS.FRAGMENT_SIZE, BigInt(BLOCK_BYTES), true);
    this.#return(listener.argument(1), STATFS.BYTES);
  }

  /** The type of the file system that a file system of the merged trees stands for. */
  #typeOf(file: DescriptorFile): number | undefined {
    if (file.device !== this.#device) return this.#types.get(file.device);
    return this.#nodes.has(file.ino) ? TMPFS_MAGIC : SYSFS_MAGIC;
  }

  /** Writes the scratch memory to the program, as the result of a successful call. */
  #return(address: number, byteLength: number): void {
    const listener = this.#listener!;
    const written = copyToProcess(listener.tid, address, this.#scratch.address, byteLength);
    listener.answer(written === byteLength ? 0 : -1, written === byteLength ? 0 : Errno.EFAULT);
  }

  /** Attributes of cards cannot be mapped, like files of sysfs and debugfs. */
  #mmap(listener: SeccompListener, file: DescriptorFile | undefined): void {
    const node = this.#node(file);
    if (node !== undefined && !node.control) this.#forward(listener);
    else if (file?.device === this.#device) listener.answer(-1, Errno.ENODEV);
    else listener.proceed();
  }

  /** Of the MEMORY ioctls, only the export of a dma-buf returns a descriptor. */
  #ioctl(listener: SeccompListener, node: SupervisedNode | undefined): void {
    if (node === undefined || node.control || !this.#isExport(listener)) listener.proceed();
    else this.#forward(listener);
  }

  #isExport(listener: SeccompListener): boolean {
    const { words, u8, address } = this.#scratch;
    u8.fill(0);
    const byteLength = Math.min(ioctlSize(listener.argument(1) | 0), MEMORY_BYTES);
    const isRead = copyFromProcess(listener.tid, listener.argument(2), address, byteLength) === byteLength;
    return isRead && words[OP_WORD] === HL_MEM_OP.EXPORT_DMABUF_FD;
  }

  /** Leaves a call to the node server, which answers it. */
  #forward(listener: SeccompListener): void {
    if (!this.#hasServer) {
      listener.answer(-1, Errno.ENODEV);
      return;
    }
    this.#forwarded.set(listener.tid, listener.record.slice());
    if (this.#forwarded.size > FORWARDED_MAX) this.#forgetAnswered();
    const { server } = this.#links;
    // After a failure the server has ended: the call is answered when that is noticed.
    while (server.sendmsg(listener.record) === -Errno.EAGAIN) pollFor(server.fd, PollEvent.OUT, POLL_TIMEOUT_MS_MAX);
  }

  #forgetAnswered(): void {
    for (const [tid, record] of this.#forwarded) if (!this.#listener!.isWaiting(record)) this.#forwarded.delete(tid);
  }

  /** Releases everything: filtered calls fail with ENOSYS. */
  close(): void {
    const { starter, server } = this.#links;
    starter.close();
    server.close();
    if (this.#listener !== undefined) {
      closeFd(this.#listener.fd);
      this.#listener.free();
    }
    this.#events.close();
    this.#scratch.free();
    this.#path.free();
  }
}

/**
 * Supervises a program until the last process that it has started ends. Blocks the thread and its event loop.
 * @param descriptor the connection over which the process that executes the program sends the work
 */
export function superviseProgram(descriptor: number): void {
  const starter = new UnixSocket(descriptor, SocketType.SEQPACKET);
  const work = receiveTree(starter);
  if (work === undefined) return;
  const { tree, server, fuse } = work;
  const stop = new EventFd();
  const workerData: MountGuard = { server: dup(server), fuse, stop: stop.fd };
  startWorker(import.meta.url, GUARD_THREAD, { workerData, name: 'gaudi-mount-guard' });
  const supervisor = new Supervisor({ starter, server: new UnixSocket(server, SocketType.SEQPACKET) }, tree);
  while (supervisor.serve());
  supervisor.close();
  stop.signal();
}

function numbersOf(device: string): readonly [number, number] {
  const [major = 0, minor = 0] = device.split(':').map(Number);
  return [major, minor];
}

/** A device number as in st_dev: new_encode_dev of include/linux/kdev_t.h. */
function deviceNumber(major: number, minor: number): number {
  return (minor & 0xff) | (major << 8) | ((minor & ~0xff) << 12);
}
