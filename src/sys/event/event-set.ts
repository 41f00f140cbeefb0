/**
 * A set of descriptors that are polled together (epoll), level-triggered. The descriptor of the set becomes readable when one of them is ready; poll.ts sleeps
 * on it.
 */

import { epollControl, epollCreate, epollWait, errno, isInterrupted } from '../base/libc.ts';
import { allocateScratch, type ScratchBlock } from '../base/scratch.ts';
import { SyscallError } from '../base/syscall-error.ts';
import { noteDescriptor } from '../base/thread-resources.ts';
import { close } from '../file/file.ts';

const EPOLL_CLOEXEC = 0o2000000;
const CTL_ADD = 1;
const CTL_DELETE = 2;
const CTL_MODIFY = 3;
/** Size of struct epoll_event, which is packed on x86-64: u32 events, u64 data. */
const EVENT_BYTES = 12;
/** Maximum number of descriptors that one {@link EventSet.poll} reports. */
export const EVENTS_MAX = 64;

/** Readiness of a descriptor and the mode of its reports: `include/uapi/linux/eventpoll.h`. */
export const ReadyFor = {
  READ: 0x001,
  WRITE: 0x004,
  ERROR: 0x008,
  HANGUP: 0x010,
  PEER_CLOSED: 0x2000,
  ONE_SHOT: 0x4000_0000,
} as const;

export class EventSet {
  /** Descriptor for poll; owned by this object. */
  readonly fd: number;
  readonly #events: ScratchBlock = allocateScratch(EVENT_BYTES * EVENTS_MAX);
  readonly #change: ScratchBlock = allocateScratch(EVENT_BYTES);
  #closed = false;

  /** @throws SyscallError EMFILE */
  constructor() {
    this.fd = noteDescriptor(epollCreate(EPOLL_CLOEXEC));
    if (this.fd >= 0) return;
    const code = errno();
    this.#events.free();
    this.#change.free();
    throw new SyscallError('epoll_create1', code, 'event set');
  }

  /**
   * Adds a descriptor.
   * @param events bits of {@link ReadyFor}; errors are always reported
   * @param token 0 to 2^32 - 1: returned by {@link token} for this descriptor
   * @throws SyscallError EPERM, EEXIST, ENOSPC
   */
  add(fd: number, events: number, token: number): void {
    this.#control(CTL_ADD, fd, events, token);
  }

  /** Changes the events of a descriptor. @throws SyscallError ENOENT */
  modify(fd: number, events: number, token: number): void {
    this.#control(CTL_MODIFY, fd, events, token);
  }

  /** Removes a descriptor, before it is closed. @throws SyscallError ENOENT */
  remove(fd: number): void {
    this.#control(CTL_DELETE, fd, 0, 0);
  }

  /** Polls the descriptors without waiting; returns the number of ready ones, for {@link token} and {@link events}. */
  poll(): number {
    return this.#wait(0);
  }

  /** Like {@link poll}, but waits until at least one is ready. Blocks the thread and its event loop: for processes that do nothing else. */
  wait(): number {
    return this.#wait(-1);
  }

  /** The token of the `index`-th ready descriptor of the last poll. */
  token(index: number): number {
    return this.#events.view.getUint32(index * EVENT_BYTES + 4, true);
  }

  /** Its readiness: bits of {@link ReadyFor}. */
  events(index: number): number {
    return this.#events.view.getUint32(index * EVENT_BYTES, true);
  }

  /** Closes the set; its descriptors stay open. Idempotent. */
  close(): void {
    if (this.#closed) return;
    this.#closed = true;
    close(this.fd);
    this.#events.free();
    this.#change.free();
  }

  #wait(timeoutMs: number): number {
    let count: number;
    do count = epollWait(this.fd, this.#events.address, EVENTS_MAX, timeoutMs);
    while (isInterrupted(count));
    return Math.max(count, 0);
  }

  #control(operation: number, fd: number, events: number, token: number): void {
    const { view, address } = this.#change;
    view.setUint32(0, events, true);
    view.setUint32(4, token, true);
    view.setUint32(8, 0, true);
    if (epollControl(this.fd, operation, fd, address) !== 0) {
      throw new SyscallError('epoll_ctl', errno(), `operation ${operation} on fd ${fd}`);
    }
  }
}
