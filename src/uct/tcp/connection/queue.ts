/** Queued frames, and their pool: each has a header or a whole frame in private memory, followed by ranges of other memory. */

import { allocateScratch, type ScratchBlock } from '../../../sys/index.ts';
import { Status } from '../../../ucs/type/status.ts';
import type { Completion } from '../../api/iface.ts';
import type { HostIovEntry, HostMemory } from '../../base/host/memory.ts';
import {
  END_BYTES,
  FrameType,
  HEADER_BYTES,
  HEADER_BYTES_MAX,
  PUT_HEADER_BYTES,
  PUT_RUN_HEADER_BYTES,
  PUT_RUN_MAX,
  paddingOf,
  typeOf,
  writeEnd,
  writeSignal,
} from '../layout.ts';

const ZERO_BYTES = 16_384;
/** Address of a range whose memory was lost. */
const LOST = 0;
/** Copied messages up to this length, including the header, use a shorter frame, so that a queue of short messages takes little memory. */
const COMMON_BYTES = 8256;
/** Messages up to this length use the shortest frame, because many links may have a batch of them at the same time. */
const SHORT_BYTES = 512;
const NO_RUN = -1;
/** Index of the end in small frames. */
const END_WORD: number = HEADER_BYTES_MAX >> 2;
/** A header and an end. */
const SMALL_BYTES: number = HEADER_BYTES_MAX + END_BYTES;

/** A frame, or the rest of one. */
export class Outgoing {
  /** Header, or the whole frame. */
  readonly block: ScratchBlock;
  readonly words: Int32Array;
  /** The free list for frames of its length. */
  readonly home: Outgoing[];
  next: Outgoing | undefined = undefined;
  /** Addresses and lengths of the ranges in order, the header first. */
  readonly addresses: number[] = [];
  readonly lengths: number[] = [];
  count = 0;
  /** The range that is being sent, and the number of its bytes that were sent. */
  piece = 0;
  offset = 0;
  /** Registered memory of each range, if any. It is in use until all ranges are sent. */
  readonly memories: (HostMemory | undefined)[] = [];
  /** Whether it is the rest of a frame whose beginning was sent before it was queued. */
  isRest = false;
  /** Whether it overtakes frames that were queued before. */
  hasOvertaken = false;
  /** The endpoint of its operation, if it has registered memory or a completion. */
  owner: object | undefined = undefined;
  /** Completed when everything is sent; undefined for none. */
  completion: Completion | undefined = undefined;
  /** Puts of a PUT_RUN; -1 for any other frame. The words of the rest of a frame may have any value. */
  runLength: number = NO_RUN;
  /** Number of copied message bytes in it. */
  copied = 0;
  /** INVALID_ADDR once memory was lost. Zeros are then sent in its place. */
  failure: Status = Status.OK;

  constructor(byteLength: number, home: Outgoing[]) {
    this.block = allocateScratch(byteLength);
    this.words = new Int32Array(this.block.u8.buffer, this.block.u8.byteOffset, byteLength >> 2);
    this.home = home;
  }

  get isStarted(): boolean {
    return this.piece > 0 || this.offset > 0 || this.isRest;
  }

  /** Makes it a PUT_RUN without puts. */
  beginRun(): void {
    this.runLength = 0;
    this.addHeader(HEADER_BYTES);
  }

  /** Whether it is a PUT_RUN to which another put can be added. */
  get takesPut(): boolean {
    return this.runLength >= 0 && this.runLength < PUT_RUN_MAX && !this.isStarted;
  }

  /** Counts another put of a PUT_RUN. @returns index of the first word of its header, which the caller writes */
  addRunHeader(): number {
    this.runLength += 1;
    writeSignal(this.words, 0, FrameType.PUT_RUN, this.runLength);
    const at = this.lengths[0]!;
    this.lengths[0] = at + PUT_HEADER_BYTES;
    return at >> 2;
  }

  /** Adds the range `[from, from + byteLength)` of a list. */
  addIov(iov: readonly HostIovEntry[], from: number, byteLength: number): void {
    let skip = from;
    let left = byteLength;
    for (let i = 0; i < iov.length && left > 0; i++) {
      const entry = iov[i]!;
      if (skip >= entry.byteLength) {
        skip -= entry.byteLength;
        continue;
      }
      const bytes = Math.min(entry.byteLength - skip, left);
      this.addMemory(entry.memory, entry.offset + skip, bytes);
      skip = 0;
      left -= bytes;
    }
  }

  /** Adds the padding of a body of this length. */
  addPadding(byteLength: number, zeros: ScratchBlock): void {
    const padding = paddingOf(byteLength);
    if (padding === 0) return;
    this.addresses[this.count] = zeros.address;
    this.#added(padding, undefined);
  }

  /** Adds a range of registered memory, which counts as in flight until it is sent. */
  addMemory(memory: HostMemory, offset: number, byteLength: number): void {
    memory.inFlight += 1;
    this.addresses[this.count] = memory.location + offset;
    this.#added(byteLength, memory);
  }

  /** Adds the end of a small frame, whose status is updated if memory is lost before it is sent. */
  addEnd(status: Status): void {
    writeEnd(this.words, END_WORD, status);
    this.addresses[this.count] = this.block.address + HEADER_BYTES_MAX;
    this.#added(END_BYTES, undefined);
  }

  /** Adds the first bytes of the private memory: the header, or the whole frame. */
  addHeader(byteLength: number): void {
    this.addresses[this.count] = this.block.address;
    this.#added(byteLength, undefined);
  }

