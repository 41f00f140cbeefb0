/**
 * The pipe beside a directory that wakes a sleeping interface. The owner waits for it in the event loop; a peer writes one byte. The pipe also shows
 * peers whether the owner still runs, whatever its pid namespace.
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
import { ownFile, unlinkIfThere } from '../../base/key/owned-files.ts';
import { openShared, type SharedFile } from '../../base/key/segment-name.ts';

/** Bytes read at a time: more than peers write, because each writes one byte for a sleep. */
const DRAIN_BYTES = 256;

const ONE = new Uint8Array(1);

/** The owner's end. */
export class WakePipe {
  readonly #path: string;
  readonly #keepsPath: boolean;
  readonly #fd: number;
  readonly #drained: Uint8Array = new Uint8Array(DRAIN_BYTES);
  readonly #subscription: PollSubscription;
  #closed = false;

  /**
   * Creates the pipe, and reserves everything that sleeping on it needs.
   * @param keepsPath whether peers open it by its path, and not by its descriptor
   * @param onWake called from the event loop when a peer wakes the owner; does not keep the process running
   * @throws SyscallError
   */
  constructor(path: string, keepsPath: boolean, onWake: () => void) {
    mkfifo(path);
    ownFile(path);
    this.#path = path;
    this.#keepsPath = keepsPath;
    let fd = -1;
    try {
      // Opened for writing too, because a pipe without writers is always readable.
      fd = open(path, OpenFlag.RDWR | OpenFlag.NONBLOCK | OpenFlag.NOFOLLOW);
      if (!keepsPath) unlinkIfThere(path);
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

  /** The descriptor by which peers open it; 0 if they open its path. */
  get sharedFd(): number {
    return this.#keepsPath ? 0 : this.#fd;
  }

  /** Removes the pipe. Idempotent. */
  close(): void {
    if (this.#closed) return;
    this.#closed = true;
    this.#subscription.close();
    closeFd(this.#fd);
    if (this.#keepsPath) unlinkIfThere(this.#path);
  }
}

/** A peer's end. */
export class WakeLine {
  readonly #fd: number;
  #closed = false;

  private constructor(fd: number) {
    this.#fd = fd;
  }

  /** Opens the pipe; undefined if it no longer has an owner. Throws SyscallError EACCES, EMFILE. */
  static open(file: SharedFile): WakeLine | undefined {
    let fd: number;
    try {
      fd = openShared(file, OpenFlag.WRONLY | OpenFlag.NONBLOCK);
    } catch (error) {
      // ENXIO: a pipe without a reader.
      if (isSyscallError(error, Errno.ENXIO) || isSyscallError(error, Errno.ENOENT)) return undefined;
      throw error;
    }
    if (fileStatus(fd).kind === FileKind.FIFO) return new WakeLine(fd);
    closeFd(fd);
    return undefined;
  }

  /** Whether the owner still has the pipe open. Takes 1 us. */
  get alive(): boolean {
    return !this.#closed && (pollNow(this.#fd, 0) & PollEvent.ERR) === 0;
  }

  /** Wakes the owner. No effect if the owner has ended; a full pipe already wakes it. */
  signal(): void {
    if (!this.#closed) write(this.#fd, ONE);
  }

  close(): void {
    if (this.#closed) return;
    this.#closed = true;
    closeFd(this.#fd);
  }
}
