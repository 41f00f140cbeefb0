/**
 * copy_from_user and copy_to_user of the emulated driver: memory of the caller, by addresses that may be invalid.
 *
 * Addresses inside the argument block are read from its words. All other addresses are accessed through the kernel, which returns EFAULT where a plain
 * load would crash the process.
 */

import type { ArgumentBlock } from '../../../driver/port.ts';
import { allocateScratch, copyFromProcess, copyToProcess, type ScratchBlock } from '../../../sys/index.ts';
import { joinWords } from '../../../ucs/type/int64.ts';
import { AddressSpaces, type ForeignPages, type PinnedPages, pinForeignPages, pinOwnPages } from './pinned-memory.ts';

/** End of user addresses on x86-64. */
const USER_ADDRESS_END = 2 ** 47;

/**
 * Address of an argument block that is a copy, outside user memory. As in the kernel, pointers in the block refer to memory of the program, even if they
 * point to the arguments themselves.
 */
export const NO_ADDRESS: number = 2 ** 52;

/** Limit for a structure or array that an ioctl reads at once: 512 chunks of 64 bytes. */
const SCRATCH_BYTES = 32768;

/** Pages that the caller has not populated. */
export const NO_PAGES: ForeignPages = { populated: false };
/** Pages that the caller has populated, of any kind. */
export const POPULATED_PAGES: ForeignPages = { populated: true };

/** Stands for this process. */
export const OWN_PROCESS = 0;

/** Memory of the caller of an ioctl. */
export class UserMemory {
  /** Result of {@link readWords}: the array that contains the words. */
  words: Uint32Array = new Uint32Array(0);
  index = 0;
  /** Number of words at the start of the argument block that contain results of {@link writeResult} since this was set to 0. */
  resultWords = 0;
  /** Information of another process about the pages to pin. */
  foreignPages: ForeignPages = NO_PAGES;
  /** The process whose memory it is; {@link OWN_PROCESS} for this one. */
  readonly owner: number;
  #scratch: ScratchBlock | undefined;
  /** The process, or a thread of it, whose memory the current ioctl accesses: {@link owner}, unless another process inherited the file. */
  caller: number;
  /** The process of {@link caller}, for an ioctl that pins memory. */
  callingProcess: number;
  readonly #spaces: AddressSpaces = new AddressSpaces();

  /** @param owner another process of the same user, or {@link OWN_PROCESS} */
  constructor(owner: number = OWN_PROCESS) {
    this.owner = owner;
    this.caller = owner === OWN_PROCESS ? process.pid : owner;
    this.callingProcess = this.caller;
  }

  /**
   * Makes `count` words at a user address readable in {@link words} from {@link index} on, until the next call.
   * @param block argument block of the ioctl, which may contain the words
   * @returns false if the address is invalid: EFAULT
   */
  readWords(block: ArgumentBlock, low: number, high: number, count: number): boolean {
    const address = joinWords(low, high);
    const inside = address - block.address;
    if (inside >= 0 && inside + count * 4 <= block.words.length * 4 && inside % 4 === 0) {
      this.words = block.words;
      this.index = inside / 4;
      return true;
    }
    const scratch = this.#buffer();
    this.words = scratch.words;
    this.index = 0;
    return this.#copyIn(address, scratch.address, count * 4);
  }

  /** Reads `target.byteLength` bytes at a user address; returns false (EFAULT) if one is not readable. */
  read(address: number, target: Uint8Array): boolean {
    const scratch = this.#buffer();
    for (let done = 0; done < target.byteLength; done += SCRATCH_BYTES) {
      const piece = Math.min(SCRATCH_BYTES, target.byteLength - done);
      if (!this.#copyIn(address + done, scratch.address, piece)) return false;
      target.set(scratch.u8.subarray(0, piece), done);
    }
    return true;
  }

  /** Writes bytes to a user address; returns false (EFAULT) if one is not writable. */
  write(address: number, source: Uint8Array): boolean {
    const scratch = this.#buffer();
    for (let done = 0; done < source.byteLength; done += SCRATCH_BYTES) {
      const piece = Math.min(SCRATCH_BYTES, source.byteLength - done);
      scratch.u8.set(piece === source.byteLength ? source : source.subarray(done, done + piece));
      if (!isUserRange(address + done, piece)) return false;
      if (copyToProcess(this.caller, address + done, scratch.address, piece) !== piece) return false;
    }
    return true;
  }

  /** Like {@link write}, for an address that may be in the argument block: the bytes are then stored there directly. */
  writeResult(block: ArgumentBlock, address: number, source: Uint8Array): boolean {
    const inside = address - block.address;
    const { words } = block;
    if (inside < 0 || inside + source.byteLength > words.byteLength) return this.write(address, source);
    new Uint8Array(words.buffer, words.byteOffset + inside, source.byteLength).set(source);
    this.resultWords = Math.ceil((inside + source.byteLength) / 4);
    return true;
  }

  /** Pins whole pages for the engines; returns undefined (EFAULT) if one is not mapped. Throws SyscallError ENOMEM. */
  pin(address: number, byteLength: number): PinnedPages | undefined {
    if (this.owner === OWN_PROCESS) return pinOwnPages(address, byteLength);
    const range = { address, byteLength };
    return pinForeignPages(this.#spaces, [this.callingProcess, this.caller], range, this.foreignPages);
  }

  /** Releases the scratch memory. */
  close(): void {
    this.#scratch?.free();
    this.#scratch = undefined;
  }

  #copyIn(address: number, target: number, byteLength: number): boolean {
    if (!isUserRange(address, byteLength)) return false;
    return copyFromProcess(this.caller, address, target, byteLength) === byteLength;
  }

  #buffer(): ScratchBlock {
    this.#scratch ??= allocateScratch(SCRATCH_BYTES);
    return this.#scratch;
  }
}

/** True if a range can be user memory. */
export function isUserRange(address: number, byteLength: number): boolean {
  return address > 0 && address + byteLength <= USER_ADDRESS_END;
}
