/**
 * The receiver's side of a directory: attaches the rings of senders that announce themselves, delivers their messages, and detaches senders that have closed
 * or died. Also the receiver's state of one sender: its slot in the directory, its ring, and the pipe that detects its exit.
 */

import { existsSync } from 'node:fs';
import { isProcessAlive } from '../../../sys/index.ts';
import type { LimitedLog } from '../../../ucs/debug/limited-log.ts';
import type { Clock } from '../../../ucs/sys/clock.ts';
import type { AmHandler } from '../../api/iface.ts';
import type { TransferCounters } from '../../base/counters.ts';
import {
  isLackOfResources,
  Segment,
  type SegmentOptions,
  segmentError,
  unlinkIfThere,
} from '../../base/key/segment.ts';
import { SEGMENT_NAME_BYTES, segmentPath } from '../../base/key/segment-name.ts';
import {
  Attention,
  DIRECTORY_BYTES,
  DIRECTORY_VERSION,
  DirectoryWord,
  RING_HEADER_BYTES,
  readRingGeometry,
  SLOTS,
  SlotState,
  SlotWord,
  senderOf,
  slotAt,
  takeDoorbells,
  wakeFile,
} from './layout.ts';
import { WakeLine } from './peer.ts';
import { RingReader } from './ring.ts';

/** Number of senders that one sleep checks for their end. */
const CHECKED_PER_SLEEP = 8;
/** Time between attempts to attach a sender for which this process lacks descriptors or memory. */
const RETRY_NS = 5e6;
/** Number of idle rings that are still polled, so that their senders need not ring the doorbell. */
const IDLE_POLLED_MAX = 8;
/** Number of {@link Directory.deliver} calls between two reviews of a sender; a power of two. */
const CALLS_PER_REVIEW = 16;

export class Directory {
  readonly segment: Segment;
  readonly #words: Int32Array;
  readonly #senders: Sender[] = [];
  /** Senders whose rings are polled; the others ring a doorbell. */
  readonly #polled: Sender[] = [];
  readonly #bySlot: (Sender | undefined)[] = new Array<Sender | undefined>(SLOTS).fill(undefined);
  #changesSeen = 0;
  #nextChecked = 0;
  #nextReviewed = 0;
  #calls = 0;
  #delivering = false;
  /** Time of the next attempt to attach waiting senders; infinity if there are none. */
  #retryAtNs = Number.POSITIVE_INFINITY;

  readonly #log: LimitedLog;
  readonly #clock: Clock;
  readonly #counters: TransferCounters;
  readonly #folder: string;

  /** Throws SyscallError ENOSPC if /dev/shm is full. */
  constructor(log: LimitedLog, clock: Clock, counters: TransferCounters, options: Required<SegmentOptions>) {
    this.#folder = options.folder;
    this.#log = log;
    this.#clock = clock;
    this.#counters = counters;
    this.segment = Segment.create(DIRECTORY_BYTES, options);
    this.#words = this.segment.words;
    this.#words[DirectoryWord.VERSION] = DIRECTORY_VERSION;
  }

