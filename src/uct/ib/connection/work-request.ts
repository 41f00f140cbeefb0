/**
 * The send queue of a queue pair: work requests are written to memory in order, posted at once or held back, and tracked until they have ended. Also the
 * result of atomic operations that the device executes as compare and swap.
 */

import { allocateScratch, type ScratchBlock } from '../../../sys/index.ts';
import { highOf } from '../../../ucs/type/int64.ts';
import { SendFlag, SendWr, Sge } from '../../../verbs/abi.ts';
import type { QueuePair } from '../../../verbs/port.ts';
import { setSgList, writeSendWr, writeSge } from '../../../verbs/work-request.ts';
import { type AtomicCall, AtomicOperation, type Completion, type IovEntry } from '../../api/iface.ts';
import type { IbKey } from '../base/key.ts';
import type { IbMemory } from '../base/memory.ts';
import { SGE_MAX } from '../base/queues.ts';

const LIST_AT: number = SendWr.WORDS;
const INLINE_AT: number = LIST_AT + SGE_MAX * Sge.WORDS;

/** A posted work request. Objects are reused. */
export class TxEntry {
  isSignaled = false;
  /** Slot of the copied bytes; -1 for none. */
  slot = -1;
  completion: Completion | undefined = undefined;
  /** Local memory in use, copied from the caller's list. */
  readonly memories: IbMemory[] = [];
  key: IbKey | undefined = undefined;
  /** Destination of the bytes of a short get. */
  target: Uint8Array | undefined = undefined;
  targetOffset = 0;
  targetBytes = 0;
  /** An atomic operation, and its remote offset. */
  call: AtomicCall | undefined = undefined;
  remoteOffset = 0;
  /** The value of the word that this compare and swap expects. */
  assumed = 0n;
  /** Flushes that end with this work request. */
  flushes: Completion[] | undefined = undefined;

  /** Marks local memory as in use, and remote memory if it is of this memory domain. */
  hold(iov: readonly IovEntry[], key: IbKey | undefined): void {
    this.key = key;
    // Remote memory of this memory domain must not be deregistered during the operation.
    if (key?.memory !== undefined) key.memory.inFlight += 1;
    for (let i = 0; i < iov.length; i++) {
      const memory = iov[i]!.memory as IbMemory;
      memory.inFlight += 1;
      this.memories.push(memory);
    }
  }

  /** Ends the use of local memory. Returns false if memory was detached meanwhile. */
  release(): boolean {
    const { memories, key } = this;
    const remote = key?.memory;
    let isAttached = remote?.isDetached !== true;
    remote?.unuse();
    for (let i = 0; i < memories.length; i++) {
      const memory = memories[i]!;
      if (memory.isDetached) isAttached = false;
      memory.unuse();
    }
    memories.length = 0;
    this.key = undefined;
    return isAttached;
  }

  clear(): void {
    this.isSignaled = false;
    this.slot = -1;
    this.completion = undefined;
    this.target = undefined;
    this.call = undefined;
    this.flushes = undefined;
  }
}

export class SendQueue {
  readonly #qp: QueuePair;
  readonly #length: number;
  /** Created when they are first needed. */
  readonly #entries: (TxEntry | undefined)[];
  readonly #block: ScratchBlock;
  /** The memory of the work requests, in which their fields and inline bytes are written. */
  readonly words: Uint32Array;
  readonly bytes: Uint8Array;
  readonly #slotWords: number;
  #head = 0;
  #tail = 0;
  /** First word of the requests that are held back, and of the last of them; -1 if there are none. */
  #corkedFirst = -1;
  #corkedLast = -1;
  #isCorked = false;

  /** @param length maximum number of work requests that have not ended */
  constructor(qp: QueuePair, length: number, inlineBytes: number) {
    this.#qp = qp;
    this.#length = length;
    this.#slotWords = INLINE_AT + inlineBytes / 4;
    this.#block = allocateScratch(length * this.#slotWords * 4);
    this.words = this.#block.words;
    this.bytes = this.#block.u8;
    this.#entries = new Array<TxEntry | undefined>(length).fill(undefined);
  }

