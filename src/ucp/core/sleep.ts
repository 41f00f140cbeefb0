/** Sleeping on the events of transports, without blocking the event loop. */

import { SLEEP_NS_MAX } from '../../api/progress/progress-driver.ts';
import { LimitedLog } from '../../ucs/debug/limited-log.ts';
import type { Log } from '../../ucs/debug/log.ts';
import type { Clock, Timer } from '../../ucs/sys/clock.ts';
import { type Iface, IfaceFlag } from '../../uct/api/iface.ts';

/** Pause if no transport can wake the worker in spite of requests in use: the application must free them. */
const PAUSE_NS = 1e6;
/** Interval of checking requests that wait for resources, in case no event of a transport reports the resources. */
const PENDING_NS = 50e6;

const LISTENING: number = IfaceFlag.AM_SHORT | IfaceFlag.EVENT;

/** A transport, or another object that can be waited for. */
type Sleepable = Pick<Iface, 'wait'>;

/** The objects whose events end a sleep. */
export interface SleptOn {
  readonly ifaces: readonly Iface[];
  /** Listeners and attempts to connect by socket addresses. */
  readonly sockets: Sleepable & { readonly outstanding: number };
  /** Whether requests wait for resources. */
  readonly hasPending: boolean;
  readonly requestsInUse: number;
}

/**
 * The sleep of one worker. When a different event has woken the worker, the sleep continues in the transports, and the next sleep joins it: one reaction
 * for each transport, one function for each kind of sleeper, and one timer are kept.
 */
export class TransportSleep {
  readonly #worker: SleptOn;
  readonly #clock: Clock;
  readonly #warnings: LimitedLog;
  readonly #wakers: Set<() => void> = new Set();
  /** The sleep that a reaction was added to, by the index of the interface; the sockets have the index after the last one. */
  readonly #joined: (Promise<void> | undefined)[] = [];
  #timer: Timer | undefined = undefined;
  #timerNs = 0;

  constructor(worker: SleptOn, clock: Clock, log: Log) {
    this.#worker = worker;
    this.#clock = clock;
    this.#warnings = new LimitedLog(log, clock);
  }

  /**
   * Calls `wake` when there may be something to do: an operation has ended, or a message has arrived. Does not keep the process alive.
   * @param wake kept once, however often it is passed: a sleeper always passes the same function
   */
  on(wake: () => void): void {
    const { ifaces, sockets, hasPending, requestsInUse } = this.#worker;
    this.#wakers.add(wake);
    let isSleeping = false;
    for (const [index, iface] of ifaces.entries()) {
      const hears = (iface.attributes.flags & LISTENING) === LISTENING;
      if (iface.outstanding === 0 && !hears) continue;
      isSleeping = true;
      this.#join(index, iface);
    }
    if (sockets.outstanding > 0) {
      isSleeping = true;
      this.#join(ifaces.length, sockets);
    }
    if (!isSleeping && requestsInUse > 0) this.#wakeAfter(PAUSE_NS);
    else if (hasPending) this.#wakeAfter(PENDING_NS);
  }

  #join(index: number, transport: Sleepable): void {
    let sleep: Promise<void>;
    try {
      sleep = transport.wait(SLEEP_NS_MAX);
    } catch (error) {
      this.#onRefusal(error);
      return;
    }
    if (this.#joined[index] === sleep) return;
    this.#joined[index] = sleep;
    const end = (): void => {
      if (this.#joined[index] === sleep) this.#joined[index] = undefined;
      this.#wake();
    };
    sleep.then(end, (error) => {
      if (this.#joined[index] === sleep) this.#joined[index] = undefined;
      this.#onRefusal(error);
    });
  }

  /** A transport cannot be slept on now: the sleeper looks again soon, and does not spin. */
  #onRefusal(error: unknown): void {
    this.#warnings.warn(`a transport cannot be slept on: ${error instanceof Error ? error.message : String(error)}`);
    this.#wakeAfter(PAUSE_NS);
  }

  #wakeAfter(delayNs: number): void {
    if (this.#timer !== undefined && this.#timerNs <= delayNs) return;
    this.#timer?.cancel();
    this.#timerNs = delayNs;
    this.#timer = this.#clock.setTimer(delayNs, () => this.#wake());
  }

  #wake(): void {
    this.#timer?.cancel();
    this.#timer = undefined;
    const wakers = [...this.#wakers];
    this.#wakers.clear();
    for (const wake of wakers) wake();
  }
}
