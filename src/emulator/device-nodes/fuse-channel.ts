/** The connection of a FUSE file system to the kernel: reads requests and writes replies. */

import { allocateScratch, Errno, readFuse, type ScratchBlock, SyscallError, writeFuse } from '../../sys/index.ts';

const ANSWER_BYTES_MAX = 0x11000;

/** A request whose reply may come later. */
export interface Unanswered {
  readonly uniqueLow: number;
  readonly uniqueHigh: number;
}

export class FuseChannel {
  /** Descriptor of /dev/fuse, owned by this object. */
  readonly fd: number;
  readonly #request: ScratchBlock = allocateScratch(REQUEST_BYTES_MAX);
  readonly #answer: ScratchBlock = allocateScratch(ANSWER_BYTES_MAX);
  /** The current request, header included, until the next {@link read}. */
  readonly view: DataView = this.#request.view;
  readonly bytes: Uint8Array = this.#request.u8;
  readonly words: Uint32Array = this.#request.words;
  byteLength = 0;
  /** The reply that is being written, including its header; zeroed by {@link send}. */
  readonly answerView: DataView = this.#answer.view;
  readonly answerBytes: Uint8Array = this.#answer.u8;
  readonly answerWords: Uint32Array = this.#answer.words;

  constructor(fd: number) {
    this.fd = fd;
  }

  get opcode(): number {
    return this.words[IN_HEADER.OPCODE / 4]!;
  }

  /** Inode number that the request refers to. */
  get node(): number {
    return this.words[IN_HEADER.NODE / 4]!;
  }

  /** The thread for which the kernel sends the request; 0 if there is none. */
  get tid(): number {
    return this.words[IN_HEADER.PID / 4]!;
  }

  /** Identifies the current request, for a later reply. */
  get current(): Unanswered {
    return { uniqueLow: this.words[IN_HEADER.UNIQUE / 4]!, uniqueHigh: this.words[IN_HEADER.UNIQUE / 4 + 1]! };
  }

  /** Bytes of the longest reply without its header. */
  get payloadMax(): number {
    return ANSWER_BYTES_MAX - OUT_HEADER.BYTES;
  }

