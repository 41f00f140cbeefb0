/**
 * Measuring loops: synchronous, in slices, so that the event loop runs between them. Each loop continues where its last slice has ended. They use no promises
 * and produce no garbage.
 */

import type { Clock } from '../../ucs/sys/clock.ts';
import { statusError } from '../../ucs/type/error.ts';
import { Status } from '../../ucs/type/status.ts';
import type { Meter, SpinBudget } from './measure.ts';
import { SEQUENCE_MASK, type Traffic } from './side/traffic.ts';

/** Mask of the passes between two readings of the clock: a power of two minus one. */
const PASSES_MASK = 1023;

/** Parameters of a loop. */
export interface LoopOptions {
  readonly clock: Clock;
  readonly traffic: Traffic;
  readonly meter: Meter;
  readonly iterations: number;
  /** Maximum number of outstanding messages. */
  readonly window: number;
  /** False for a side that makes no progress while it waits. */
  readonly progresses: boolean;
  readonly spin: SpinBudget;
  /** Ends a slice as soon as there is nothing to do, so that its caller can sleep: see {@link Loop.isIdle}. */
  readonly sleeps: boolean;
}

/** A loop that runs in slices. */
export abstract class Loop {
  protected readonly traffic: Traffic;
  protected readonly meter: Meter;
  protected readonly iterations: number;
  protected readonly window: number;
  protected done = 0;
  /** True if the last slice ended because there was nothing to do. */
  isIdle = false;
  readonly #clock: Clock;
  readonly #progresses: boolean;
  readonly #sleeps: boolean;
  readonly #spin: SpinBudget;
  #deadlineNs = 0;
  #passes = 0;

  constructor({ clock, traffic, meter, iterations, window, progresses, spin, sleeps }: LoopOptions) {
    this.#clock = clock;
    this.#progresses = progresses;
    this.#sleeps = sleeps;
    this.#spin = spin;
    this.traffic = traffic;
    this.meter = meter;
    this.iterations = iterations;
    this.window = window;
  }

  /**
   * Runs until the loop is complete, or for `sliceNs`.
   * @returns true when the loop is complete
   * @throws UcxError for a message that failed
   */
  slice(sliceNs: number): boolean {
    this.#deadlineNs = this.#clock.nowNs() + sliceNs;
    this.isIdle = false;
    const isDone = this.run();
    if (this.traffic.error !== undefined) throw this.traffic.error;
    return isDone;
  }

  /** Continues until the loop is complete (true), or the slice is over (false, see {@link isOver}). */
  protected abstract run(): boolean;

