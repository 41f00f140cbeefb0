/**
 * A sender's side of the directory of an interface: announces rings, wakes the receiver, and checks whether it still exists. Also the pipe beside a directory:
 * the owner of the directory waits for it in the event loop, and a peer wakes the owner by writing one byte. The pipe also shows peers whether the owner still
 * runs, in any pid namespace.
 */

import {
  close as closeFd,
  Errno,
  FileKind,
  fileStatus,
  getpid,
  isProcessStopped,
  isSyscallError,
  mkfifo,
  OpenFlag,
  open,
  ownIdentity,
  PollEvent,
  type PollSubscription,
  pollNow,
  pollReadable,
  read,
  unpackIdentity,
  write,
} from '../../../sys/index.ts';
import { Status } from '../../../ucs/type/status.ts';
import { ownFile, Segment, segmentError, unlinkIfThere } from '../../base/key/segment.ts';
import { hasMakerEnded, openShared, type SharedFile } from '../../base/key/segment-name.ts';
import {
  Attention,
  DIRECTORY_BYTES,
  DIRECTORY_VERSION,
  DirectoryWord,
  ringDoorbell,
  SLOTS,
  SlotState,
  SlotWord,
  slotAt,
  wakeFile,
} from './layout.ts';

/** The interface to which a sender sends. */
export class Peer {
  readonly #directory: Segment;
  readonly #words: Int32Array;
  readonly #line: WakeLine;
  readonly #folder: string;
  /** The claimed slot; negative if there is none. */
  #slot = -1;
  #isAnnounced = false;
  /** Index of the word POLLED of the claimed slot. */
  #polledAt = 0;

  private constructor(directory: Segment, line: WakeLine, folder: string) {
    this.#folder = folder;
    this.#directory = directory;
    this.#words = directory.words;
    this.#line = line;
  }

  /**
   * Attaches the directory with this name.
   * @throws UcxError ERR_SHM_SEGMENT with the reason; SyscallError
   */
  static attach(packedName: Uint8Array, folder: string): Peer {
    const directory = Segment.attach(packedName, DIRECTORY_BYTES, folder);
    try {
      const version = directory.words[DirectoryWord.VERSION];
      if (version !== DIRECTORY_VERSION) {
        throw segmentError(
          `the peer uses version ${version} of posix, this process ${DIRECTORY_VERSION}: use the same gaudi-ucx in both`,
        );
      }
      const line = WakeLine.open(wakeFileOf(directory, folder));
      if (line === undefined) throw segmentError('the process of the peer has ended');
      return new Peer(directory, line, folder);
    } catch (error) {
      directory.close();
      throw error;
    }
  }

