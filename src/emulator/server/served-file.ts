/**
 * Server side of an open file of a client: reads ioctls from its mailbox and writes the results. The client may change the mailbox at any time, so every
 * word is read once into memory of the server, and checked there.
 */

import type { ArgumentBlock, RegisterMapping } from '../../driver/port.ts';
import {
  addSeals,
  close as closeFd,
  Errno,
  ftruncate,
  futexWake,
  type MappedMemory,
  mapFile,
  memfdCreate,
  SealFlag,
} from '../../sys/index.ts';
import { argumentWords, DescriptorUse, descriptorUse, mayBlock } from '../driver/base/ioctl-request.ts';
import { type EmulatedFile, resultOrEio } from '../driver/ioctl/file.ts';
import type { SharedPages } from '../driver/memory/mmap-file.ts';
import type { ForeignPages } from '../driver/memory/pinned-memory.ts';
import { NO_PAGES, POPULATED_PAGES } from '../driver/memory/user-memory.ts';
import {
  ASYNC_SLOTS,
  announceReply,
  BLOCK_WORDS_MAX,
  isClientSleeping,
  MAILBOX_BYTES,
  postedCount,
  postedSlot,
  REGISTER_ACCESS,
  REGISTER_ACCESS_WORDS,
  REGISTER_VALUE,
  REPLIED_OFFSET,
  readRequest,
  readRequestBlock,
  requestedSequence,
  setServerSleeping,
  settleSlot,
  slotWordsMax,
  writeReply,
} from './mailbox.ts';
import { ProtocolError } from './message.ts';

/** Limit of mappings per file. */
export const MAPPINGS_MAX = 65_536;

/** An argument block in the server, with its address in the client. */
interface ServedBlock extends ArgumentBlock {
  address: number;
}

/** Callbacks of a file to its client. */
export interface ServedFileEvents {
  /** A non-blocking call has settled. */
  readonly onSettled: () => void;
  /** A waiting ioctl starts: its promise may need the event loop. Returns false if the client has too many waits. */
  readonly onWaiting: () => boolean;
  /** A waiting ioctl has ended. */
  readonly onWaited: () => void;
  /** The driver threw an unexpected exception. */
  readonly onDefect: (error: unknown) => void;
}

export class ServedFile {
  readonly id: number;
  readonly minor: number;
  readonly file: EmulatedFile;
  /** Number of executed ioctls. */
  ioctls = 0;
  readonly #events: ServedFileEvents;
  readonly #mailbox: MappedMemory;
  readonly #words: Int32Array;
  readonly #clientFlagAddress: number;
  /** Sequence number of the last request in slot 0. */
  #seen = 0;
  /** 1 for slots whose request is in progress. */
  readonly #busy: Uint8Array = new Uint8Array(1 + ASYNC_SLOTS);
  /** Number of requests taken from the ring of posted slots, and number written to the ring of settled slots. */
  #taken = 0;
  #settled = 0;
  /** Copy of the words of the current ioctl, and views of its first words, by number of words. */
  readonly #block: Uint32Array<ArrayBuffer> = new Uint32Array(BLOCK_WORDS_MAX);
  readonly #blocks: (ServedBlock | undefined)[] = [];
  readonly #shares: Map<number, SharedPages> = new Map();
  readonly #registers: Map<number, RegisterMapping> = new Map();
  #closed = false;

  /** @throws SyscallError EMFILE, ENOMEM */
  constructor(id: number, minor: number, file: EmulatedFile, events: ServedFileEvents) {
    this.id = id;
    this.minor = minor;
    this.file = file;
    this.#events = events;
    this.mailboxFd = memfdCreate('gaudi-mailbox', { sealing: true });
    try {
      ftruncate(this.mailboxFd, MAILBOX_BYTES);
      // A client that shrinks the file would crash the server at its next access.
      addSeals(this.mailboxFd, SealFlag.SHRINK | SealFlag.GROW | SealFlag.SEAL);
      this.#mailbox = mapFile(this.mailboxFd, MAILBOX_BYTES, 0);
    } catch (error) {
      closeFd(this.mailboxFd);
      throw error;
    }
    this.#words = new Int32Array(this.#mailbox.buffer);
    this.#clientFlagAddress = this.#mailbox.address + REPLIED_OFFSET;
  }

