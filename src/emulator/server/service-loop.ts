/**
 * Polling loop of a node server: continuous while there is work and for a short time after, with iterations of the event loop in between; then it sleeps
 * until a client rings the doorbell.
 */

import { schedYield } from '../../sys/index.ts';
import type { Clock } from '../../ucs/sys/clock.ts';
import { inNextTurn } from '../../ucs/sys/next-turn.ts';

/** Time of polling without work before the loop sleeps: a client that runs one ioctl after another never has to wake it. */
const IDLE_NS = 200_000;
/** Limit of polling between two iterations of the event loop, which handles sockets, timers and events of DMA engines. */
const POLL_NS = 100_000;
/** Polls without work between two yields of the processor, which clients may need. */
const LOOKS_PER_YIELD = 32;

export class ServiceLoop {
  readonly #clock: Clock;
  readonly #serve: () => boolean;
  readonly #setSleeping: (sleeping: boolean) => void;
  #awake = false;
  #closed = false;
  #isYielding = false;
  #activeNs = 0;
  readonly #poll: () => void = () => this.#run();

  /**
   * @param serve does the pending work; returns whether there was any
   * @param setSleeping sets whether clients must ring the doorbell
   */
  constructor(clock: Clock, serve: () => boolean, setSleeping: (sleeping: boolean) => void) {
    this.#clock = clock;
    this.#serve = serve;
    this.#setSleeping = setSleeping;
  }

  /** False while the loop sleeps. */
  get awake(): boolean {
    return this.#awake;
  }

  /** Wakes the loop after a doorbell, or if there may be work. */
  wake(): void {
    this.#activeNs = this.#clock.nowNs();
    if (this.#awake || this.#closed) return;
    this.#awake = true;
    this.#setSleeping(false);
    inNextTurn(this.#poll);
  }

  /** Runs the event loop before the next poll. */
  yieldToEventLoop(): void {
    this.#isYielding = true;
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
      const served = this.#serve();
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
      if (this.#isYielding || nowNs - beginNs > POLL_NS) break;
    }
    this.#isYielding = false;
    inNextTurn(this.#poll);
  }

  /** Sleeps, unless work arrived before the flag was set: clients that post later see the flag. */
  #sleep(): boolean {
    this.#setSleeping(true);
    if (!this.#serve()) {
      this.#awake = false;
      return true;
    }
    this.#setSleeping(false);
    return false;
  }
}
