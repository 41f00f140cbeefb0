/** Links that wait for a connection that the peer has announced, with their time limits. They do not connect by themselves: the interface does, when it is told to. */

import type { Clock } from '../../../ucs/sys/clock.ts';
import { Status } from '../../../ucs/type/status.ts';
import type { TcpLink } from '../link/link.ts';
import { extended } from './deadline.ts';

/** Fraction (1/n) of CONNECT_TIMEOUT to wait for the connection of the peer before this end connects again. */
const ACCEPT_WAITS = 10;

/** How long a link waits. */
interface AcceptWait {
  deadlineNs: number;
  /** Time at which this end connects again. */
  nextNs: number;
}

/** The links of one interface. */
export class AwaitingAccept {
  readonly #clock: Clock;
  readonly #timeoutNs: number;
  readonly #reconnect: (link: TcpLink) => void;
  readonly #waits: Map<TcpLink, AcceptWait> = new Map();

  /**
   * @param timeoutNs CONNECT_TIMEOUT
   * @param reconnect connects again: the attempt of the peer may have failed, and the peer cannot report that without a connection. It accepts another one.
   */
  constructor(clock: Clock, timeoutNs: number, reconnect: (link: TcpLink) => void) {
    this.#clock = clock;
    this.#timeoutNs = timeoutNs;
    this.#reconnect = reconnect;
  }

  get size(): number {
    return this.#waits.size;
  }

  /** The peer has announced its connection, perhaps again. */
  add(link: TcpLink): void {
    const nowNs = this.#clock.nowNs();
    const nextNs = nowNs + this.#timeoutNs / ACCEPT_WAITS;
    const known = this.#waits.get(link);
    if (known !== undefined) known.nextNs = nextNs;
    else this.#waits.set(link, { deadlineNs: nowNs + this.#timeoutNs, nextNs });
  }

  /** The link has its connection, or has failed. */
  delete(link: TcpLink): void {
    this.#waits.delete(link);
  }

  /**
   * Fails the links whose time is over, and reconnects others; returns the time in nanoseconds until the next limit.
   * @param pauseNs see {@link extended}
   */
  expire(pauseNs: number): number {
    let restNs = Number.POSITIVE_INFINITY;
    for (const [link, wait] of this.#waits) {
      const nowNs = this.#clock.nowNs();
      wait.deadlineNs = extended(wait.deadlineNs, nowNs, pauseNs, this.#timeoutNs);
      if (nowNs >= wait.deadlineNs) link.fail(Status.ENDPOINT_TIMEOUT, 'it does not connect');
      else if (nowNs >= wait.nextNs) {
        wait.nextNs = nowNs + this.#timeoutNs / ACCEPT_WAITS;
        this.#reconnect(link);
      }
      restNs = Math.min(restNs, Math.max(0, wait.nextNs - this.#clock.nowNs()));
    }
    return restNs;
  }
}