  /** Whether a posted work request has not ended. */
  get isBusy(): boolean {
    return this.#tail !== this.#head;
  }

  /** Number of work requests that can be written. */
  get free(): number {
    return this.#length - (this.#tail - this.#head);
  }

  /** The entry of the work request that {@link begin} has started. */
  get entry(): TxEntry {
    const index = this.#tail % this.#length;
    this.#entries[index] ??= new TxEntry();
    return this.#entries[index];
  }

  /** The entry of the request that was posted last. Requires {@link isBusy}. */
  get last(): TxEntry {
    return this.#entries[(this.#tail - 1) % this.#length]!;
  }

  /** Starts a work request; returns its first word. Requires {@link free}. */
  begin(opcode: number, flags: number): number {
    const at = (this.#tail % this.#length) * this.#slotWords;
    writeSendWr(this.words, at, this.#tail, opcode, flags);
    return at;
  }

  /** Sets element `index` of the gather list of the work request that starts at word `at`. */
  setSge(at: number, index: number, address: number, byteLength: number, lkey: number): void {
    writeSge(this.words, at + LIST_AT + index * Sge.WORDS, address, byteLength, lkey);
  }

  /** Sets the length of the gather list. */
  setList(at: number, count: number): void {
    setSgList(this.words, at, this.#block.address + (at + LIST_AT) * 4, count);
  }

  /** Makes the work request inline, with `byteLength` bytes; returns their offset in {@link bytes}. */
  inline(at: number, byteLength: number): number {
    const offset = (at + INLINE_AT) * 4;
    this.words[at + SendWr.SEND_FLAGS]! |= SendFlag.INLINE;
    this.setSge(at, 0, this.#block.address + offset, byteLength, 0);
    this.setList(at, byteLength === 0 ? 0 : 1);
    return offset;
  }

  /** Posts the work request that starts at word `at`, or holds it back. False if the device has rejected it. */
  post(at: number): boolean {
    this.#tail += 1;
    if (!this.#isCorked) return this.#postChain(at);
    const address = this.#block.address + at * 4;
    if (this.#corkedFirst < 0) this.#corkedFirst = at;
    else {
      this.words[this.#corkedLast + SendWr.NEXT] = address;
      this.words[this.#corkedLast + SendWr.NEXT + 1] = highOf(address);
    }
    this.#corkedLast = at;
    return true;
  }

  /** Holds back work requests, to post them together. */
  cork(): void {
    this.#isCorked = true;
  }

  /** Posts the held back work requests. False if the device has rejected them. */
  uncork(): boolean {
    this.#isCorked = false;
    const first = this.#corkedFirst;
    this.#corkedFirst = -1;
    return first < 0 || this.#postChain(first);
  }

  /** Takes the oldest work request up to a position, which has ended; undefined if there is none. */
  take(position: number): TxEntry | undefined {
    if (this.#head > position || this.#head === this.#tail) return undefined;
    const entry = this.#entries[this.#head % this.#length]!;
    this.#head += 1;
    return entry;
  }

  /** Whether the request at this position was taken last. */
  hasTaken(position: number): boolean {
    return this.#head === position + 1;
  }

  /** Frees the memory. Requires that the queue pair is destroyed and all work requests are taken. */
  close(): void {
    this.#block.free();
  }

  #postChain(at: number): boolean {
    return this.#qp.postSend(this.#block, at * 4) === 0;
  }
}

/** The word after the operation, if it was `before`. */
export function newWord({ operation, value64 }: AtomicCall, before: bigint): bigint {
  switch (operation) {
    case AtomicOperation.AND:
      return before & value64;
    case AtomicOperation.OR:
      return before | value64;
    case AtomicOperation.XOR:
      return before ^ value64;
    default:
      return value64;
  }
}

/** Whether the device has the operation itself, so that one attempt is sufficient. */
export function isNative(operation: AtomicOperation): boolean {
  return operation === AtomicOperation.ADD || operation === AtomicOperation.CSWAP;
}
