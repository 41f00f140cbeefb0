/**
 * The sockets of an interface: their event set, the watch of blocked sockets by the event loop, the batches of frames, the heartbeat timer, and a reserved
 * descriptor.
 */

import { close, dup, Errno, EventSet, isSyscallError, ReadyFor, tcpAccept, tcpClose } from '../../sys/index.ts';
import type { Clock, Timer } from '../../ucs/sys/clock.ts';
import { atExit } from '../../ucs/sys/process-events.ts';

/** An object with a socket. */
export interface SocketHandler {
  readonly fd: number;
  /** Index in the set; assigned by the set. */
  token: number;
  /** Whether the socket is watched for becoming writable. */
  readonly wantsWrite: boolean;
  /** Called when the socket is ready; returns the number of events. */
  onReady(): number;
}

/** The sockets of an interface in one event set, and the handlers of those that are ready. */
export class ReadySet {
  readonly #events: EventSet = new EventSet();
  /** By token. */
  readonly #watched: (SocketHandler | undefined)[] = [];
  readonly #free: number[] = [];
  /** Members whose sockets are watched for writability, by token. */
  readonly #forWrite: Set<SocketHandler> = new Set();
  /** Number of sockets. */
  size = 0;

  /** For sleeping: readable when a socket is ready. */
  get fd(): number {
    return this.#events.fd;
  }

  /**
   * @param events bits of ReadyFor; by default those that it wants
   * @throws SyscallError ENOSPC, ENOMEM
   */
  add(watched: SocketHandler, events: number = eventsOf(watched)): void {
    const token = this.#free.pop() ?? this.#watched.length;
    this.#events.add(watched.fd, events, token);
    watched.token = token;
    this.#watched[token] = watched;
    if (watched.wantsWrite) this.#forWrite.add(watched);
    this.size += 1;
  }

