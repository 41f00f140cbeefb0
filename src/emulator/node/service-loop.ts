/**
 * When a node server looks at its mailboxes: again and again while there is something to do and for a short while after, with turns of
 * the event loop in between; then it sleeps until a client rings. It does not know what is in the mailboxes.
 */

import { schedYield } from '../../sys/index.ts';
import type { Clock } from '../../ucs/sys/clock.ts';

/** How long the loop spins without work before it sleeps: a client that works one ioctl after the other never has to wake it. */
const IDLE_NS = 200_000;
/** How long the event loop waits for its turn: sockets, timers and the news of DMA engines. */
const TURN_NS = 100_000;
/** Looks without work between two yields of the processor, which clients may need. */
const LOOKS_PER_YIELD = 32;

/** What is looked at. */
export interface Polled {
  /** Does what there is to do; returns whether there was anything. */
  poll(): boolean;
  /** Tells those who bring work whether they have to ring. */
  setSleeping(sleeping: boolean): void;
}

/** The loop. */
export class ServiceLoop {
  readonly #clock: Clock;
  readonly #mailboxes: Polled;
  #awake = false;
  #closed = false;
  #endTurn = false;
  #activeNs = 0;
  readonly #turn: () => void = () => this.#run();

  constructor(clock: Clock, mailboxes: Polled) {
    this.#clock = clock;
    this.#mailboxes = mailboxes;
  }

  /** False while the loop waits for a ring. */
  get awake(): boolean {
    return this.#awake;
  }

  /** A client has rung, or there may be work: looks from now on. */
  wake(): void {
    this.#activeNs = this.#clock.nowNs();
    if (this.#awake || this.#closed) return;
    this.#awake = true;
    this.#mailboxes.setSleeping(false);
    setImmediate(this.#turn);
  }

  /** Lets the event loop have its turn next. */
  endTurn(): void {
    this.#endTurn = true;
  }

  close(): void {
    this.#closed = true;
    this.#awake = false;
  }

  #run(): void {
    if (this.#closed) return;
    const beginNs = this.#clock.nowNs();
    let idleLooks = 0;
    for (;;) {
      const served = this.#mailboxes.poll();
      if (this.#closed) return;
      if (!served) {
        idleLooks += 1;
        if (idleLooks % LOOKS_PER_YIELD !== 0) continue;
        schedYield();
      }
      const nowNs = this.#clock.nowNs();
      if (served) this.#activeNs = nowNs;
      else if (nowNs - this.#activeNs > IDLE_NS) {
        if (this.#sleep()) return;
        this.#activeNs = nowNs;
      }
      if (this.#endTurn || nowNs - beginNs > TURN_NS) break;
    }
    this.#endTurn = false;
    setImmediate(this.#turn);
  }

  /** Sleeps unless something came in between: who posts afterwards sees the flag. */
  #sleep(): boolean {
    this.#mailboxes.setSleeping(true);
    if (!this.#mailboxes.poll()) {
      this.#awake = false;
      return true;
    }
    this.#mailboxes.setSleeping(false);
    return false;
  }
}
