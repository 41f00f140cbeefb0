/**
 * Client side of an open file of a card on a node server: writes ioctls into its mailbox and waits for the results. Small ones take a few microseconds
 * without a system call; those with file descriptors use the socket.
 */

import type { ArgumentBlock, DriverFile, DriverMapping, RegisterMapping } from '../../driver/port.ts';
import {
  close as closeFd,
  Errno,
  forgetDescriptor,
  futexWait,
  isSyscallError,
  type MappedMemory,
  mapFile,
  OpenFlag,
  populateWritable,
  SyscallError,
  schedYield,
  setCloexec,
  shareableRange,
} from '../../sys/index.ts';
import { HandleType, IoctlIndex, type IoctlNumbers, ioctlIndex, unpackHandle } from '../../uapi/index.ts';
import { systemClock } from '../../ucs/sys/clock.ts';
import {
  DescriptorUse,
  descriptorUse,
  EXPORT_FLAGS_WORD,
  GIVEN_WORD,
  pinnedPages,
  pinsMemory,
  takenWord,
} from '../driver/base/ioctl-request.ts';
import { abortedWait } from '../driver/ioctl/wait.ts';
import { BufferMapping } from '../driver/memory/mmap-file.ts';
import type { Reply, ServerConnection } from './connection.ts';
import {
  ASYNC_SLOTS,
  announceRequest,
  BLOCK_WORDS_MAX,
  isServerSleeping,
  MAILBOX_BYTES,
  postSlot,
  REGISTER_ACCESS,
  REGISTER_ACCESS_WORDS,
  REGISTER_VALUE,
  REPLIED_OFFSET,
  readReply,
  repliedSequence,
  setClientSleeping,
  settledCount,
  settledSlot,
  transferredWords,
  writeRequest,
} from './mailbox.ts';
import type { Message } from './message.ts';

/** Number of polls of the reply word before the thread reads the clock and yields the processor, which the server may need. */
const LOOKS_PER_ROUND = 100;
/** Time that a call polls before it sleeps: about the cost of waking this thread. */
const SPIN_NS = 50_000;
const SLEEP_NS = 100_000_000;
/** End of user addresses on x86-64. */
const USER_ADDRESS_END = 2 ** 47;

/** A pending non-blocking call. */
interface PendingCall {
  readonly block: ArgumentBlock;
  readonly settle: (result: number) => void;
}

/** Contents of the server's reply to open. */
export interface RemoteFileParts {
  readonly id: number;
  readonly numbers: IoctlNumbers;
  readonly connection: ServerConnection;
  /** Descriptor of the mailbox; the file takes ownership. */
  readonly mailboxFd: number;
  readonly onClose: (file: RemoteFile) => void;
}

export class RemoteFile implements DriverFile {
  readonly numbers: IoctlNumbers;
  readonly #id: number;
  readonly #connection: ServerConnection;
  readonly #onClose: (file: RemoteFile) => void;
  readonly #mailbox: MappedMemory;
  readonly #words: Int32Array;
  readonly #answerAddress: number;
  #sequence = 0;
  /** Pending non-blocking calls by slot, and free slots that were used before. Slot 0 is for {@link ioctl}. */
  readonly #calls: Map<number, PendingCall> = new Map();
  readonly #freeSlots: number[] = [];
  #posted = 0;
  #settled = 0;
  #nextMapping = 1;
  /** Mappings that are closed together with the file. */
  readonly #blocks: Set<MappedMemory> = new Set();
  #closed = false;

  /** @throws SyscallError ENOMEM */
  constructor(parts: RemoteFileParts) {
    this.numbers = parts.numbers;
    this.#id = parts.id;
    this.#connection = parts.connection;
    this.#onClose = parts.onClose;
    try {
      this.#mailbox = mapFile(parts.mailboxFd, MAILBOX_BYTES, 0);
    } finally {
      closeFd(parts.mailboxFd);
    }
    this.#words = new Int32Array(this.#mailbox.buffer);
    this.#answerAddress = this.#mailbox.address + REPLIED_OFFSET;
  }

  get lostReason(): string | undefined {
    return this.#connection.lostReason;
  }

  get stoppedReason(): string | undefined {
    return this.#connection.stoppedReason;
  }

