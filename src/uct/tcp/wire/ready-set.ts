/** Which sockets of an interface are ready, and what is done with each. It reads and writes none. */

import { EventSet, ReadyFor } from '../../../sys/index.ts';

/** Something with a socket. */
export interface Watched {
  readonly fd: number;
  /** Names it in the set; the set sets it. */
  token: number;
  /** The socket waits for room. */
  readonly wantsRoom: boolean;
  /** Goes on; returns how much happened. */
  onReady(): number;
}

/** The set. */
export class ReadySet {
  readonly #events: EventSet = new EventSet();
  /** By token. */
  readonly #watched: (Watched | undefined)[] = [];
  readonly #free: number[] = [];
  /** Those that are watched for room, by token. */
  readonly #forRoom: Set<Watched> = new Set();
  /** Sockets in it. */
  size = 0;

  /** For sleeping: readable when a socket is ready. */
  get fd(): number {
    return this.#events.fd;
  }

  /** @throws SyscallError ENOSPC, ENOMEM */
  add(watched: Watched): void {
    const token = this.#free.pop() ?? this.#watched.length;
    this.#events.add(watched.fd, eventsOf(watched), token);
    watched.token = token;
    this.#watched[token] = watched;
    if (watched.wantsRoom) this.#forRoom.add(watched);
    this.size += 1;
  }

  /** Looks again whether a socket waits for room. */
  update(watched: Watched): void {
    if (watched.wantsRoom === this.#forRoom.has(watched)) return;
    if (watched.wantsRoom) this.#forRoom.add(watched);
    else this.#forRoom.delete(watched);
    this.#events.modify(watched.fd, eventsOf(watched), watched.token);
  }

  /** Takes a socket out, before it is closed or given away. */
  remove(watched: Watched): void {
    if (this.#watched[watched.token] !== watched) return;
    this.#events.remove(watched.fd);
    this.#watched[watched.token] = undefined;
    this.#free.push(watched.token);
    this.#forRoom.delete(watched);
    this.size -= 1;
  }

  /** Lets those go on that are ready; returns how much happened. */
  poll(): number {
    const count = this.#events.poll();
    let total = 0;
    // What one of them does may take others out, whose place may be taken again: they find nothing to do.
    for (let i = 0; i < count; i++) {
      const watched = this.#watched[this.#events.token(i)];
      if (watched === undefined) continue;
      total += watched.onReady();
      if (this.#forRoom.has(watched)) this.update(watched);
    }
    return total;
  }

  close(): void {
    this.#events.close();
  }
}

function eventsOf({ wantsRoom }: Watched): number {
  return wantsRoom ? ReadyFor.READ | ReadyFor.WRITE : ReadyFor.READ;
}