  /**
   * Reads the next request.
   * @returns false if there is none
   * @throws SyscallError ENODEV once the file system is unmounted
   */
  read(): boolean {
    const count = readFuse(this.fd, this.#request.address, REQUEST_BYTES_MAX);
    if (count < 0) throw new SyscallError('read', -count, '/dev/fuse');
    this.byteLength = count;
    return count >= IN_HEADER.BYTES;
  }

  /** Replies with an errno, or with 0 and no data. */
  fail(errno: number, request: Unanswered = this.current): void {
    this.#send(OUT_HEADER.BYTES, -errno, request);
  }

  /** Sends the first `byteLength` bytes of the reply, including its header, and clears them. */
  send(byteLength: number, request: Unanswered = this.current): void {
    this.#send(byteLength, 0, request);
    this.answerBytes.fill(0, OUT_HEADER.BYTES, byteLength);
  }

  /** Makes the kernel repeat all requests that were read and have no reply (Linux 6.9; needs {@link InitFlag2.RESEND}). */
  resend(): void {
    const words = this.answerWords;
    words[OUT_HEADER.LENGTH / 4] = OUT_HEADER.BYTES;
    words[OUT_HEADER.ERROR / 4] = NOTIFY_RESEND;
    words.fill(0, OUT_HEADER.UNIQUE / 4, OUT_HEADER.BYTES / 4);
    writeFuse(this.fd, this.#answer.address, OUT_HEADER.BYTES);
  }

  /** Frees the memory of this object; the descriptor stays open. */
  free(): void {
    this.#request.free();
    this.#answer.free();
  }

  #send(byteLength: number, error: number, { uniqueLow, uniqueHigh }: Unanswered): void {
    const words = this.answerWords;
    words[OUT_HEADER.LENGTH / 4] = byteLength;
    words[OUT_HEADER.ERROR / 4] = error;
    words[OUT_HEADER.UNIQUE / 4] = uniqueLow;
    words[OUT_HEADER.UNIQUE / 4 + 1] = uniqueHigh;
    const result = writeFuse(this.fd, this.#answer.address, byteLength);
    // The caller was killed, or the file system was unmounted: no reply is expected.
    if (result === 0 || result === -Errno.ENOENT || result === -Errno.ENODEV) return;
    throw new SyscallError('write', -result, '/dev/fuse');
  }
}

/**
 * The rest of this file: the protocol of /dev/fuse as data (request numbers, flags, and offsets of message fields).
 *
 * Source: include/uapi/linux/fuse.h, Linux 6.12 (protocol 7.41); later minor versions only add to it.
 */

/** Version of the protocol in these tables. */
export const FUSE_VERSION = { MAJOR: 7, MINOR: 41 } as const;

/** Requests of the kernel (enum fuse_opcode); the reply to others is ENOSYS. */
export const FuseOp = {
  LOOKUP: 1,
  FORGET: 2,
  GETATTR: 3,
  SETATTR: 4,
  READLINK: 5,
  OPEN: 14,
  READ: 15,
  WRITE: 16,
  STATFS: 17,
  RELEASE: 18,
  FLUSH: 25,
  INIT: 26,
  OPENDIR: 27,
  READDIR: 28,
  RELEASEDIR: 29,
  INTERRUPT: 36,
  DESTROY: 38,
  IOCTL: 39,
  BATCH_FORGET: 42,
} as const;

/** struct fuse_in_header: every request. */
export const IN_HEADER = { LENGTH: 0, OPCODE: 4, UNIQUE: 8, NODE: 16, PID: 32, BYTES: 40 } as const;
/** struct fuse_out_header: every reply. */
export const OUT_HEADER = { LENGTH: 0, ERROR: 4, UNIQUE: 8, BYTES: 16 } as const;

/** struct fuse_init_in, after the header. */
export const INIT_IN = { MAJOR: 40, MINOR: 44, READAHEAD: 48, FLAGS: 52, FLAGS2: 56 } as const;
/** struct fuse_init_out, after the header. */
export const INIT_OUT = {
  MAJOR: 16,
  MINOR: 20,
  READAHEAD: 24,
  FLAGS: 28,
  MAX_BACKGROUND: 32,
  CONGESTION: 34,
  MAX_WRITE: 36,
  TIME_GRANULARITY: 40,
  FLAGS2: 48,
  MAX_STACK_DEPTH: 52,
  END: 80,
} as const;
/** Bits of INIT: flags, and flags2 (bit 32 and above of the kernel's FUSE_ constants). */
export const InitFlag = { ASYNC_READ: 0x1, BIG_WRITES: 0x20, PARALLEL_DIROPS: 0x4_0000, EXT: 0x4000_0000 } as const;
export const InitFlag2 = { PASSTHROUGH: 0x20, RESEND: 0x80 } as const;
/** FUSE_NOTIFY_RESEND: a message without a request. */
const NOTIFY_RESEND = 7;

/** struct fuse_ioctl_in, after the header. */
export const IOCTL_IN = {
  HANDLE: 40,
  FLAGS: 48,
  REQUEST: 52,
  ADDRESS: 56,
  IN_SIZE: 64,
  OUT_SIZE: 68,
  DATA: 72,
} as const;
/** struct fuse_ioctl_out, after the header. */
export const IOCTL_OUT = { RESULT: 16, DATA: 32 } as const;

/** struct fuse_open_out, after the header. */
export const OPEN_OUT = { HANDLE: 16, FLAGS: 24, BACKING: 28, END: 32 } as const;
/** Flags of OPEN. */
export const OpenedFlag = { DIRECT_IO: 0x1, NONSEEKABLE: 0x4, NOFLUSH: 0x20, PASSTHROUGH: 0x80 } as const;
/** struct fuse_release_in: the handle of the file. */
export const RELEASE_IN = { HANDLE: 40 } as const;
/** struct fuse_interrupt_in: the request that is interrupted. */
export const INTERRUPT_IN = { UNIQUE: 40 } as const;
/** struct fuse_open_in: O_ flags. */
export const OPEN_IN = { FLAGS: 40 } as const;
/** struct fuse_write_in, and the bytes after it; struct fuse_write_out. */
export const WRITE_IN = { SIZE: 56, DATA: 80 } as const;
export const WRITE_OUT = { SIZE: 16, END: 24 } as const;
/** struct fuse_read_in. */
export const READ_IN = { HANDLE: 40, OFFSET: 48, SIZE: 56 } as const;
/** The name of LOOKUP, which ends with a zero. */
export const LOOKUP_NAME = 40;

/** struct fuse_attr_out, after the header. */
export const ATTR_OUT = { ATTR: 32, END: 120 } as const;
/** struct fuse_entry_out, after the header. */
export const ENTRY_OUT = { NODE: 16, ENTRY_VALID: 32, ATTR: 56, END: 144 } as const;
/** struct fuse_attr, from its start. */
export const ATTR = { INO: 0, SIZE: 8, TIMES: [24, 32, 40], MODE: 60, LINKS: 64, BLOCK_SIZE: 80, BYTES: 88 } as const;
/** struct fuse_dirent, from its start; padded to 8. */
export const DIRENT = { INO: 0, OFFSET: 8, NAME_LENGTH: 16, TYPE: 20, NAME: 24 } as const;
/** struct fuse_statfs_out, after the header. */
export const STATFS_OUT = { BLOCK_SIZE: 56, NAME_MAX: 60, END: 96 } as const;

/** Bytes of the longest request: 128 KiB and a page, as the kernel requires of a buffer. */
const REQUEST_BYTES_MAX = 0x21000;
/** Maximum number of bytes of a write. */
export const WRITE_BYTES_MAX = 4096;
