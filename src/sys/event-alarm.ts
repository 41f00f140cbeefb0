/**
 * Wakes the event loop once when a descriptor that many others stand behind becomes readable, such as that of an event set. It stays silent, and costs
 * nothing, until it is armed again: what is readable need not be read first.
 */

import { EventSet, ReadyFor } from './event-set.ts';
import { type PollSubscription, pollReadable } from './poll.ts';

/** The alarm. */
export class EventAlarm {
  readonly #fd: number;
  /** Holds `fd` alone, and reports it once for every time it is armed. */
  readonly #once: EventSet = new EventSet();
  readonly #subscription: PollSubscription;

  /**
   * Takes all that arming needs.
   * @param onWake called from the event loop, once after every {@link arm}
   * @throws SyscallError EMFILE
   */
  constructor(fd: number, onWake: () => void) {
    this.#fd = fd;
    try {
      this.#once.add(fd, 0, 0);
      this.#subscription = pollReadable(this.#once.fd, () => {
        // Taking the report is what makes the set unreadable.
        if (this.#once.poll() > 0) onWake();
      });
    } catch (error) {
      this.#once.close();
      throw error;
    }
    this.#subscription.unref();
  }

  /** Asks for the next wake-up; at once where the descriptor is readable now. Does not hold the process open. */
  arm(): void {
    this.#once.modify(this.#fd, ReadyFor.READ | ReadyFor.ONE_SHOT, 0);
  }

  /** Idempotent. */
  close(): void {
    this.#subscription.close();
    this.#once.close();
  }
}