  /** Returns OK; CONNECTION_RESET once the interface has closed or rejected the ring, ENDPOINT_TIMEOUT once its process has ended. */
  check(): Status {
    const isRefused =
      this.#isAnnounced && this.#slot >= 0 && this.#words[slotAt(this.#slot) + SlotWord.STATE] === SlotState.REFUSED;
    if (isRefused || this.#words[DirectoryWord.ATTENTION] === Attention.CLOSED) return Status.CONNECTION_RESET;
    return this.#line.alive ? Status.OK : Status.ENDPOINT_TIMEOUT;
  }

  /** Whether the process is stopped by a signal; false for one of another pid namespace, whose state is unknown. */
  get isStopped(): boolean {
    const identity = unpackIdentity(this.#directory.packedName, 0);
    return identity.pidNamespace === ownIdentity().pidNamespace && isProcessStopped(identity.pid);
  }

  /** The process, as text for users. */
  get place(): string {
    const { pid, pidNamespace } = unpackIdentity(this.#directory.packedName, 0);
    const own = ownIdentity();
    const isOwn = pid === own.pid && pidNamespace === own.pidNamespace;
    return isOwn ? 'another thread of this process' : `process ${pid}`;
  }

  /** Whether the thread of the interface was terminated, while its process still runs. */
  get hasThreadEnded(): boolean {
    return hasMakerEnded(this.#directory.packedName);
  }

  /**
   * Claims a slot for a ring.
   * @returns false if the receiver has the maximum number of senders, and none of them has closed
   */
  claim(): boolean {
    return this.#claimed() || this.#hasClosing();
  }

  /**
   * Announces a ring.
   * @returns OK; NO_RESOURCE if the receiver has the maximum number of senders
   */
  announce(ringName: Uint8Array): Status {
    if (!this.#claimed()) return Status.NO_RESOURCE;
    const words = this.#words;
    const at = slotAt(this.#slot);
    this.#directory.bytes.set(ringName, (at + SlotWord.NAME) * 4);
    Atomics.store(words, at + SlotWord.STATE, SlotState.READY);
    this.#isAnnounced = true;
    this.#polledAt = at + SlotWord.POLLED;
    this.#countChange();
    return Status.OK;
  }

  #claimed(): boolean {
    const words = this.#words;
    for (let slot = 0; slot < SLOTS && this.#slot < 0; slot++) {
      if (Atomics.compareExchange(words, slotAt(slot) + SlotWord.OWNER, 0, getpid()) === 0) this.#slot = slot;
    }
    if (this.#slot >= 0) return true;
    Atomics.store(words, DirectoryWord.SCARCE, 1);
    this.#countChange();
    return false;
  }

  /** Whether a slot will be free at the next progress of the receiver. */
  #hasClosing(): boolean {
    const words = this.#words;
    for (let slot = 0; slot < SLOTS; slot++) {
      if (Atomics.load(words, slotAt(slot) + SlotWord.STATE) === SlotState.CLOSED) return true;
    }
    return false;
  }

  /**
   * Notifies the receiver of a message in the announced ring.
   * @returns OK, or CONNECTION_RESET if it has closed
   */
  messagePublished(): Status {
    // Read after the message was published: the receiver clears it before it checks the ring for the last time.
    if (this.#words[this.#polledAt] === 0) ringDoorbell(this.#words, this.#slot);
    return this.#keepProgressing();
  }

  /** Checks the receiver after a change, and wakes it if it sleeps. Returns OK, or CONNECTION_RESET if it has closed. */
  #keepProgressing(): Status {
    const words = this.#words;
    const attention = words[DirectoryWord.ATTENTION];
    if (attention === Attention.AWAKE) return Status.OK;
    if (attention === Attention.CLOSED) return Status.CONNECTION_RESET;
    this.#wake();
    return Status.OK;
  }

  /**
   * Ends the announced ring. The receiver still reads its remaining messages.
   * @returns whether the receiver exists, and will remove the file of the ring
   */
  retire(): boolean {
    if (this.#slot < 0) return false;
    if (!this.#isAnnounced) {
      Atomics.store(this.#words, slotAt(this.#slot) + SlotWord.OWNER, 0);
      this.#slot = -1;
      return false;
    }
    // Stored before the receiver is checked: a receiver that closes announces that before it reads the slots for the last time.
    Atomics.store(this.#words, slotAt(this.#slot) + SlotWord.STATE, SlotState.CLOSED);
    this.#slot = -1;
    this.#countChange();
    return this.check() === Status.OK;
  }

  /** Returns a function that reports whether the interface has ended, also after {@link close}. Opens the pipe for each call. */
  goneProbe(): () => boolean {
    const file = wakeFileOf(this.#directory, this.#folder);
    return () => {
      try {
        const line = WakeLine.open(file);
        line?.close();
        return line === undefined;
      } catch (error) {
        // The state cannot be determined now.
        if (isSyscallError(error)) return false;
        throw error;
      }
    };
  }

  close(): void {
    this.#line.close();
    this.#directory.close();
  }

  #countChange(): void {
    Atomics.add(this.#words, DirectoryWord.CHANGES, 1);
    this.#keepProgressing();
  }

  /** Of several senders that see the receiver asleep, only one writes to its pipe. */
  #wake(): void {
    const { SLEEPING, AWAKE } = Attention;
    if (Atomics.compareExchange(this.#words, DirectoryWord.ATTENTION, SLEEPING, AWAKE) === SLEEPING)
      this.#line.signal();
  }
}

/** The pipe of a directory. */
function wakeFileOf({ packedName, words }: Segment, folder: string): SharedFile {
  return wakeFile(packedName, folder, words[DirectoryWord.WAKE_FD]!);
}

/** Bytes read at a time: more than peers write, because each writes one byte for a sleep. */
const DRAIN_BYTES = 256;

const ONE = new Uint8Array(1);

/** The owner's end of the pipe. */
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

/** A peer's end of the pipe. */
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
