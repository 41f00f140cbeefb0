/**
 * A descriptor that a listening socket keeps for the time when its process has no other: given up, it lets one peer be taken and sent away. A connection that
 * is not accepted would wake the process for ever.
 */

import { close, dup, Errno, isSyscallError, tcpAccept, tcpClose } from '../../sys/index.ts';

/** The reserve of one listening socket. */
export class ReserveDescriptor {
  readonly #listener: number;
  /** -1 for none: another part of the process was faster. */
  #fd = -1;

  /** @throws SyscallError EMFILE */
  constructor(listener: number) {
    this.#listener = listener;
    this.#fd = dup(listener);
  }

  /** Takes a connection and closes it; returns what accept does, -EMFILE where there is no reserve either. */
  sendAway(): number {
    this.reclaim();
    if (this.#fd < 0) return -Errno.EMFILE;
    this.close();
    const fd = tcpAccept(this.#listener);
    if (fd >= 0) tcpClose(fd);
    this.reclaim();
    return fd;
  }

  /** Takes the reserve again where it is gone, and there is a descriptor. */
  reclaim(): void {
    if (this.#fd >= 0) return;
    try {
      this.#fd = dup(this.#listener);
    } catch (error) {
      if (!isSyscallError(error)) throw error;
    }
  }

  /** Gives it up. Idempotent. */
  close(): void {
    if (this.#fd >= 0) close(this.#fd);
    this.#fd = -1;
  }
}
