/** Sleeping on the events of transports, without blocking the event loop. */

import { SLEEP_NS_MAX } from '../../api/progress/progress-driver.ts';
import { LimitedLog } from '../../ucs/debug/limited-log.ts';
import type { Log } from '../../ucs/debug/log.ts';
import type { Clock, Timer } from '../../ucs/sys/clock.ts';
import { type Iface, IfaceFlag } from '../../uct/api/iface.ts';
import { nameOf } from '../lane/lanes.ts';

/** Pause if requests are in use but no transport has an event to wait for, as when the program has not freed requests that have ended. */
const PAUSE_NS = 1e6;
/** Interval of retrying requests that wait for resources, in case no event of a transport reports free resources. */
const PENDING_NS = 50e6;

const LISTENING: number = IfaceFlag.AM_SHORT | IfaceFlag.EVENT;

/** A transport, or another object with events to wait for. */
type Sleepable = Pick<Iface, 'wait'>;

/** The objects whose events end a sleep. */
export interface SleptOn {
  readonly ifaces: readonly Iface[];
  /** Listeners and connection attempts by socket address. */
  readonly sockets: Sleepable & { readonly outstanding: number };
  /** Whether requests wait for resources. */
  readonly hasPending: boolean;
  readonly requestsInUse: number;
}

/**
 * The sleep of one worker. When one source has woken the worker, the waits in the other transports continue. The next sleep joins them and adds no
 * handler to their promises: many sleeps during one wait of a transport allocate nothing.
 */
export class TransportSleep {
  readonly #worker: SleptOn;
  readonly #clock: Clock;
  readonly #warnings: LimitedLog;
  readonly #wakers: Set<() => void> = new Set();
  /** The pending wait that already has a handler, by interface index; the sockets have the index after the last interface. */
  readonly #joined: (Promise<void> | undefined)[] = [];
  #timer: Timer | undefined = undefined;
  #timerNs = 0;

  constructor(worker: SleptOn, clock: Clock, log: Log) {
    this.#worker = worker;
    this.#clock = clock;
    this.#warnings = new LimitedLog(log, clock);
  }

  /**
   * Calls `wake` when there may be work: an operation has ended, or a message has arrived. Does not keep the process alive.
   * @param wake stored once, however often it is passed: each sleeper always passes the same function
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
      this.#onWaitFailure(index, error);
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
      this.#onWaitFailure(index, error);
    });
  }

  /** Called if waiting on a transport fails: the sleeper retries after a pause, so that it does not spin. */
  #onWaitFailure(index: number, error: unknown): void {
    const iface = this.#worker.ifaces[index];
    const name = iface === undefined ? 'listeners and connection attempts' : nameOf(iface.attributes);
    const why = error instanceof Error ? error.message : String(error);
    this.#warnings.warn(`cannot wait for events of ${name}, polling every millisecond instead: ${why}`);
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
