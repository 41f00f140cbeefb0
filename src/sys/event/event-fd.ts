/** An event counter with a descriptor (eventfd), which wakes event loops of this and other processes. */

import { closedError } from '../../ucs/type/error.ts';
import { joinWords } from '../../ucs/type/int64.ts';
import { Errno } from '../base/errno.ts';
import { errno, eventfd, read, write } from '../base/libc.ts';
import { allocateScratch, type ScratchBlock } from '../base/scratch.ts';
import { SyscallError } from '../base/syscall-error.ts';
import { closeDescriptor, noteDescriptor } from '../base/thread-resources.ts';
import { type PollSubscription, pollReadable } from './poll.ts';

const EFD_CLOEXEC = 0o2000000;
const EFD_NONBLOCK = 0o4000;
const COUNTER_BYTES = 8;

/** Buffer for reads and writes of counters. Shared by the thread, because calls leave no data in it. */
let transit: ScratchBlock | undefined;

/** An eventfd, nonblocking and close-on-exec. */
export class EventFd implements Disposable {
  /** Descriptor for SCM_RIGHTS and poll; owned by this object. */
  readonly fd: number;
  readonly #words: Uint32Array;
  readonly #address: number;
  readonly #subscriptions = new Set<PollSubscription>();
  #closed = false;

  /**
   * Creates a counter at 0, or takes ownership of a descriptor received from another process.
   * @throws SyscallError EMFILE, ENFILE
   */
  constructor(fd?: number) {
    transit ??= allocateScratch(COUNTER_BYTES);
    this.#words = transit.words;
    this.#address = transit.address;
    this.fd = fd ?? noteDescriptor(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
    if (this.fd < 0) throw new SyscallError('eventfd', errno(), 'new counter');
  }

  get closed(): boolean {
    return this.#closed;
  }

  /**
   * Adds to the counter and wakes waiters. A full counter does not change, but its waiters are woken.
   * @param count 1 to 2^32 - 1
   * @throws UcxError ERR_CLOSED; SyscallError EBADF
   */
  signal(count = 1): void {
    if (this.#closed) throw closedError('EventFd');
    this.#words[0] = count;
    this.#words[1] = 0;
    for (;;) {
      if (write(this.fd, this.#address, COUNTER_BYTES) === COUNTER_BYTES) return;
      const code = errno();
      if (code === Errno.EAGAIN) return;
      if (code !== Errno.EINTR) throw new SyscallError('write', code, `eventfd ${this.fd}`);
    }
  }

  /**
   * Reads and resets the counter. Never blocks, allocates nothing.
   * @returns the previous value; 0 if it was not signalled
   * @throws UcxError ERR_CLOSED; SyscallError EBADF
   */
  tryRead(): number {
    if (this.#closed) throw closedError('EventFd');
    for (;;) {
      if (read(this.fd, this.#address, COUNTER_BYTES) === COUNTER_BYTES) {
        return joinWords(this.#words[0]!, this.#words[1]!);
      }
      const code = errno();
      if (code === Errno.EAGAIN) return 0;
      if (code !== Errno.EINTR) throw new SyscallError('read', code, `eventfd ${this.fd}`);
    }
  }

  /**
   * Calls `callback` from the event loop while the counter is not 0; the callback should call {@link tryRead}. Ends with {@link close}.
   * @throws UcxError ERR_CLOSED; SyscallError EMFILE
   */
  onReadable(callback: () => void): PollSubscription {
    if (this.#closed) throw closedError('EventFd');
    for (const subscription of this.#subscriptions) {
      if (subscription.closed) this.#subscriptions.delete(subscription);
    }
    const subscription = pollReadable(this.fd, callback);
    this.#subscriptions.add(subscription);
    return subscription;
  }

  /** Closes the subscriptions and the descriptor. Idempotent. */
  close(): void {
    if (this.#closed) return;
    this.#closed = true;
    for (const subscription of this.#subscriptions) subscription.close();
    this.#subscriptions.clear();
    closeDescriptor(this.fd);
  }

  [Symbol.dispose](): void {
    this.close();
  }
}
