/**
 * The signals of one queue: two sync objects in turn, their references and the value of the next signal. It writes no registers and
 * submits nothing.
 *
 * Source: struct hl_hw_sob, hl_cs_signal_sob_wraparound_handler and sync_stream_queue_init, drivers/accel/habanalabs/common, Linux 6.12.
 */

import type { QueueEntry } from '../../../uapi/index.ts';

/** Values of a sync object are below this number (HL_MAX_SOB_VAL). */
export const SOB_VALUE_END = 0x8000;

/** One sync object. */
export class SignalObject {
  readonly id: number;
  /** Incomplete signals and waits that use it, and reservations that are not released. */
  references = 0;

  constructor(id: number) {
    this.id = id;
  }
}

/** A signal to wait for: a value of a sync object. */
export interface Signal {
  readonly object: SignalObject;
  readonly value: number;
}

/** The signals of one queue. */
export class SignalQueue {
  readonly queue: QueueEntry;
  /** The monitor of the queue's waits. */
  readonly monitor: number;
  readonly #objects: readonly [SignalObject, SignalObject];
  #current: 0 | 1 = 0;
  #next = 1;

  constructor(queue: QueueEntry, firstObject: number, monitor: number) {
    this.queue = queue;
    this.monitor = monitor;
    this.#objects = [new SignalObject(firstObject), new SignalObject(firstObject + 1)];
  }

  /** The sync object of the next signal. */
  get current(): SignalObject {
    return this.#objects[this.#current];
  }

  /** The sync object that is used when the values of the current one are exhausted. */
  get other(): SignalObject {
    return this.#objects[this.#current === 0 ? 1 : 0];
  }

  /** Value of the sync object after the next signal. */
  get next(): number {
    return this.#next;
  }

  /** Whether `count` more signals need the other sync object. */
  wraps(count: number): boolean {
    return this.#next + count >= SOB_VALUE_END;
  }

  /** Whether the other sync object has no references: the driver switches only then. */
  get canSwitch(): boolean {
    return this.other.references === 0;
  }

  /** Takes the next signal, with a reference. After the last value of a sync object, the next signal uses the other one. */
  takeSignal(): Signal {
    const signal = { object: this.current, value: this.#next };
    signal.object.references += 1;
    if (this.wraps(1)) this.#switch();
    else this.#next += 1;
    return signal;
  }

  /** Takes `count` consecutive signals, with one reference, from the other sync object if this one has too few; returns the first. */
  takeSignals(count: number): Signal {
    if (this.wraps(count)) this.#switch();
    const first = { object: this.current, value: this.#next };
    first.object.references += 1;
    this.#next += count;
    return first;
  }

  /** Takes back signals of {@link takeSignals} if they are the last ones of the queue; returns whether they were. */
  giveBack({ object, value }: Signal, count: number): boolean {
    if (object !== this.current || value + count !== this.#next) return false;
    this.#next = value;
    object.references -= 1;
    return true;
  }

  #switch(): void {
    this.#current = this.#current === 0 ? 1 : 0;
    this.#next = 1;
  }
}
