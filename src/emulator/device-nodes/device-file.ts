/** Open device nodes: ioctls that arrive through FUSE run in the emulated driver, on the memory of the calling thread. */

import type { ArgumentBlock } from '../../driver/port.ts';
import {
  closeBacking,
  close as closeFd,
  Errno,
  isSyscallError,
  openBacking,
  pidfdGetfd,
  pidfdOpen,
  processOfThread,
} from '../../sys/index.ts';
import { ioctlIndex, ioctlSize } from '../../uapi/index.ts';
import type { LimitedLog } from '../../ucs/debug/limited-log.ts';
import { asError } from '../../ucs/type/error.ts';
import { joinWords } from '../../ucs/type/int64.ts';
import {
  DescriptorUse,
  descriptorUse,
  mayBlock,
  pinnedPages,
  pinsMemory,
  takenWord,
} from '../driver/base/ioctl-request.ts';
import { type EmulatedFile, resultOrEio } from '../driver/ioctl/file.ts';
import { Interruption } from '../driver/ioctl/wait.ts';
import { MmapFile } from '../driver/memory/mmap-file.ts';
import { NO_ADDRESS, NO_PAGES, POPULATED_PAGES } from '../driver/memory/user-memory.ts';
import type { EmulatedNode } from '../emulated-node.ts';
import type { DeviceNode } from './device-tree.ts';
import {
  type FuseChannel,
  FuseOp,
  INTERRUPT_IN,
  IOCTL_IN,
  IOCTL_OUT,
  OPEN_IN,
  OPEN_OUT,
  OpenedFlag,
  RELEASE_IN,
  type Unanswered,
} from './fuse-channel.ts';

/** Words of an argument block: at most what a request number can encode, and at least what the largest struct of the driver needs. */
const BLOCK_WORDS_MAX = 4096;
const BLOCK_WORDS_MIN = 32;
const O_LARGEFILE = 0o100000;
const NO_BACKING = 0;

/** Services for the open device nodes of a mount. */
export interface DeviceFilesInit {
  readonly node: EmulatedNode;
  readonly channel: FuseChannel;
  readonly log: LimitedLog;
  /** Lets the event loop run, which replies to waits that have ended. */
  readonly yieldToEventLoop: () => void;
}

interface OpenDevice {
  readonly device: DeviceNode;
  readonly file: EmulatedFile;
  readonly pid: number;
  /** For a primary node: the file behind its mappings, and the id of that file in the kernel (FUSE passthrough). */
  readonly mmapFile: MmapFile | undefined;
  readonly backing: number;
}

export class DeviceFiles {
  readonly #init: DeviceFilesInit;
  readonly #open: Map<number, OpenDevice> = new Map();
  /** The interruption of each waiting ioctl, by request number. */
  readonly #waits: Map<number, Interruption> = new Map();
  readonly #block: Uint32Array<ArrayBuffer> = new Uint32Array(BLOCK_WORDS_MAX);
  /** Views of the first words of {@link #block}, by the number of words. */
  readonly #blocks: ArgumentBlock[] = [];
  #nextHandle = 1;
  #closed = false;

  constructor(init: DeviceFilesInit) {
    this.#init = init;
  }

  /** Number of waiting ioctls. */
  get waiting(): number {
    return this.#waits.size;
  }

  /** Ends the wait that the current INTERRUPT request refers to, unless it has ended. */
  interrupt(): void {
    const { words } = this.#init.channel;
    const at = INTERRUPT_IN.UNIQUE / 4;
    this.#waits.get(keyOf(words[at]!, words[at + 1]!))?.raise();
  }

  /** Replies to the current request of the channel, which concerns a device node. */
  answer(device: DeviceNode): void {
    const { channel } = this.#init;
    switch (channel.opcode) {
      case FuseOp.IOCTL:
        this.#ioctl();
        return;
      case FuseOp.OPEN:
        this.#openDevice(device);
        return;
      case FuseOp.RELEASE:
        this.#release(channel.words[RELEASE_IN.HANDLE / 4]!);
        channel.fail(0);
        return;
      // The driver implements neither read nor write.
      case FuseOp.READ:
      case FuseOp.WRITE:
        channel.fail(Errno.EINVAL);
        return;
      default:
        // After ENOSYS for POLL or FLUSH, the kernel sends no more of them: a device node is always ready, and closing a descriptor needs no message.
        channel.fail(Errno.ENOSYS);
    }
  }

