/**
 * The connection of a FUSE file system to the kernel: reads requests, and writes answers. Their meaning is in file-system.ts.
 */

import { allocateScratch, Errno, readFuse, type ScratchBlock, SyscallError, writeFuse } from '../../sys/index.ts';
import { IN_HEADER, OUT_HEADER, REQUEST_BYTES_MAX } from './fuse-abi.ts';

const ANSWER_BYTES_MAX = 0x11000;

/** A request whose answer may come later. */
export interface Unanswered {
  readonly uniqueLow: number;
  readonly uniqueHigh: number;
}

/** The connection. */
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
  /** The answer that is being written, header included: zeros until {@link send}. */
  readonly answerView: DataView = this.#answer.view;
  readonly answerBytes: Uint8Array = this.#answer.u8;
  readonly answerWords: Uint32Array = this.#answer.words;

  constructor(fd: number) {
    this.fd = fd;
  }

  get opcode(): number {
    return this.words[IN_HEADER.OPCODE / 4]!;
  }

  /** Number of the file that the request is about. */
  get node(): number {
    return this.words[IN_HEADER.NODE / 4]!;
  }

  /** The thread that the kernel runs the request for; 0 if there is none. */
  get tid(): number {
    return this.words[IN_HEADER.PID / 4]!;
  }

  /** Identifies the current request, so that it can be answered later. */
  get current(): Unanswered {
    return { uniqueLow: this.words[IN_HEADER.UNIQUE / 4]!, uniqueHigh: this.words[IN_HEADER.UNIQUE / 4 + 1]! };
  }

  /** Bytes of the longest answer without its header. */
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

  /** Answers a request with an errno, or with 0 and no data. */
  fail(errno: number, request: Unanswered = this.current): void {
    this.#send(OUT_HEADER.BYTES, -errno, request);
  }

  /** Answers a request with the first `byteLength` bytes of the answer, header included, and clears them. */
  send(byteLength: number, request: Unanswered = this.current): void {
    this.#send(byteLength, 0, request);
    this.answerBytes.fill(0, OUT_HEADER.BYTES, byteLength);
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
    // The caller was killed, or the file system was unmounted: no answer is expected.
    if (result === 0 || result === -Errno.ENOENT || result === -Errno.ENODEV) return;
    throw new SyscallError('write', -result, '/dev/fuse');
  }
}
