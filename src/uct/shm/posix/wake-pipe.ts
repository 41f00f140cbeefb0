/**
 * What wakes a sleeping interface: a named pipe beside its directory. Its owner sleeps on it in the event loop; a peer writes one byte, and
 * sees from it whether the owner still lives, whatever pid namespace that is in.
 */

import {
  close as closeFd,
  Errno,
  FileKind,
  fileStatus,
  isSyscallError,
  mkfifo,
  OpenFlag,
  open,
  PollEvent,
  type PollSubscription,
  pollNow,
  pollReadable,
  read,
  write,
} from '../../../sys/index.ts';
import { ownFile, unlinkIfThere } from '../../base/owned-files.ts';

/** Bytes that one read takes out; more than peers leave, as each writes one for a sleep. */
const DRAIN_BYTES = 256;

const ONE = new Uint8Array(1);

/** The owner's end. */
export class WakePipe {
  readonly #path: string;
  readonly #fd: number;
  readonly #drained: Uint8Array = new Uint8Array(DRAIN_BYTES);
  readonly #subscription: PollSubscription;
  #closed = false;

  /**
   * Makes the pipe, and takes all that sleeping on it needs.
   * @param onWake called from the event loop when a peer wakes the owner; does not hold the process open
   * @throws SyscallError
   */
  constructor(path: string, onWake: () => void) {
    mkfifo(path);
    ownFile(path);
    this.#path = path;
    let fd = -1;
    try {
      // Also for writing: a pipe without writers would be readable for ever.
      fd = open(path, OpenFlag.RDWR | OpenFlag.NONBLOCK | OpenFlag.NOFOLLOW);
      this.#subscription = pollReadable(fd, () => {
        while (read(fd, this.#drained) === DRAIN_BYTES);
        onWake();
      });
    } catch (error) {
      if (fd >= 0) closeFd(fd);
      unlinkIfThere(path);
      throw error;
    }
    this.#fd = fd;
    this.#subscription.unref();
  }

  /** Removes the pipe. Idempotent. */
  close(): void {
    if (this.#closed) return;
    this.#closed = true;
    this.#subscription.close();
    closeFd(this.#fd);
    unlinkIfThere(this.#path);
  }
}

/** A peer's end. */
export class WakeLine {
  readonly #fd: number;
  #closed = false;

  private constructor(fd: number) {
    this.#fd = fd;
  }

  /** Opens the pipe at `path`; undefined when it has no owner any more. Throws SyscallError EACCES, EMFILE. */
  static open(path: string): WakeLine | undefined {
    let fd: number;
    try {
      fd = open(path, OpenFlag.WRONLY | OpenFlag.NONBLOCK | OpenFlag.NOFOLLOW);
    } catch (error) {
      // ENXIO: a pipe without a reader.
      if (isSyscallError(error, Errno.ENXIO) || isSyscallError(error, Errno.ENOENT)) return undefined;
      throw error;
    }
    if (fileStatus(fd).kind === FileKind.FIFO) return new WakeLine(fd);
    closeFd(fd);
    return undefined;
  }

  /** Whether the owner still has the pipe open. 1 us. */
  get alive(): boolean {
    return !this.#closed && (pollNow(this.#fd, 0) & PollEvent.ERR) === 0;
  }

  /** Wakes the owner. Without effect on one that is gone; a full pipe wakes already. */
  signal(): void {
    if (!this.#closed) write(this.#fd, ONE);
  }

  close(): void {
    if (this.#closed) return;
    this.#closed = true;
    closeFd(this.#fd);
  }
}