  /** Releases all files after the file system was unmounted. */
  close(): void {
    this.#closed = true;
    for (const handle of [...this.#open.keys()]) this.#release(handle);
    for (const interruption of this.#waits.values()) interruption.raise();
  }

  #openDevice(device: DeviceNode): void {
    const { channel } = this.#init;
    try {
      const opened = device.control ? this.#openControl(device) : this.#openPrimary(device);
      const handle = this.#nextHandle++;
      this.#open.set(handle, opened);
      channel.answerWords[OPEN_OUT.HANDLE / 4] = handle;
      // Reads and writes arrive here and are rejected; only mappings use the backing file.
      const kind = opened.backing === NO_BACKING ? OpenedFlag.NONSEEKABLE : OpenedFlag.PASSTHROUGH;
      channel.answerWords[OPEN_OUT.FLAGS / 4] = OpenedFlag.DIRECT_IO | OpenedFlag.NOFLUSH | kind;
      channel.answerWords[OPEN_OUT.BACKING / 4] = opened.backing;
      channel.send(OPEN_OUT.END);
    } catch (error) {
      if (!isSyscallError(error)) throw error;
      channel.fail(error.errno);
    }
  }

  #openControl(device: DeviceNode): OpenDevice {
    const pid = this.#callingProcess();
    const file = this.#init.node.openFor(device.minor, pid, true);
    return { device, file, pid, mmapFile: undefined, backing: NO_BACKING };
  }

  #openPrimary(device: DeviceNode): OpenDevice {
    const { node, channel, log } = this.#init;
    const pid = this.#callingProcess();
    const mmapFile = new MmapFile(pid, device.ino);
    let file: EmulatedFile | undefined;
    try {
      file = node.openMapped(device.minor, pid, mmapFile);
      // A 32-bit program without O_LARGEFILE cannot open the file behind its mappings, which is too long, and could not map at handles, which are offsets
      // of 64 bits.
      const isLarge = (channel.view.getUint32(OPEN_IN.FLAGS, true) & O_LARGEFILE) !== 0;
      return { device, file, pid, mmapFile, backing: isLarge ? openBacking(channel.fd, mmapFile.fd) : NO_BACKING };
    } catch (error) {
      if (file !== undefined)
        log.warn(`programs cannot map this device node, so its open fails: ${asError(error).message}`);
      file?.close();
      mmapFile.close();
      throw error;
    }
  }

  #release(handle: number): void {
    const opened = this.#open.get(handle);
    if (opened === undefined) return;
    this.#open.delete(handle);
    opened.file.close();
    if (opened.mmapFile === undefined) return;
    if (opened.backing !== NO_BACKING) closeBacking(this.#init.channel.fd, opened.backing);
    opened.mmapFile.close();
  }