  /** Updates whether a socket is watched for becoming writable. */
  update(watched: SocketHandler): void {
    if (watched.wantsWrite === this.#forWrite.has(watched)) return;
    if (watched.wantsWrite) this.#forWrite.add(watched);
    else this.#forWrite.delete(watched);
    this.#events.modify(watched.fd, eventsOf(watched), watched.token);
  }

  /** Changes the events for which a socket is watched. @param events bits of ReadyFor */
  watch({ fd, token }: SocketHandler, events: number): void {
    this.#events.modify(fd, events, token);
  }

  /** Removes a socket, before it is closed or transferred. */
  remove(watched: SocketHandler): void {
    if (this.#watched[watched.token] !== watched) return;
    this.#events.remove(watched.fd);
    this.#watched[watched.token] = undefined;
    this.#free.push(watched.token);
    this.#forWrite.delete(watched);
    this.size -= 1;
  }

  /** Calls the handlers of ready sockets; returns the number of events. */
  poll(): number {
    const count = this.#events.poll();
    let total = 0;
    // A handler may remove others, and their tokens may be reused: their handlers then find nothing to do.
    for (let i = 0; i < count; i++) {
      const watched = this.#watched[this.#events.token(i)];
      if (watched === undefined) continue;
      total += watched.onReady();
      if (this.#forWrite.has(watched)) this.update(watched);
    }
    return total;
  }

  close(): void {
    this.#events.close();
  }
}

function eventsOf({ wantsWrite }: SocketHandler): number {
  return wantsWrite ? ReadyFor.READ | ReadyFor.WRITE : ReadyFor.READ;
}

/**
 * Waits in the event loop until the blocked socket of a link is writable: frames that were reported as sent leave even if the program does not call progress.
 * Progress sends frames whose completion an operation waits for. Costs one system call each time the link is blocked.
 */
export class Room implements SocketHandler {
  token = 0;
  readonly wantsWrite = true;
  /** The socket, which stays open until {@link close}. */
  readonly fd: number;
  readonly #set: ReadySet;
  readonly #onRoom: () => number;
  #isArmed = false;

  /**
   * @param set polled by the event loop
   * @param onRoom sends the queued frames, unless an operation waits for their end; returns the number of events
   * @throws SyscallError ENOSPC, ENOMEM
   */
  constructor(fd: number, set: ReadySet, onRoom: () => number) {
    this.fd = fd;
    this.#set = set;
    this.#onRoom = onRoom;
    set.add(this, ReadyFor.ONE_SHOT);
  }

  /** Watches the blocked socket once. Unread data does not end the watch. */
  await(): void {
    if (this.#isArmed) return;
    this.#isArmed = true;
    this.#set.watch(this, ReadyFor.WRITE | ReadyFor.ONE_SHOT);
  }

  onReady(): number {
    this.#isArmed = false;
    return this.#onRoom();
  }

  /** Ends the watch, before the socket is closed. */
  close(): void {
    this.#set.remove(this);
  }
}

/** The batches of frames of an interface that have begun, in order. */
export class Batches {
  /** The functions that send them. */
  readonly #begun: (() => void)[] = [];
  #isScheduled = false;
  /** At process.exit() in the running job, sends frames that were reported as sent. */
  readonly #stopAtExit: () => void = atExit(() => this.end());
  readonly #endScheduled: () => void = () => {
    this.#isScheduled = false;
    this.end();
  };

  /**
   * Adds a batch. It ends in the next progress, and at the latest when the running job of the event loop ends: the program may not call progress soon.
   * @param endBatch sends it; the link has one function for all its batches
   */
  add(endBatch: () => void): void {
    this.#begun.push(endBatch);
    if (this.#isScheduled) return;
    this.#isScheduled = true;
    queueMicrotask(this.#endScheduled);
  }

  close(): void {
    this.#stopAtExit();
  }

  /** Sends the batches that have begun; those that begin meanwhile wait for the next call. */
  end(): void {
    for (let left = this.#begun.length; left > 0; left--) this.#begun.shift()?.();
  }
}

/** Timer for the heartbeats of an interface. It runs on the event loop, so heartbeats do not depend on progress of the program. */
export class Heartbeats {
  readonly #clock: Clock;
  readonly #intervalNs: number;
  readonly #onTime: () => boolean;
  #timer: Timer | undefined = undefined;
  #closed = false;

  /** @param onTime sends the heartbeats; returns whether there are peers for the next ones */
  constructor(clock: Clock, intervalNs: number, onTime: () => boolean) {
    this.#clock = clock;
    this.#intervalNs = intervalNs;
    this.#onTime = onTime;
  }

  /** Starts the timer, when there is a peer. Idempotent. */
  start(): void {
    if (this.#timer !== undefined || this.#closed) return;
    this.#timer = this.#clock.setTimer(this.#intervalNs, () => {
      this.#timer = undefined;
      if (this.#onTime()) this.start();
    });
  }

  close(): void {
    this.#closed = true;
    this.#timer?.cancel();
  }
}

/**
 * A descriptor that a listening socket reserves for the case that its process has no others: releasing it allows one peer to be accepted and disconnected. A
 * connection that is not accepted would wake the process continuously.
 */
export class ReserveDescriptor {
  readonly #listener: number;
  /** -1 if the descriptor is not reserved, because another part of the process has used it up. */
  #fd = -1;

  /** @throws SyscallError EMFILE */
  constructor(listener: number) {
    this.#listener = listener;
    this.#fd = dup(listener);
  }

  /** Accepts a connection and closes it; returns the result of accept, or -EMFILE if the reserve is used up too. */
  acceptAndClose(): number {
    this.reclaim();
    if (this.#fd < 0) return -Errno.EMFILE;
    this.close();
    const fd = tcpAccept(this.#listener);
    if (fd >= 0) tcpClose(fd);
    this.reclaim();
    return fd;
  }

  /** Reserves a descriptor again, if it is used up and one is available. */
  reclaim(): void {
    if (this.#fd >= 0) return;
    try {
      this.#fd = dup(this.#listener);
    } catch (error) {
      if (!isSyscallError(error)) throw error;
    }
  }

  /** Releases the descriptor. Idempotent. */
  close(): void {
    if (this.#fd >= 0) close(this.#fd);
    this.#fd = -1;
  }
}
