/**
 * A descriptor that a listening socket reserves for the case that its process has no others: releasing it allows one peer to be accepted and disconnected. A
 * connection that is not accepted would wake the process continuously.
 */

import { close, dup, Errno, isSyscallError, tcpAccept, tcpClose } from '../../sys/index.ts';

/** The reserve of one listening socket. */
export class ReserveDescriptor {
  readonly #listener: number;
  /** -1 for none: another part of the process has used it up. */
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

  /** Reserves a descriptor again, if the reserve is used up and one is available. */
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
