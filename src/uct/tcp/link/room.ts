/**
 * Watches the socket of a link for room from the event loop: frames that were reported as sent leave also if the program makes no progress. Frames whose
 * end an operation waits for are left to progress.
 */

import { ReadyFor } from '../../../sys/index.ts';
import type { ReadySet, Watched } from './ready-set.ts';

/** A link whose socket may have no room. */
export interface Blockable {
  readonly fd: number;
  /** Sends the queued frames, unless an operation waits for their end. Returns the number of events. */
  sendReported(): number;
}

/** The watch of one link, from its connection on. It costs a system call each time the link is blocked, and none otherwise. */
export class Room implements Watched {
  token = 0;
  readonly wantsWrite = true;
  readonly #link: Blockable;
  readonly #set: ReadySet;
  #isArmed = false;

  /**
   * @param set polled by the event loop
   * @throws SyscallError ENOSPC, ENOMEM
   */
  constructor(link: Blockable, set: ReadySet) {
    this.#link = link;
    this.#set = set;
    set.add(this, ReadyFor.ONE_SHOT);
  }

  get fd(): number {
    return this.#link.fd;
  }

  /** The socket has no room: watches it once. Unread data does not end the watch. */
  await(): void {
    if (this.#isArmed) return;
    this.#isArmed = true;
    this.#set.watch(this, ReadyFor.WRITE | ReadyFor.ONE_SHOT);
  }

  onReady(): number {
    this.#isArmed = false;
    return this.#link.sendReported();
  }

  /** Ends the watch, before the socket is closed. */
  close(): void {
    this.#set.remove(this);
  }
}
