/**
 * The event set and deadlines of one connection manager: calls the handler of each ready descriptor or expired deadline, and sleeps until the next.
 * It does not read or write descriptors.
 */

import { EventAlarm, EventSet } from '../../../sys/index.ts';
import type { Clock } from '../../../ucs/sys/clock.ts';
import { Sleeper } from '../../base/sleeper.ts';

/** Handler of one descriptor. */
export interface Watched {
  /** Time at which {@link onDeadline} is called; Infinity for never. */
  readonly deadlineNs: number;
  /** Called when the descriptor may be ready. Returns how many callbacks of the manager's owner ran. */
  onReady(): number;
  /** Called when the deadline has expired. Returns like {@link onReady}. */
  onDeadline(): number;
}

/** The event set. */
export class Watch {
  readonly #clock: Clock;
  readonly #set: EventSet = new EventSet();
  readonly #sleeper: Sleeper;
  readonly #watched: (Watched | undefined)[] = [];
  readonly #freeTokens: number[] = [];
  /** Tokens that were released since the last poll: its events may still name them. */
  readonly #retired: number[] = [];
  /** Lower bound of all deadlines. */
  #earliestNs = Number.POSITIVE_INFINITY;
  readonly #alarm: EventAlarm;
  #closed = false;

  /** @throws SyscallError EMFILE */
  constructor(clock: Clock) {
    this.#clock = clock;
    this.#sleeper = new Sleeper(clock, () => undefined);
    try {
      this.#alarm = new EventAlarm(this.#set.fd, () => this.#sleeper.wake());
    } catch (error) {
      this.#set.close();
      throw error;
    }
  }

  /**
   * Watches a descriptor.
   * @param events bits of ReadyFor
   * @returns the token of the descriptor in this set
   * @throws SyscallError ENOSPC
   */
  add(fd: number, events: number, watched: Watched): number {
    const token = this.#freeTokens.pop() ?? this.#watched.length;
    this.#watched[token] = watched;
    try {
      this.#set.add(fd, events, token);
    } catch (error) {
      this.#release(token);
      throw error;
    }
    this.due(watched.deadlineNs);
    return token;
  }

  /** Changes the watched events of a descriptor. */
  modify(fd: number, events: number, token: number): void {
    this.#set.modify(fd, events, token);
  }

  /** Removes a descriptor, before it is closed. */
  remove(fd: number, token: number): void {
    if (this.#closed) return;
    this.#set.remove(fd);
    this.#release(token);
  }

  /** Announces a new deadline. */
  due(deadlineNs: number): void {
    if (deadlineNs >= this.#earliestNs) return;
    this.#earliestNs = deadlineNs;
    // A sleep that has begun ends too late for it.
    this.#sleeper.wake();
  }

  /** Calls the handlers of ready descriptors, then those of expired deadlines. Returns how many callbacks of the manager's owner ran. */
  poll(): number {
    for (let token = this.#retired.pop(); token !== undefined; token = this.#retired.pop())
      this.#freeTokens.push(token);
    let count = 0;
    const ready = this.#set.poll();
    // Callbacks may drive or close the manager, so the tokens are read before any of them runs.
    const tokens: number[] = [];
    for (let i = 0; i < ready; i++) tokens.push(this.#set.token(i));
    for (const token of tokens) count += this.#watched[token]?.onReady() ?? 0;
    if (!this.#closed && this.#clock.nowNs() >= this.#earliestNs) count += this.#expire();
    return count;
  }

  /** Sleeps until a descriptor may be ready, a deadline expires, or `timeoutNs` has passed. */
  wait(timeoutNs: number): Promise<void> {
    if (this.#closed) return Promise.resolve();
    this.#alarm.arm();
    return this.#sleeper.sleep(Math.min(timeoutNs, Math.max(0, this.#earliestNs - this.#clock.nowNs())));
  }

  /** Idempotent. The descriptors stay open. */
  close(): void {
    if (this.#closed) return;
    this.#closed = true;
    this.#sleeper.wake();
    this.#alarm.close();
    this.#set.close();
    this.#watched.length = 0;
  }

  #release(token: number): void {
    this.#watched[token] = undefined;
    this.#retired.push(token);
  }

  #expire(): number {
    const nowNs = this.#clock.nowNs();
    this.#earliestNs = Number.POSITIVE_INFINITY;
    let count = 0;
    try {
      for (const watched of [...this.#watched]) {
        if (watched !== undefined && watched.deadlineNs <= nowNs) count += watched.onDeadline();
      }
    } finally {
      // Also if a callback of the application has thrown: every handler must be called.
      for (const watched of this.#watched)
        this.#earliestNs = Math.min(this.#earliestNs, watched?.deadlineNs ?? Infinity);
    }
    return count;
  }
}