  #callingProcess(): number {
    const { tid } = this.#init.channel;
    return processOfThread(tid) ?? tid;
  }

  #ioctl(): void {
    const { channel } = this.#init;
    const { words } = channel;
    const opened = this.#open.get(words[IOCTL_IN.HANDLE / 4]!);
    if (opened === undefined) {
      channel.fail(Errno.EBADF);
      return;
    }
    const request = words[IOCTL_IN.REQUEST / 4]! | 0;
    const block = this.#takeBlock(request, words[IOCTL_IN.IN_SIZE / 4]!);
    const outSize = words[IOCTL_IN.OUT_SIZE / 4]!;
    const { userMemory } = opened.file;
    userMemory.caller = channel.tid;
    userMemory.foreignPages = NO_PAGES;
    // On control nodes the driver rejects ioctls with descriptors, so the descriptor is not examined.
    const use = opened.device.control ? DescriptorUse.NONE : descriptorUse(request, block.words);
    if (use !== DescriptorUse.NONE)
      this.#answer(channel.current, this.#withDescriptor(opened, request, block, use), block.words, outSize);
    else if (mayBlock(request, block.words)) this.#wait(opened, request, block.words.slice(), outSize);
    else {
      if (pinsMemory(request, block.words)) this.#preparePinning(opened, block.words);
      this.#answer(channel.current, this.#run(opened.file, request, block), block.words, outSize);
    }
  }

  /** The argument block: the bytes that the kernel has read from the program, followed by zeros. */
  #takeBlock(request: number, inSize: number): ArgumentBlock {
    const { words } = this.#init.channel;
    const count = Math.max(BLOCK_WORDS_MIN, (ioctlSize(request) + 3) >>> 2);
    const given = Math.min(count, (inSize + 3) >>> 2);
    const from = IOCTL_IN.DATA / 4;
    const block = this.#block;
    for (let i = 0; i < given; i++) block[i] = words[from + i]!;
    for (let i = given; i < count; i++) block[i] = 0;
    // Bytes after the last one are from an earlier request.
    if (inSize % 4 !== 0 && given > 0) block[given - 1]! &= (1 << (8 * (inSize % 4))) - 1;
    this.#blocks[count] ??= { address: NO_ADDRESS, words: block.subarray(0, count) };
    return this.#blocks[count];
  }

  /**
   * Pinned pages are used after the ioctl, when the calling thread may have ended. So they are accessed through the address space of its process, and the
   * kernel populates them on access.
   */
  #preparePinning({ file, mmapFile }: OpenDevice, words: Uint32Array): void {
    const { address, byteLength } = pinnedPages(words);
    const pid = this.#callingProcess();
    file.userMemory.callingProcess = pid;
    file.userMemory.foreignPages = mmapFile?.isWritable(pid, address, byteLength) ? POPULATED_PAGES : NO_PAGES;
  }

  #run(file: EmulatedFile, request: number, block: ArgumentBlock): number {
    try {
      return file.ioctl(request, block);
    } catch (error) {
      this.#init.log.warn(`unexpected error in an ioctl: ${asError(error).stack}`);
      return -Errno.EIO;
    }
  }

  /** Runs an ioctl that takes a descriptor of the caller. One that returns a descriptor is rejected, because a FUSE reply cannot contain one. */
  #withDescriptor({ file, pid }: OpenDevice, request: number, block: ArgumentBlock, use: DescriptorUse): number {
    if (use === DescriptorUse.GIVES) {
      this.#init.log.warn(`process ${pid} cannot export a dma-buf: start the program by gaudi-ucx run`);
      return file.recordFailure(request, block, -Errno.EOPNOTSUPP);
    }
    const word = takenWord(ioctlIndex(request));
    const given = block.words[word]!;
    const fd = fetchDescriptor(this.#callingProcess(), given | 0);
    if (fd < -1) return file.recordFailure(request, block, fd);
    block.words[word] = fd;
    const result = this.#run(file, request, block);
    if (fd >= 0) closeFd(fd);
    // If the driver has not changed the argument, the program gets its descriptor number back.
    if (block.words[word] === fd >>> 0) block.words[word] = given;
    return result;
  }

  #wait({ file }: OpenDevice, request: number, words: Uint32Array, outSize: number): void {
    const unanswered = this.#init.channel.current;
    const interruption = new Interruption();
    const result = resultOrEio(
      () => file.ioctlOrWait(request, { address: NO_ADDRESS, words }, interruption),
      (error) => this.#init.log.warn(`unexpected error in a wait: ${asError(error).stack}`),
    );
    if (typeof result === 'number') {
      this.#answer(unanswered, result, words, outSize);
      return;
    }
    const key = keyOf(unanswered.uniqueLow, unanswered.uniqueHigh);
    this.#waits.set(key, interruption);
    this.#init.yieldToEventLoop();
    void result.then((value) => {
      this.#waits.delete(key);
      if (!this.#closed) this.#answer(unanswered, value, words, outSize);
    });
  }

  /** Replies with the words as data: the kernel copies them into the arguments, even after a failure, as the driver does. */
  #answer(request: Unanswered, result: number, words: Uint32Array, outSize: number): void {
    const { channel } = this.#init;
    const { answerWords } = channel;
    answerWords[IOCTL_OUT.RESULT / 4] = result;
    const to = IOCTL_OUT.DATA / 4;
    const count = Math.min(words.length, (outSize + 3) >>> 2);
    for (let i = 0; i < count; i++) answerWords[to + i] = words[i]!;
    channel.send(IOCTL_OUT.DATA + outSize, request);
  }
}

/** Duplicates a descriptor of a process; returns -1 if the process has no such descriptor, or another negative errno. */
function fetchDescriptor(pid: number, fd: number): number {
  let pidfd = -1;
  try {
    pidfd = pidfdOpen(pid);
    return pidfdGetfd(pidfd, fd);
  } catch (error) {
    if (!isSyscallError(error)) throw error;
    return error.errno === Errno.EBADF ? -1 : -error.errno;
  } finally {
    if (pidfd >= 0) closeFd(pidfd);
  }
}

/** The number of a request as a key; exact, because the kernel counts up from 0 in steps of 2. */
function keyOf(low: number, high: number): number {
  return joinWords(low, high);
}