  /** Adds a range whose address is written already: as an argument V8 would box it. */
  #added(byteLength: number, memory: HostMemory | undefined): void {
    this.lengths[this.count] = byteLength;
    this.memories[this.count] = memory;
    this.count += 1;
  }

  /**
   * Checks for memory that was detached or deregistered before it was sent. The frame keeps its length, because its beginning may have been sent. Its end then
   * contains the failure. A put has no end: it fails with the operation of its sender.
   */
  checkMemory(): void {
    for (let i = this.piece; i < this.count; i++) {
      const memory = this.memories[i];
      if (memory === undefined) continue;
      const isThere = this.addresses[i]! + this.lengths[i]! <= memory.location + memory.byteLength;
      if (!memory.live || !isThere) this.#lose(i, memory);
    }
  }

  /** Drops its references to user memory after a cancel, as if all of it had been detached. */
  release(): void {
    for (let i = this.piece; i < this.count; i++) {
      const memory = this.memories[i];
      if (memory !== undefined) this.#lose(i, memory);
    }
  }

  #lose(piece: number, memory: HostMemory): void {
    memory.inFlight -= 1;
    this.memories[piece] = undefined;
    this.addresses[piece] = LOST;
    this.failure = Status.INVALID_ADDR;
    if (!isPut(typeOf(this.words, 0))) writeEnd(this.words, END_WORD, this.failure);
  }

  /** Unsent bytes of a range. */
  restOf(piece: number): number {
    return this.lengths[piece]! - (piece === this.piece ? this.offset : 0);
  }

  /** Address of the unsent bytes of a range. @param zeros replacement for lost memory */
  placeOf(piece: number, zeros: ScratchBlock): number {
    const address = this.addresses[piece]!;
    if (address === LOST) return zeros.address;
    return address + (piece === this.piece ? this.offset : 0);
  }

  /** Contiguous bytes from {@link placeOf} on: the block of zeros may be shorter than the lost memory. */
  runOf(piece: number, zeros: ScratchBlock): number {
    const rest = this.restOf(piece);
    return this.addresses[piece] === LOST ? Math.min(rest, zeros.byteLength) : rest;
  }

  /** Counts sent bytes. Returns how many of them belong to later frames, or -1 if this frame is not completely sent. */
  advance(byteLength: number): number {
    let left = byteLength;
    while (this.piece < this.count) {
      const rest = this.lengths[this.piece]! - this.offset;
      if (left < rest) {
        this.offset += left;
        return -1;
      }
      left -= rest;
      this.piece += 1;
      this.offset = 0;
    }
    return left;
  }
}

function isPut(type: number): boolean {
  return type === FrameType.PUT || type === FrameType.PUT_RUN;
}

/** The free frames of one length. */
interface FrameClass {
  readonly byteLength: number;
  readonly free: Outgoing[];
}

/** The pool of frames of one interface. */
export class OutgoingPool {
  /** Padding, and the replacement for lost memory. */
  readonly zeros: ScratchBlock = allocateScratch(ZERO_BYTES);
  /** By the length of their frames, the shortest first. */
  readonly #classes: readonly FrameClass[];
  readonly #all: Outgoing[] = [];
  /** Bytes of the frames that are in use. */
  takenBytes = 0;

  /** @param largeBytes length of the longest frame that is copied */
  constructor(largeBytes: number) {
    const lengths = [SMALL_BYTES, SHORT_BYTES, COMMON_BYTES].filter((byteLength) => byteLength < largeBytes);
    this.#classes = [...lengths, Math.max(largeBytes, PUT_RUN_HEADER_BYTES)].map((byteLength) => ({
      byteLength,
      free: [],
    }));
  }

  /** A frame for a header and an end. */
  takeSmall(): Outgoing {
    return this.#takeOf(this.#classes[0]!);
  }

  /** A PUT_RUN without puts. */
  takeRun(): Outgoing {
    const run = this.take(PUT_RUN_HEADER_BYTES);
    run.beginRun();
    return run;
  }

  /** A frame for `byteLength` bytes, at most those of the longest frame. */
  take(byteLength: number): Outgoing {
    let index = 0;
    while (this.#classes[index]!.byteLength < byteLength) index += 1;
    return this.#takeOf(this.#classes[index]!);
  }

  put(outgoing: Outgoing): void {
    const { memories } = outgoing;
    // Not shortened: it would be allocated again for the next frame.
    for (let i = 0; i < outgoing.count; i++) {
      const memory = memories[i];
      if (memory !== undefined) memory.inFlight -= 1;
      memories[i] = undefined;
    }
    outgoing.count = 0;
    outgoing.piece = 0;
    outgoing.offset = 0;
    outgoing.next = undefined;
    outgoing.isRest = false;
    outgoing.hasOvertaken = false;
    outgoing.owner = undefined;
    outgoing.completion = undefined;
    outgoing.failure = Status.OK;
    outgoing.copied = 0;
    outgoing.runLength = NO_RUN;
    this.takenBytes -= outgoing.block.byteLength;
    outgoing.home.push(outgoing);
  }

  /** Releases all memory. Nothing may be sent afterwards. */
  close(): void {
    for (const { block } of this.#all) block.free();
    this.zeros.free();
  }

  #takeOf({ byteLength, free }: FrameClass): Outgoing {
    this.takenBytes += byteLength;
    return free.pop() ?? this.#make(byteLength, free);
  }

  #make(byteLength: number, home: Outgoing[]): Outgoing {
    const outgoing = new Outgoing(byteLength, home);
    this.#all.push(outgoing);
    return outgoing;
  }
}