  /**
   * Attaches new senders and delivers messages. A call from inside a handler has no effect.
   * @returns number of messages
   */
  deliver(handler: AmHandler | undefined): number {
    if (this.#delivering) return 0;
    if (this.#words[DirectoryWord.CHANGES] !== this.#changesSeen || this.retryNs === 0) this.#takeChanges();
    if (this.#words[DirectoryWord.DOORBELL_SUMMARY] !== 0) takeDoorbells(this.#words, this.#onDoorbell);
    this.#calls = (this.#calls + 1) & (CALLS_PER_REVIEW - 1);
    if (this.#calls === 0 && this.#senders.length > IDLE_POLLED_MAX) this.#reviewNext();
    if (handler === undefined) return 0;
    this.#delivering = true;
    try {
      return this.#poll(handler);
    } finally {
      this.#delivering = false;
    }
  }

  /** Whether {@link deliver} may have messages or senders to process. */
  get hasNews(): boolean {
    if (Atomics.load(this.#words, DirectoryWord.CHANGES) !== this.#changesSeen || this.retryNs === 0) return true;
    if (Atomics.load(this.#words, DirectoryWord.DOORBELL_SUMMARY) !== 0) return true;
    return this.#polled.some(({ ring }) => ring.hasMessage);
  }

  /** Time until the next attempt to attach waiting senders; infinity if there are none. */
  get retryNs(): number {
    if (this.#retryAtNs === Number.POSITIVE_INFINITY) return Number.POSITIVE_INFINITY;
    return Math.max(0, this.#retryAtNs - this.#clock.nowNs());
  }

  /** Sets whether senders must wake this end. */
  setSleeping(sleeping: boolean): void {
    Atomics.store(this.#words, DirectoryWord.ATTENTION, sleeping ? Attention.SLEEPING : Attention.AWAKE);
  }

  /** Checks the next few senders, in turn: whether they have died, or have a message in a ring that is not polled. */
  checkSome(): void {
    for (let i = Math.min(CHECKED_PER_SLEEP, this.#senders.length); i > 0; i--) {
      this.#nextChecked = (this.#nextChecked + 1) % this.#senders.length;
      const sender = this.#senders[this.#nextChecked]!;
      if (!sender.alive) this.#beginClosing(sender);
      else if (sender.ring.hasMessage) this.#startPolling(sender);
    }
  }

  /** Notifies all senders that their rings are no longer read, and removes their files. */
  close(): void {
    Atomics.store(this.#words, DirectoryWord.ATTENTION, Attention.CLOSED);
    for (const sender of this.#senders) {
      // A sender that sleeps until the ring has free space must detect the end.
      sender.wake();
      sender.close();
    }
    for (let slot = 0; slot < SLOTS; slot++) {
      const isNew = this.#bySlot[slot] === undefined && this.#stateOf(slot) !== SlotState.EMPTY;
      if (isNew) unlinkIfThere(segmentPath(this.#nameIn(slot), this.#folder));
    }
    this.#senders.length = 0;
    this.#polled.length = 0;
    this.#log.reportOmitted();
    this.segment.close();
  }

  #poll(handler: AmHandler): number {
    const polled = this.#polled;
    let total = 0;
    for (let i = 0; i < polled.length; i++) {
      const sender = polled[i]!;
      let count = sender.ring.poll(handler);
      if (count < 0) {
        count = -1 - count;
        sender.wake();
      }
      total += count;
      if (sender.ring.isRejected || (count === 0 && sender.ring.closing)) {
        this.#release(sender);
        i -= 1;
      } else if (count > 0) sender.isActive = true;
    }
    return total;
  }

  readonly #onDoorbell = (slot: number): void => {
    // A ring that is not attached yet is polled from its attachment on.
    const sender = this.#bySlot[slot];
    if (sender !== undefined) this.#startPolling(sender);
  };

  /** Stops polling one sender that was idle for a round of reviews, and finds a message whose doorbell was lost. */
  #reviewNext(): void {
    this.#nextReviewed = (this.#nextReviewed + 1) % this.#senders.length;
    const sender = this.#senders[this.#nextReviewed]!;
    if (!sender.isPolled) {
      if (sender.ring.hasMessage) this.#startPolling(sender);
    } else if (sender.isActive) sender.isActive = false;
    else if (this.#polled.length > IDLE_POLLED_MAX && !sender.ring.closing) this.#stopPolling(sender);
  }

  #startPolling(sender: Sender): void {
    if (sender.isPolled) return;
    sender.isPolled = true;
    sender.isActive = true;
    this.#polled.push(sender);
    this.#setPolled(sender, 1);
  }

  #stopPolling(sender: Sender): void {
    this.#setPolled(sender, 0);
    // Checked after POLLED is cleared: a sender publishes a message before it reads whether it must ring.
    if (sender.ring.hasMessage) this.#setPolled(sender, 1);
    else this.#dropPolled(sender);
  }

  #dropPolled(sender: Sender): void {
    sender.isPolled = false;
    this.#polled.splice(this.#polled.indexOf(sender), 1);
  }

  #setPolled({ slot }: Sender, polled: 0 | 1): void {
    Atomics.store(this.#words, slotAt(slot) + SlotWord.POLLED, polled);
  }

  /** Delivers the remaining messages of a sender, then releases it. */
  #beginClosing(sender: Sender): void {
    sender.ring.closing = true;
    this.#startPolling(sender);
  }

  #takeChanges(): void {
    this.#changesSeen = Atomics.load(this.#words, DirectoryWord.CHANGES);
    this.#retryAtNs = Number.POSITIVE_INFINITY;
    const isScarce = Atomics.exchange(this.#words, DirectoryWord.SCARCE, 0) !== 0;
    for (let slot = 0; slot < SLOTS; slot++) {
      const state = this.#stateOf(slot);
      const known = this.#bySlot[slot];
      if (known !== undefined) {
        if (state === SlotState.CLOSED || (isScarce && !known.alive)) this.#beginClosing(known);
      } else if (state === SlotState.READY || state === SlotState.CLOSED) this.#takeIn(slot, state);
      else if (isScarce) this.#freeAbandoned(slot);
    }
  }

  #takeIn(slot: number, state: number): void {
    let sender: Sender | undefined;
    try {
      sender = Sender.attach(slot, this.#nameIn(slot), this.#counters, this.#folder);
    } catch (error) {
      const reason = error instanceof Error ? error.message : String(error);
      if (isLackOfResources(error)) {
        this.#retryAtNs = this.#clock.nowNs() + RETRY_NS;
        this.#log.warn(`messages from process ${this.#ownerOf(slot)} are delayed until resources are free: ${reason}`);
      } else this.#refuse(slot, reason);
      return;
    }
    if (sender === undefined) {
      this.#free(slot);
      return;
    }
    sender.ring.closing = state === SlotState.CLOSED;
    this.#senders.push(sender);
    this.#bySlot[slot] = sender;
    this.#startPolling(sender);
  }

  /** Frees the slot of a process that died between claiming it and announcing its ring, or after its ring was rejected. */
  #freeAbandoned(slot: number): void {
    const owner = this.#ownerOf(slot);
    if (owner !== 0 && !isProcessAlive(owner)) this.#free(slot);
  }

  /** The id of the process that has claimed a slot; 0 for none. */
  #ownerOf(slot: number): number {
    return this.#words[slotAt(slot) + SlotWord.OWNER]!;
  }

  #release(sender: Sender): void {
    this.#senders.splice(this.#senders.indexOf(sender), 1);
    this.#dropPolled(sender);
    this.#bySlot[sender.slot] = undefined;
    sender.close();
    if (sender.ring.isRejected) this.#turnAway(sender.slot);
    else if (sender.ring.corrupt) this.#refuse(sender.slot, 'its ring contains an invalid message');
    else this.#free(sender.slot);
  }

  /** Notifies the sender that its ring is not read; the slot becomes free when the sender has closed. */
  #turnAway(slot: number): void {
    const at = slotAt(slot) + SlotWord.STATE;
    // A sender that has already closed is not notified.
    const state = Atomics.compareExchange(this.#words, at, SlotState.READY, SlotState.REFUSED);
    if (state !== SlotState.READY) this.#free(slot);
  }

  #refuse(slot: number, reason: string): void {
    const owner = this.#ownerOf(slot);
    this.#turnAway(slot);
    this.#log.warn(`messages from process ${owner} are not read any more: ${reason}`);
  }

  #free(slot: number): void {
    Atomics.store(this.#words, slotAt(slot) + SlotWord.POLLED, 0);
    Atomics.store(this.#words, slotAt(slot) + SlotWord.STATE, SlotState.EMPTY);
    Atomics.store(this.#words, slotAt(slot) + SlotWord.OWNER, 0);
  }

  #stateOf(slot: number): number {
    return Atomics.load(this.#words, slotAt(slot) + SlotWord.STATE);
  }

  #nameIn(slot: number): Uint8Array {
    const at = (slotAt(slot) + SlotWord.NAME) * 4;
    return this.segment.bytes.slice(at, at + SEGMENT_NAME_BYTES);
  }
}

/** The receiver's state of one sender. */
class Sender {
  readonly slot: number;
  readonly ring: RingReader;
  /** Whether every call of progress polls the ring. */
  isPolled = false;
  /** Whether a message was delivered since the receiver last decided what to poll. */
  isActive = false;
  readonly #line: WakeLine | undefined;

  private constructor(slot: number, ring: RingReader, line: WakeLine | undefined) {
    this.slot = slot;
    this.ring = ring;
    this.#line = line;
  }

  /**
   * Attaches the ring with this name and removes its file, unless the attempt can be repeated.
   * @returns undefined if the ring no longer exists
   * @throws UcxError ERR_SHM_SEGMENT if the ring cannot be attached or is invalid; SyscallError EACCES, and those of {@link isLackOfResources}
   */
  static attach(slot: number, packedName: Uint8Array, counters: TransferCounters, folder: string): Sender | undefined {
    const path = segmentPath(packedName, folder);
    // The sender has died, and its files were removed.
    if (!existsSync(path)) return undefined;
    const segment = Segment.attach(packedName, RING_HEADER_BYTES, folder);
    try {
      const geometry = readRingGeometry(segment.words, segment.byteLength);
      if (geometry === undefined)
        throw segmentError(`${path} is not a ring of this version of posix: use the same gaudi-ucx in both processes`);
      const { directoryName, wakeFd } = senderOf(segment.words, segment.bytes);
      const line = WakeLine.open(wakeFile(directoryName, folder, wakeFd));
      unlinkIfThere(path);
      return new Sender(slot, new RingReader(segment, geometry, counters), line);
    } catch (error) {
      segment.close();
      if (!isLackOfResources(error)) unlinkIfThere(path);
      throw error;
    }
  }

  /** False once its interface has closed, or its process has ended. */
  get alive(): boolean {
    return this.#line?.alive === true;
  }

  wake(): void {
    this.#line?.signal();
  }

  close(): void {
    this.#line?.close();
    this.ring.segment.close();
  }
}
