/**
 * Destination of the body of a frame that is received directly into memory: pieces in order, or none. Answers to the gets of a peer: frames with the
 * bytes of memory that it may read. The link queues them.
 */

import { copyBytes } from '../../../ucs/memory/bytes.ts';
import { Status } from '../../../ucs/type/status.ts';
import type { Completion } from '../../api/iface.ts';
import type { HostMemory } from '../../base/host/memory.ts';
import { memoryOfGet, type TcpKeyTable } from '../key.ts';
import { FrameType, getLengthOf, HEADER_BYTES, offsetOf, writeSignal } from '../layout.ts';
import type { TcpBuffers } from './buffers.ts';
import type { ShortTarget, TcpIovEntry } from './operations.ts';
import type { Outgoing } from './queue.ts';

/** A body that is being received. One for each connection that receives one. */
export class Payload {
  /** Bytes that have not been received. */
  left = 0;
  /** The bytes are discarded: the key was invalid, or the memory has been released since. */
  isLost = false;
  /** Entries from `#count` on are undefined. Never shortened: it would be allocated again for the next body. */
  readonly #memories: (HostMemory | ShortTarget | undefined)[] = [];
  readonly #offsets: number[] = [];
  readonly #lengths: number[] = [];
  #count = 0;
  #piece = 0;

  /** Begins a body. */
  begin(byteLength: number, isLost: boolean): void {
    this.left = byteLength;
    this.isLost = isLost;
    this.#count = 0;
    this.#piece = 0;
  }

  /** Adds a piece of memory. */
  add(memory: HostMemory | ShortTarget, offset: number, byteLength: number): void {
    if (byteLength === 0) return;
    this.#memories[this.#count] = memory;
    this.#offsets[this.#count] = offset;
    this.#lengths[this.#count] = byteLength;
    this.#count += 1;
  }

  /** Adds the part `[from, from + byteLength)` of a list. */
  addIov(iov: readonly TcpIovEntry[], from: number, byteLength: number): void {
    let skip = from;
    let left = byteLength;
    for (let i = 0; i < iov.length && left > 0; i++) {
      const { memory, offset, byteLength: entryBytes } = iov[i]!;
      const bytes = Math.min(entryBytes - skip, left);
      if (bytes <= 0) skip -= entryBytes;
      else {
        this.add(memory, offset + skip, bytes);
        skip = 0;
        left -= bytes;
      }
    }
  }

  /** Address of the next byte; 0 if it cannot be received directly into memory. */
  get address(): number {
    if (!this.#isKept()) return 0;
    const { location } = this.#memories[this.#piece]!;
    return location === 0 ? 0 : location + this.#offsets[this.#piece]!;
  }

  /** Contiguous bytes from {@link address} on. */
  get contiguous(): number {
    return this.#lengths[this.#piece]!;
  }

  /** Advances by the bytes that were written at {@link address}. The memory of a whole body is not kept: it belongs to the program. */
  advance(byteLength: number): void {
    this.left -= byteLength;
    if (this.left === 0) {
      for (let i = 0; i < this.#count; i++) this.#memories[i] = undefined;
    } else if (!this.isLost) {
      this.#offsets[this.#piece]! += byteLength;
      this.#lengths[this.#piece]! -= byteLength;
      if (this.#lengths[this.#piece] === 0) this.#piece += 1;
    }
  }

  /** Copies bytes that were received elsewhere, at most {@link left}. */
  take(source: Uint8Array, from: number, byteLength: number): void {
    let at = from;
    let rest = byteLength;
    while (rest > 0) {
      const isKept = this.#isKept();
      const bytes = isKept ? Math.min(rest, this.contiguous) : rest;
      if (isKept) copyBytes(this.#memories[this.#piece]!.bytes, this.#offsets[this.#piece]!, source, at, bytes);
      this.advance(bytes);
      at += bytes;
      rest -= bytes;
    }
  }

  /** Whether the next byte has a destination. Once one has none, no later one has. */
  #isKept(): boolean {
    if (this.isLost) return false;
    const memory = this.#memories[this.#piece]!;
    // Freed or detached while the body was being received.
    this.isLost = !memory.live || this.#offsets[this.#piece]! + this.#lengths[this.#piece]! > memory.byteLength;
    return !this.isLost;
  }
}

/** The answers of one connection. */
export class GetAnswers {
  /** Answers that are not sent. */
  queued = 0;
  readonly #buffers: TcpBuffers;
  readonly #keys: TcpKeyTable;
  /** Counts answers that were sent. */
  readonly #sent: Completion = {
    count: 1,
    failure: Status.OK,
    onComplete: () => {
      this.#sent.count = 1;
      this.queued -= 1;
    },
  };

  constructor(buffers: TcpBuffers, keys: TcpKeyTable) {
    this.#buffers = buffers;
    this.#keys = keys;
  }

  /** The answer to a GET whose length is checked: its bytes, or a refusal. */
  answerTo(words: Int32Array, at: number): Outgoing {
    const { pool } = this.#buffers;
    const byteLength = getLengthOf(words, at);
    const memory = memoryOfGet(this.#keys, words, at);
    const isGood = memory !== undefined;
    const answer = pool.takeSmall();
    writeSignal(answer.words, 0, FrameType.GET_DATA, isGood ? byteLength : 0);
    answer.addHeader(HEADER_BYTES);
    if (isGood && byteLength > 0) answer.addMemory(memory, offsetOf(words, at), byteLength);
    if (isGood) answer.addPadding(byteLength, pool.zeros);
    answer.addEnd(isGood ? Status.OK : Status.INVALID_ADDR);
    answer.completion = this.#sent;
    this.queued += 1;
    return answer;
  }
}