  /** Counts one pass: true if the slice is over. */
  protected isOver(): boolean {
    this.#passes = (this.#passes + 1) & PASSES_MASK;
    if (this.#passes !== 0) return false;
    return this.traffic.error !== undefined || this.#clock.nowNs() >= this.#deadlineNs;
  }

  /** One pass of a wait; false if the slice is over. */
  protected wait(progresses = true): boolean {
    const isBusy = progresses && this.traffic.progress() > 0;
    if (this.#sleeps && !isBusy) {
      this.isIdle = true;
      return false;
    }
    this.#spin.spend();
    return !this.isOver();
  }

  /** Sends a message once the window permits it; false when the slice is over. */
  protected trySend(sequence: number): boolean {
    const { traffic, window } = this;
    while (traffic.outstanding >= window) {
      if (!this.wait()) return false;
    }
    let status = traffic.send(sequence);
    while (status === Status.NO_RESOURCE) {
      if (!this.wait()) return false;
      status = traffic.send(sequence);
    }
    this.#spin.renew();
    if (status < 0) throw statusError(status, 'send a message of the test', this.traffic.causeOf(status));
    return true;
  }

  /** Posts the receive of a message; false when the slice is over. */
  protected tryExpect(): boolean {
    let status = this.traffic.expect();
    while (status === Status.NO_RESOURCE) {
      if (!this.wait()) return false;
      status = this.traffic.expect();
    }
    if (status < 0) throw statusError(status, 'receive a message of the test', this.traffic.causeOf(status));
    return true;
  }

  /** Waits for a message; false when the slice is over. */
  protected tryReceive(sequence: number, index: number): boolean {
    const { traffic } = this;
    while (!traffic.hasArrived(sequence, index)) {
      if (!this.wait(this.#progresses)) return false;
    }
    this.#spin.renew();
    return true;
  }

  /** Waits until no operation is in flight and the other side has received everything, then stops the clock; false when the slice is over. */
  protected tryFinish(): boolean {
    const { traffic } = this;
    while (traffic.outstanding > 0 || !traffic.flush()) {
      if (!this.wait()) return false;
    }
    this.meter.stop();
    return true;
  }
}

/** Each side replies to the other; both count the same iterations. */
export class PingPongLoop extends Loop {
  readonly #isFirst: boolean;
  /** 0 during the first half of an iteration, 1 during the second. */
  #half = 0;
  #hasAsked = false;
  #hasStarted = false;

  constructor(options: LoopOptions, isFirst: boolean) {
    super(options);
    this.#isFirst = isFirst;
  }

  protected override run(): boolean {
    if (!this.#hasStarted) this.meter.start();
    this.#hasStarted = true;
    while (this.done < this.iterations) {
      const sends = (this.#half === 0) === this.#isFirst;
      if (!(sends ? this.trySend(this.done & SEQUENCE_MASK) : this.#tryAnswer())) return false;
      this.#half ^= 1;
      if (this.#half === 0) {
        this.done += 1;
        this.meter.count();
        if (this.isOver()) return false;
      }
    }
    return this.tryFinish();
  }

  #tryAnswer(): boolean {
    if (!this.#hasAsked && !this.tryExpect()) return false;
    this.#hasAsked = true;
    if (!this.tryReceive(this.done & SEQUENCE_MASK, this.done)) return false;
    this.#hasAsked = false;
    return true;
  }
}

/** Sends continuously; at the end waits until an acknowledgement, or the memory, shows that everything has arrived. */
export class SenderLoop extends Loop {
  readonly #isLoopback: boolean;
  #hasStarted = false;
  #hasAsked = false;
  #expected = 0;
  #isAwaitingEnd = false;
  #awaits = false;

  /** @param isLoopback true if this side also receives the messages */
  constructor(options: LoopOptions, isLoopback: boolean) {
    super(options);
    this.#isLoopback = isLoopback;
  }

  protected override run(): boolean {
    if (!this.#hasStarted) this.meter.start();
    this.#hasStarted = true;
    while (this.done < this.iterations) {
      if (this.#isLoopback && !this.#tryTake()) return false;
      if (!this.trySend(this.done & SEQUENCE_MASK)) return false;
      this.done += 1;
      this.#hasAsked = false;
      this.meter.count();
      if (this.isOver()) return false;
    }
    return this.#tryEnd();
  }

  /** Posts the receive of the next message to send, within the window. */
  #tryTake(): boolean {
    const { traffic, window } = this;
    if (this.#hasAsked) return true;
    while (!traffic.hasArrived(this.#expected & SEQUENCE_MASK, this.#expected - window)) {
      if (!this.wait()) return false;
    }
    if (!this.tryExpect()) return false;
    this.#expected += 1;
    this.#hasAsked = true;
    return true;
  }

  #tryEnd(): boolean {
    if (!this.#isAwaitingEnd) {
      this.#isAwaitingEnd = true;
      this.#awaits = !this.#isLoopback && this.traffic.expectAcknowledgement();
    }
    const last = this.iterations - 1;
    if (this.#isLoopback && !this.tryReceive(last & SEQUENCE_MASK, last)) return false;
    if (this.#awaits && !this.tryReceive(0, 0)) return false;
    return this.tryFinish();
  }
}

/** Receives continuously, and acknowledges at the end. */
export class ReceiverLoop extends Loop {
  #asked = 0;
  #hasAcknowledged = false;

  protected override run(): boolean {
    const { traffic, iterations, window } = this;
    if (this.#asked === 0) this.meter.start();
    while (this.#asked < iterations) {
      const index = this.#asked - window;
      if (index >= 0 && !this.tryReceive(index & SEQUENCE_MASK, index)) return false;
      if (!this.tryExpect()) return false;
      this.#asked += 1;
      this.meter.count();
      if (this.isOver()) return false;
    }
    if (!this.tryReceive((iterations - 1) & SEQUENCE_MASK, iterations - 1)) return false;
    while (!this.#hasAcknowledged) {
      const status = traffic.acknowledge();
      if (status !== Status.OK && status !== Status.INPROGRESS && status !== Status.NO_RESOURCE) {
        throw statusError(status, 'acknowledge the messages of the test', this.traffic.causeOf(status));
      }
      this.#hasAcknowledged = status !== Status.NO_RESOURCE;
      if (this.#hasAcknowledged) break;
      if (!this.wait()) return false;
    }
    return this.tryFinish();
  }
}

/** Makes progress for a peer that runs one-sided operations, until it reports that it has finished. */
export class ResponderLoop extends Loop {
  readonly #hasFinished: () => boolean;

  constructor(options: LoopOptions, hasFinished: () => boolean) {
    super(options);
    this.#hasFinished = hasFinished;
  }

  protected override run(): boolean {
    if (this.#hasFinished()) return true;
    while (this.wait());
    return false;
  }
}
