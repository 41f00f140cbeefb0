/**
 * Wakes the event loop once when a descriptor that represents many others, such as that of an event set, becomes readable. Until it is
 * armed again, it neither fires nor causes work, even if the descriptor stays readable.
 */

import { EventSet, ReadyFor } from './event-set.ts';
import { type PollSubscription, pollReadable } from './poll.ts';

/** The alarm. */
export class EventAlarm {
  readonly #fd: number;
  /** Contains only `fd`, and reports it once each time it is armed. */
  readonly #once: EventSet = new EventSet();
  readonly #subscription: PollSubscription;

  /**
   * Allocates all resources for arming.
   * @param onWake called from the event loop, once after every {@link arm}
   * @throws SyscallError EMFILE
   */
  constructor(fd: number, onWake: () => void) {
    this.#fd = fd;
    try {
      this.#once.add(fd, 0, 0);
      this.#subscription = pollReadable(this.#once.fd, () => {
        // Reading the report makes the set unreadable.
        if (this.#once.poll() > 0) onWake();
      });
    } catch (error) {
      this.#once.close();
      throw error;
    }
    this.#subscription.unref();
  }

  /** Requests the next wake-up; it comes at once if the descriptor is readable. Does not keep the process alive. */
  arm(): void {
    this.#once.modify(this.#fd, ReadyFor.READ | ReadyFor.ONE_SHOT, 0);
  }

  /** Closes the alarm. Idempotent. */
  close(): void {
    this.#subscription.close();
    this.#once.close();
  }
}
