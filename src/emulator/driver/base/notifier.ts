/** Event notifiers of a card, one per open file: the registered event fd and the unread events. */

import { readlinkSync } from 'node:fs';
import { close, dup, Errno, isSyscallError, PollEvent, pollNow, write } from '../../../sys/index.ts';

/** Target of the /proc link of an event fd. */
const EVENT_FD_LINK = 'anon_inode:[eventfd]';

/** One event fd registration per file (struct hl_notifier_event). */
export class Notifier {
  #fd = -1;
  #events = 0;
  readonly #one: Uint8Array = Uint8Array.of(1, 0, 0, 0, 0, 0, 0, 0);

  get registered(): boolean {
    return this.#fd >= 0;
  }

  /**
   * Registers an event fd, of which the driver keeps a duplicate.
   * @returns 0; EINVAL if one is registered already, or for a descriptor that is not an event fd; EBADF for an invalid descriptor
   */
  register(fd: number): number {
    if (this.registered) return Errno.EINVAL;
    let own: number;
    try {
      own = dup(fd);
    } catch (error) {
      if (isSyscallError(error)) return error.errno;
      throw error;
    }
    let isEventFd = false;
    try {
      isEventFd = readlinkSync(`/proc/self/fd/${own}`) === EVENT_FD_LINK;
    } finally {
      // Also works in a process without /proc.
      if (!isEventFd) close(own);
    }
    if (!isEventFd) return Errno.EINVAL;
    this.#fd = own;
    return 0;
  }

  /** Releases the event fd but keeps unread events. Returns 0, or EINVAL if none is registered. */
  unregister(): number {
    if (!this.registered) return Errno.EINVAL;
    this.close();
    return 0;
  }

  /** Adds events (bits of HL_NOTIFIER_EVENT) and signals the event fd, if registered (hl_notifier_event_send, Linux 6.12). */
  raise(events: number): void {
    this.#events |= events;
    if (!this.registered) return;
    // Skipped if the counter is full: it is readable already, and a write could block the driver.
    if ((pollNow(this.#fd, PollEvent.OUT) & PollEvent.OUT) !== 0) write(this.#fd, this.#one);
  }

  /** Reads and clears the events. */
  takeEvents(): number {
    const events = this.#events;
    this.#events = 0;
    return events;
  }

  /** Releases the registration. Idempotent. */
  close(): void {
    if (this.#fd < 0) return;
    close(this.#fd);
    this.#fd = -1;
  }
}

/** The notifiers of the open files of a card. */
export class Notifiers {
  readonly #all: Set<Notifier> = new Set();

  /** Whether a user has registered an event fd. */
  get anyRegistered(): boolean {
    return [...this.#all].some((notifier) => notifier.registered);
  }

  add(notifier: Notifier): void {
    this.#all.add(notifier);
  }

  delete(notifier: Notifier): void {
    this.#all.delete(notifier);
  }

  /** Notifies registered users of events (bits of HL_NOTIFIER_EVENT). */
  raise(events: number): void {
    for (const notifier of this.#all) notifier.raise(events);
  }
}
