/** Frames that wait to be sent, and the pool they come from: a header or a whole frame in memory of its own, and pieces of memory behind it. */

import { allocateScratch, type ScratchBlock } from '../../../sys/index.ts';
import { Status } from '../../../ucs/type/status.ts';
import type { Completion, IovEntry } from '../../api/iface.ts';
import type { HostMemory } from '../../base/host-memory.ts';
import { FrameType, HEADER_BYTES_MAX, padded, typeOf, writeGetData } from './frame.ts';

const ZERO_BYTES = 4096;

/** A frame, or the rest of one. */
export class Outgoing {
  /** Header, or the whole frame. */
  readonly block: ScratchBlock;
  readonly words: Int32Array;
  readonly isLarge: boolean;
  next: Outgoing | undefined = undefined;
  /** What is sent, in order: addresses and lengths, the header first. */
  readonly addresses: number[] = [];
  readonly lengths: number[] = [];
  count = 0;
  /** The piece that is being sent, and how much of it has been. */
  piece = 0;
  offset = 0;
  /** Registered memory behind each piece, if any: it stays until all are sent. */
  readonly memories: (HostMemory | undefined)[] = [];
  /** It was put before others that came first. */
  hasOvertaken = false;
  /** Told when everything is sent; undefined for nobody. */
  completion: Completion | undefined = undefined;

  constructor(byteLength: number, isLarge: boolean) {
    this.block = allocateScratch(byteLength);
    this.words = new Int32Array(this.block.u8.buffer, this.block.u8.byteOffset, byteLength >> 2);
    this.isLarge = isLarge;
  }

  get isStarted(): boolean {
    return this.piece > 0 || this.offset > 0;
  }

  /** Adds memory of a list, of which only `[from, from + byteLength)` counts, then padding. */
  addIov(iov: readonly IovEntry[], from: number, byteLength: number, zeros: number): void {
    let skip = from;
    let left = byteLength;
    for (let i = 0; i < iov.length && left > 0; i++) {
      const entry = iov[i]!;
      if (skip >= entry.byteLength) {
        skip -= entry.byteLength;
        continue;
      }
      const bytes = Math.min(entry.byteLength - skip, left);
      this.addMemory(entry.memory as HostMemory, entry.offset + skip, bytes);
      skip = 0;
      left -= bytes;
    }
    this.#pad(byteLength, zeros);
  }

  /** Adds a body of one piece of memory, then padding. */
  addBody(memory: HostMemory, offset: number, byteLength: number, zeros: number): void {
    if (byteLength > 0) this.addMemory(memory, offset, byteLength);
    this.#pad(byteLength, zeros);
  }

  /** Adds a piece of registered memory, which counts as in flight until it is sent. */
  addMemory(memory: HostMemory, offset: number, byteLength: number): void {
    memory.inFlight += 1;
    this.add(memory.location + offset, byteLength, memory);
  }

  add(address: number, byteLength: number, memory?: HostMemory): void {
    this.addresses[this.count] = address;
    this.lengths[this.count] = byteLength;
    this.memories[this.count] = memory;
    this.count += 1;
  }

  /** Whether memory of a piece that has not been sent was detached meanwhile. */
  get hasLost(): boolean {
    for (let i = this.piece; i < this.count; i++) if (this.#isLost(i)) return true;
    return false;
  }

  /**
   * Makes a frame whose memory is gone one that can be sent: a put, which its sender knows to have failed, brings zeros; an answer to a get that has not
   * been begun is a refusal.
   * @returns false for other frames: the peer would take what is sent for good
   */
  replaceLost(zeros: ScratchBlock): boolean {
    const type = typeOf(this.words, 0);
    if (type === FrameType.GET_DATA && !this.isStarted) {
      writeGetData(this.words, 0, Status.INVALID_ADDR, 0);
      this.count = 1;
      return true;
    }
    if (type !== FrameType.PUT) return false;
    for (let i = this.piece; i < this.count; i++) if (this.#isLost(i)) this.#blank(i, zeros);
    return true;
  }

  #isLost(piece: number): boolean {
    const memory = this.memories[piece];
    if (memory === undefined) return false;
    return this.addresses[piece]! + this.lengths[piece]! > memory.location + memory.byteLength;
  }

  /** Puts zeros in the place of a piece. */
  #blank(piece: number, zeros: ScratchBlock): void {
    const sent = piece === this.piece ? this.offset : 0;
    if (sent > 0) this.offset = 0;
    let left = this.lengths[piece]! - sent;
    const lengths: number[] = [];
    for (; left > zeros.byteLength; left -= zeros.byteLength) lengths.push(zeros.byteLength);
    lengths.push(left);
    this.memories[piece]!.inFlight -= 1;
    this.memories.splice(piece, 1, ...lengths.map(() => undefined));
    this.addresses.splice(piece, 1, ...lengths.map(() => zeros.address));
    this.lengths.splice(piece, 1, ...lengths);
    this.count += lengths.length - 1;
  }

  /** Counts bytes that were sent: returns how many of them were not of this frame, or -1 when some of it is left. */
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

  #pad(byteLength: number, zeros: number): void {
    const padding = padded(byteLength) - byteLength;
    if (padding > 0) this.add(zeros, padding);
  }
}

/** The frames of one interface. */
export class OutgoingPool {
  /** Padding, and what goes in the place of lost memory. */
  readonly zeros: ScratchBlock = allocateScratch(ZERO_BYTES);
  readonly #largeBytes: number;
  readonly #small: Outgoing[] = [];
  readonly #large: Outgoing[] = [];
  readonly #all: Outgoing[] = [];

  /** @param largeBytes of the longest frame that is copied */
  constructor(largeBytes: number) {
    this.#largeBytes = largeBytes;
  }

  /** A frame with room for a header. */
  takeSmall(): Outgoing {
    return this.#small.pop() ?? this.#make(HEADER_BYTES_MAX, false);
  }

  /** A frame with room for one that is copied. */
  takeLarge(): Outgoing {
    return this.#large.pop() ?? this.#make(this.#largeBytes, true);
  }

  put(outgoing: Outgoing): void {
    for (const memory of outgoing.memories) if (memory !== undefined) memory.inFlight -= 1;
    outgoing.memories.length = 0;
    outgoing.count = 0;
    outgoing.piece = 0;
    outgoing.offset = 0;
    outgoing.next = undefined;
    outgoing.hasOvertaken = false;
    outgoing.completion = undefined;
    (outgoing.isLarge ? this.#large : this.#small).push(outgoing);
  }

  /** Gives all memory back; nothing is sent any more. */
  close(): void {
    for (const { block } of this.#all) block.free();
    this.zeros.free();
  }

  #make(byteLength: number, isLarge: boolean): Outgoing {
    const outgoing = new Outgoing(byteLength, isLarge);
    this.#all.push(outgoing);
    return outgoing;
  }
}