  ioctl(request: number, block: ArgumentBlock): number {
    if (this.#closed) return -Errno.EBADF;
    if (!this.#connection.alive) return -Errno.ENODEV;
    const index = ioctlIndex(request);
    const { words } = block;
    if (index === IoctlIndex.MEMORY || index === IoctlIndex.INFO) {
      if (descriptorUse(request, words) !== DescriptorUse.NONE) return this.#ioctlByMessage(request, block);
    }
    if (index === IoctlIndex.MEMORY && pinsMemory(request, words)) return this.#pin(request, block);
    return this.#call(request, block, false);
  }

  #call(request: number, block: ArgumentBlock, pinned: boolean): number {
    const sequence = this.#post(0, request, block, pinned);
    return this.#await(sequence) ? readReply(this.#words, 0, block.words) : -Errno.ENODEV;
  }

  /** WAIT_CS without blocking; every other ioctl is short and runs at once. EAGAIN while {@link ASYNC_SLOTS} calls are pending. */
  ioctlAsync(request: number, block: ArgumentBlock): Promise<number> {
    if (this.#closed || !this.#connection.alive || ioctlIndex(request) !== IoctlIndex.WAIT_CS) {
      return Promise.resolve(this.ioctl(request, block));
    }
    if (this.#calls.size >= ASYNC_SLOTS) return Promise.resolve(-Errno.EAGAIN);
    const slot = this.#freeSlots.pop() ?? this.#calls.size + 1;
    return new Promise((settle) => {
      this.#connection.beginWait();
      this.#calls.set(slot, { block, settle });
      this.#post(slot, request, block, false);
    });
  }

  mmap(byteLength: number, offset: bigint): DriverMapping {
    if (this.#closed) throw new SyscallError('mmap', Errno.EBADF, 'file is closed');
    const mapping = this.#nextMapping++;
    const memory = this.#map(mapping, byteLength, offset);
    // Closing the file closes a mapped block of registers; a buffer stays mapped.
    if (unpackHandle(offset).type === HandleType.HW_BLOCK) this.#blocks.add(memory);
    return new BufferMapping(memory, () => {
      this.#blocks.delete(memory);
      this.#release(mapping);
    });
  }

  mapRegisters(byteLength: number, offset: bigint): RegisterMapping {
    if (this.#closed) throw new SyscallError('mmap', Errno.EBADF, 'file is closed');
    const mapping = this.#nextMapping++;
    const place = { file: this.#id, mapping, byteLength, offset: offset.toString() };
    this.#connection.request({ op: 'mapRegisters', ...place });
    const block: ArgumentBlock = { address: 0, words: new Uint32Array(REGISTER_ACCESS_WORDS) };
    const access = (register: number, value: number, isWrite: boolean): number => {
      if (this.#closed || !this.#connection.alive) return 0;
      block.words[0] = mapping;
      block.words[1] = register;
      block.words[REGISTER_VALUE] = value;
      block.words[3] = isWrite ? 1 : 0;
      this.#call(REGISTER_ACCESS, block, false);
      return block.words[REGISTER_VALUE]! | 0;
    };
    return new RemoteRegisters(byteLength, access, () => this.#release(mapping));
  }

  close(): void {
    if (this.#closed) return;
    this.#closed = true;
    try {
      if (this.#connection.alive) this.#connection.request({ op: 'close', file: this.#id });
    } catch (error) {
      // The server has ended and released everything.
      if (!isSyscallError(error, Errno.ENODEV)) throw error;
    }
    this.settle();
    for (const memory of this.#blocks) memory.close();
    this.#blocks.clear();
    this.#mailbox.close();
    this.#onClose(this);
  }

  /** Settles the calls that have a reply; all calls if the server has ended. */
  settle(): void {
    const words = this.#words;
    for (const settled = settledCount(words); this.#settled !== settled; ) {
      const slot = settledSlot(words, this.#settled);
      this.#settled = (this.#settled + 1) | 0;
      const call = this.#calls.get(slot);
      if (call !== undefined) this.#end(slot, call, readReply(words, slot, call.block.words));
    }
    if (!this.#closed && this.#connection.alive) return;
    for (const [slot, call] of [...this.#calls])
      this.#end(slot, call, this.#closed ? abortedWait(call.block) : -Errno.ENODEV);
  }

  #map(mapping: number, byteLength: number, offset: bigint): MappedMemory {
    const place = { file: this.#id, mapping, byteLength, offset: offset.toString() };
    const { message, fd } = this.#connection.requestDescriptor({ op: 'mmap', ...place }, () => this.#release(mapping));
    try {
      return mapFile(fd, Number(message['byteLength']), Number(message['offset']));
    } catch (error) {
      this.#release(mapping);
      throw error;
    } finally {
      closeFd(fd);
    }
  }

  #end(slot: number, call: PendingCall, result: number): void {
    this.#calls.delete(slot);
    this.#freeSlots.push(slot);
    this.#connection.endWait();
    call.settle(result);
  }

  /** Writes a request into a slot and makes it visible to the server. Returns its sequence number (slot 0). */
  #post(slot: number, request: number, block: ArgumentBlock, pinned: boolean): number {
    const words = this.#words;
    writeRequest(words, slot, request, block, pinned);
    if (slot === 0) {
      this.#sequence = (this.#sequence + 1) | 0;
      announceRequest(words, this.#sequence);
    } else this.#posted = postSlot(words, this.#posted, slot);
    // The server sets the flag before its last check of the mailbox: either it sees the request, or this thread sees the flag.
    if (isServerSleeping(words)) this.#connection.ring();
    return this.#sequence;
  }

  /** Waits for the reply in slot 0; returns false if the server has ended. */
  #await(sequence: number): boolean {
    const words = this.#words;
    let sinceNs = 0;
    for (;;) {
      for (let look = 0; look < LOOKS_PER_ROUND; look++) if (repliedSequence(words) === sequence) return true;
      const nowNs = systemClock.nowNs();
      if (sinceNs === 0) sinceNs = nowNs;
      if (nowNs - sinceNs > SPIN_NS) return this.#sleep(sequence);
      schedYield();
    }
  }

  #sleep(sequence: number): boolean {
    const words = this.#words;
    setClientSleeping(words, true);
    for (;;) {
      const seen = repliedSequence(words);
      if (seen === sequence) break;
      futexWait(this.#answerAddress, seen >>> 0, SLEEP_NS);
      if (repliedSequence(words) === sequence) break;
      if (!this.#connection.checkWaiting()) return false;
    }
    setClientSleeping(words, false);
    return true;
  }

  /** Runs an ioctl that takes or returns a descriptor. */
  #ioctlByMessage(request: number, block: ArgumentBlock): number {
    const index = ioctlIndex(request);
    const { words } = block;
    const taken = descriptorUse(request, words) === DescriptorUse.TAKES;
    const isCloexec = taken || (words[EXPORT_FLAGS_WORD]! & OpenFlag.CLOEXEC) !== 0;
    const { result, fd } = this.#exchange(
      this.#message(request, block),
      block,
      taken ? words[takenWord(index)]! | 0 : -1,
    );
    if (taken || result !== 0) return result;
    if (!isCloexec) setCloexec(fd, false);
    // Like a descriptor from the kernel, it belongs to the program now.
    forgetDescriptor(fd);
    words[GIVEN_WORD] = fd;
    return result;
  }

  /** Runs an ioctl by a message, and writes its result to the block; returns -ENODEV if the server has ended. */
  #exchange(message: Message, block: ArgumentBlock, fd: number): { readonly result: number; readonly fd: number } {
    try {
      const reply = this.#sendWithDescriptor(message, fd);
      block.words.set((reply.message['words'] as number[]).slice(0, block.words.length));
      return { result: Number(reply.message['result']), fd: reply.fd };
    } catch (error) {
      if (!this.#connection.alive) return { result: -Errno.ENODEV, fd: -1 };
      // The kernel dropped the descriptor, because this process has reached its limit, and with it the dma-buf.
      if (isSyscallError(error, Errno.EMFILE)) return { result: -Errno.EMFILE, fd: -1 };
      throw error;
    }
  }

  /** Pins host memory (MAP). The file that backs it, if any, is sent too: the server can then access the memory without system calls. */
  #pin(request: number, block: ArgumentBlock): number {
    const { words } = block;
    const pages = pinnedPages(words);
    const file = shareableRange(pages.address, pages.byteLength);
    if (file === undefined) return this.#call(request, block, populate(pages));
    return this.#exchange({ ...this.#message(request, block), offset: file.offset }, block, file.fd).result;
  }

  #message(request: number, { address, words }: ArgumentBlock): Message {
    const count = Math.min(BLOCK_WORDS_MAX, transferredWords(request, words.length));
    return { op: 'ioctl', file: this.#id, request: request >>> 0, address, words: [...words.subarray(0, count)] };
  }

  /** Sends an invalid descriptor as a number, so that the server reports the error in the order of the driver's checks. */
  #sendWithDescriptor(message: Message, fd: number): Reply {
    try {
      return this.#connection.request(message, fd);
    } catch (error) {
      if (!isSyscallError(error, Errno.EBADF)) throw error;
      return this.#connection.request(message);
    }
  }

  #release(mapping: number): void {
    if (this.#closed || !this.#connection.alive) return;
    try {
      this.#connection.request({ op: 'munmap', file: this.#id, mapping });
    } catch (error) {
      if (!isSyscallError(error, Errno.ENODEV)) throw error;
    }
  }
}

/** A register block of a card on a node server: each access is a request in the mailbox. */
class RemoteRegisters implements RegisterMapping {
  readonly byteLength: number;
  readonly #access: (offset: number, value: number, isWrite: boolean) => number;
  readonly #onClose: () => void;
  #closed = false;

  constructor(
    byteLength: number,
    access: (offset: number, value: number, isWrite: boolean) => number,
    onClose: () => void,
  ) {
    this.byteLength = byteLength;
    this.#access = access;
    this.#onClose = onClose;
  }

  read(offset: number): number {
    return this.#closed ? 0 : this.#access(offset, 0, false);
  }

  write(offset: number, value: number): void {
    if (!this.#closed) this.#access(offset, value, true);
  }

  close(): void {
    if (this.#closed) return;
    this.#closed = true;
    this.#onClose();
  }
}

/** Populates pages to be pinned, which only this process can. Returns whether they are mapped and writable. */
function populate({ address, byteLength }: { readonly address: number; readonly byteLength: number }): boolean {
  if (address === 0 || byteLength === 0 || address + byteLength > USER_ADDRESS_END) return false;
  return populateWritable(address, byteLength);
}
