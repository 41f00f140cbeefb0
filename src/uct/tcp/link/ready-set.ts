/** The sockets of an interface in one event set, and the handlers of those that are ready. It does not read or write sockets. */

import { EventSet, ReadyFor } from '../../../sys/index.ts';

/** An object with a socket. */
export interface Watched {
  readonly fd: number;
  /** Index in the set; assigned by the set. */
  token: number;
  /** Whether the socket is watched for becoming writable. */
  readonly wantsWrite: boolean;
  /** Called when the socket is ready; returns the number of events. */
  onReady(): number;
}

/** The set. */
export class ReadySet {
  readonly #events: EventSet = new EventSet();
  /** By token. */
  readonly #watched: (Watched | undefined)[] = [];
  readonly #free: number[] = [];
  /** Members whose sockets are watched for room, by token. */
  readonly #forWrite: Set<Watched> = new Set();
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
  add(watched: Watched, events: number = eventsOf(watched)): void {
    const token = this.#free.pop() ?? this.#watched.length;
    this.#events.add(watched.fd, events, token);
    watched.token = token;
    this.#watched[token] = watched;
    if (watched.wantsWrite) this.#forWrite.add(watched);
    this.size += 1;
  }

  /** Updates whether a socket is watched for becoming writable. */
  update(watched: Watched): void {
    if (watched.wantsWrite === this.#forWrite.has(watched)) return;
    if (watched.wantsWrite) this.#forWrite.add(watched);
    else this.#forWrite.delete(watched);
    this.#events.modify(watched.fd, eventsOf(watched), watched.token);
  }

  /** Changes the events for which a socket is watched. @param events bits of ReadyFor */
  watch({ fd, token }: Watched, events: number): void {
    this.#events.modify(fd, events, token);
  }

  /** Removes a socket, before it is closed or transferred. */
  remove(watched: Watched): void {
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

function eventsOf({ wantsWrite }: Watched): number {
  return wantsWrite ? ReadyFor.READ | ReadyFor.WRITE : ReadyFor.READ;
}