  /** Descriptor of the mailbox, until {@link forgetMailboxFd}. */
  mailboxFd: number;

  /** Closes the descriptor of the mailbox after the client has received it. */
  forgetMailboxFd(): void {
    if (this.mailboxFd >= 0) closeFd(this.mailboxFd);
    this.mailboxFd = -1;
  }

  /** Sets the flag that makes the client ring the doorbell. */
  setSleeping(sleeping: boolean): void {
    setServerSleeping(this.#words, sleeping);
  }

  /**
   * Runs the pending ioctls in the mailbox.
   * @returns whether there were any
   * @throws ProtocolError for requests that no valid client posts
   */
  poll(): boolean {
    if (this.#closed) return false;
    const words = this.#words;
    let served = false;
    const sequence = requestedSequence(words);
    if (sequence !== this.#seen) {
      this.#seen = sequence;
      this.#serve(0, sequence);
      served = true;
    }
    const posted = postedCount(words);
    if (posted === this.#taken) return served;
    const count = (posted - this.#taken) >>> 0;
    if (count > ASYNC_SLOTS) throw new ProtocolError(`ring of ${ASYNC_SLOTS} slots has ${count} posted requests`);
    for (let i = 0; i < count && !this.#closed; i++) {
      const slot = postedSlot(words, this.#taken);
      if (slot < 1 || slot > ASYNC_SLOTS) throw new ProtocolError(`posted slot ${slot}; slots are 1 to ${ASYNC_SLOTS}`);
      this.#taken = (this.#taken + 1) | 0;
      this.#serve(slot, 0);
    }
    return true;
  }

  /** Runs an ioctl that arrived as a message, possibly with a descriptor; its block is `words`. */
  run(request: number, address: number, words: Uint32Array, pages: ForeignPages = NO_PAGES): number {
    this.ioctls += 1;
    this.file.userMemory.foreignPages = pages;
    return this.file.ioctl(request | 0, { address, words });
  }

  /**
   * Shares pages for a mapping of the client.
   * @param mapping id that the client chose
   * @throws SyscallError like mmap
   */
  share(mapping: number, byteLength: number, offset: bigint): SharedPages {
    this.#checkMapping(mapping);
    const pages = this.file.share(byteLength, offset);
    this.#shares.set(mapping, pages);
    return pages;
  }

  /** Maps a block of registers that the client accesses by requests in the mailbox. Arguments and errors as in {@link share}. */
  mapRegisters(mapping: number, byteLength: number, offset: bigint): void {
    this.#checkMapping(mapping);
    this.#registers.set(mapping, this.file.mapRegisters(byteLength, offset));
  }

  /** Releases a mapping after the client has unmapped it. */
  unshare(mapping: number): void {
    this.#shares.get(mapping)?.release();
    this.#shares.delete(mapping);
    this.#registers.get(mapping)?.close();
    this.#registers.delete(mapping);
  }

  /** Releases all resources of the file. */
  close(): void {
    if (this.#closed) return;
    this.#closed = true;
    this.file.close();
    // The client does not report when it unmaps the memory of a closed file.
    this.unshareAll();
    for (const registers of this.#registers.values()) registers.close();
    this.#registers.clear();
    this.forgetMailboxFd();
    this.#mailbox.close();
  }

  /** Releases all mappings after their process has ended. */
  unshareAll(): void {
    for (const pages of this.#shares.values()) pages.release();
    this.#shares.clear();
  }

  #checkMapping(mapping: number): void {
    if (this.#shares.size + this.#registers.size >= MAPPINGS_MAX)
      throw new ProtocolError(`file has more than ${MAPPINGS_MAX} mappings`);
    if (this.#shares.has(mapping) || this.#registers.has(mapping))
      throw new ProtocolError(`mapping id ${mapping} is in use`);
  }

  /** Reads or writes a register of a mapped block. */
  #accessRegister(words: Uint32Array): void {
    const mapping = words.length === REGISTER_ACCESS_WORDS ? this.#registers.get(words[0]!) : undefined;
    if (mapping === undefined) throw new ProtocolError('access to a register that is not mapped');
    if (words[3] === 0) words[REGISTER_VALUE] = mapping.read(words[1]!);
    else mapping.write(words[1]!, words[REGISTER_VALUE]! | 0);
  }

  #serve(slot: number, sequence: number): void {
    if (this.#busy[slot] !== 0)
      throw new ProtocolError(`slot ${slot} has a second request before the reply to the first`);
    const mailbox = this.#words;
    const { request, count, address, isPinned } = readRequest(mailbox, slot);
    if (count < 0 || count > slotWordsMax(slot))
      throw new ProtocolError(`argument block has ${count} words, which does not fit its slot`);
    const block = this.#blocks[count] ?? this.#blockOf(count);
    block.address = address;
    const { words } = block;
    readRequestBlock(mailbox, slot, words);
    if (request === REGISTER_ACCESS) {
      this.#accessRegister(words);
      this.#answer(slot, sequence, 0, REGISTER_ACCESS_WORDS, block);
      return;
    }
    // Descriptors are passed only by messages: the server would take a number in the block for one of its descriptors.
    if (descriptorUse(request, words) !== DescriptorUse.NONE)
      throw new ProtocolError('mailbox has an ioctl with a descriptor');
    const { userMemory } = this.file;
    userMemory.foreignPages = isPinned ? POPULATED_PAGES : NO_PAGES;
    userMemory.resultWords = 0;
    this.ioctls += 1;
    if (mayBlock(request, words)) this.#serveWait(slot, sequence, request, block);
    else {
      const result = this.#run(request, block);
      this.#answer(slot, sequence, result, Math.max(argumentWords(request), userMemory.resultWords), block);
    }
  }

  #run(request: number, block: ArgumentBlock): number {
    try {
      return this.file.ioctl(request, block);
    } catch (error) {
      this.#events.onDefect(error);
      return -Errno.EIO;
    }
  }

  /** Runs a wait with a time-out; other clients are served meanwhile. */
  #serveWait(slot: number, sequence: number, request: number, block: ArgumentBlock): void {
    const own = { address: block.address, words: block.words.slice() };
    if (!this.#events.onWaiting()) {
      this.#answer(slot, sequence, this.file.recordFailure(request, own, -Errno.EAGAIN), 0, own);
      return;
    }
    const settle = (result: number): void => {
      this.#events.onWaited();
      this.#answer(slot, sequence, result, argumentWords(request), own);
    };
    const result = resultOrEio(() => this.file.ioctlOrWait(request, own), this.#events.onDefect);
    if (typeof result === 'number') {
      settle(result);
      return;
    }
    this.#busy[slot] = 1;
    void result.then(settle);
  }

  /** @param changed number of words that the ioctl may have changed */
  #answer(slot: number, sequence: number, result: number, changed: number, block: ArgumentBlock): void {
    if (this.#closed) return;
    this.#busy[slot] = 0;
    const mailbox = this.#words;
    writeReply(mailbox, slot, result, block.words, Math.min(changed, block.words.length));
    if (slot === 0) {
      announceReply(mailbox, sequence);
      if (isClientSleeping(mailbox)) futexWake(this.#clientFlagAddress, 1);
      return;
    }
    this.#settled = settleSlot(mailbox, this.#settled, slot);
    this.#events.onSettled();
  }

  #blockOf(count: number): ServedBlock {
    const block = { address: 0, words: this.#block.subarray(0, count) };
    this.#blocks[count] = block;
    return block;
  }
}
