/**
 * Event loop callbacks for readable descriptors, of two kinds: subscriptions, for every descriptor that Linux can poll (not regular files); and alarms. An
 * alarm wakes the event loop once when a descriptor that represents many others, such as that of an event set, becomes readable. Until the alarm is armed
 * again, it neither fires nor causes work, even if the descriptor stays readable.
 */

import { inNextTurn } from '../../ucs/sys/next-turn.ts';
import { epollControl, epollCreate, errno } from '../base/libc.ts';
import { allocateScratch } from '../base/scratch.ts';
import { SyscallError } from '../base/syscall-error.ts';
import { closeDescriptor, noteDescriptor } from '../base/thread-resources.ts';
import { dup } from '../file/file.ts';
import { type PollHandle, startPoll } from './event-loop.ts';
import { EventSet, ReadyFor } from './event-set.ts';

const EPOLL_CLOEXEC = 0o2000000;
const EPOLL_CTL_ADD = 1;
const EPOLL_EVENT_BYTES = 12;

/** A subscription. Keeps the process alive unless {@link unref} was called. */
export class PollSubscription implements Disposable {
  readonly #fd: number;
  #handle: PollHandle | undefined;

  constructor(fd: number, callback: () => void) {
    this.#fd = dup(fd);
    try {
      checkPollable(this.#fd);
    } catch (error) {
      closeDescriptor(this.#fd);
      throw error;
    }
    this.#handle = startPoll(this.#fd, () => {
      try {
        callback();
      } catch (error) {
        // Rethrown later as an uncaught exception, as from any other callback: the FFI would discard it.
        inNextTurn(() => {
          throw error;
        });
      }
    });
  }

  get closed(): boolean {
    return this.#handle === undefined;
  }

  /** Makes the subscription keep the process alive again. */
  ref(): void {
    this.#handle?.ref();
  }

  /** Allows the process to exit despite the subscription. */
  unref(): void {
    this.#handle?.unref();
  }

  /** Ends the subscription: no callback runs afterwards. May be called in the callback. Idempotent. */
  close(): void {
    if (this.#handle === undefined) return;
    this.#handle.close();
    this.#handle = undefined;
    closeDescriptor(this.#fd);
  }

  [Symbol.dispose](): void {
    this.close();
  }
}

/**
 * Calls `callback` whenever `fd` is readable or at its end. Level-triggered: repeatedly until all data is read. Latency 2.5 us.
 *
 * The subscription uses a duplicate of the descriptor: a descriptor may have several subscriptions, `fd` may be closed at any time, and the file stays open
 * until the subscription is closed too.
 * @throws SyscallError EBADF; EPERM for a file that cannot be polled; EMFILE
 */
export function pollReadable(fd: number, callback: () => void): PollSubscription {
  return new PollSubscription(fd, callback);
}

/** Throws the error of epoll for a descriptor. Checked first, because the FFI aborts the process if epoll rejects a descriptor. */
function checkPollable(fd: number): void {
  const epoll = noteDescriptor(epollCreate(EPOLL_CLOEXEC));
  if (epoll < 0) throw new SyscallError('epoll_create1', errno(), 'check a descriptor');
  const event = allocateScratch(EPOLL_EVENT_BYTES);
  const error = epollControl(epoll, EPOLL_CTL_ADD, fd, event.address) === 0 ? 0 : errno();
  event.free();
  closeDescriptor(epoll);
  if (error !== 0) throw new SyscallError('epoll_ctl', error, `poll fd ${fd}`);
}

/** Wakes the event loop once after each {@link arm}. */
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

  /** Requests the next wake-up, which comes at once if the descriptor is readable. Does not keep the process alive. */
  arm(): void {
    this.#once.modify(this.#fd, ReadyFor.READ | ReadyFor.ONE_SHOT, 0);
  }

  /** Closes the alarm. Idempotent. */
  close(): void {
    this.#subscription.close();
    this.#once.close();
  }
}
