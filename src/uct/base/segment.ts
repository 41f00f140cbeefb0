/**
 * Named shared memory: files in /dev/shm of this user alone, with names that cannot be guessed. A name travels in addresses and keys as
 * fixed-size bytes. What lies in a segment is known to its creator.
 *
 * The file belongs to the thread that created it and goes with `close()`; what killed processes leave, and threads that were ended from outside, is removed
 * by {@link scavenge}.
 */

import { readdirSync } from 'node:fs';
import {
  closeAbandonedDescriptors,
  close as closeFd,
  Errno,
  FileKind,
  fileStatus,
  gettid,
  isSyscallError,
  isThreadAlive,
  type MappedMemory,
  mapFile,
  OpenFlag,
  open,
  reserveFile,
  type SyscallError,
  VIEW_LENGTH_MAX,
} from '../../sys/index.ts';
import { systemRandomBytes } from '../../ucs/sys/random.ts';
import { invalidParam, UcxError } from '../../ucs/type/error.ts';
import { Status } from '../../ucs/type/status.ts';
import { leaveFile, ownFile, sweepLeftFiles, unlinkIfThere } from './owned-files.ts';
import {
  hasEnded,
  isOwn,
  ownIdentity,
  PROCESS_IDENTITY_BYTES,
  type ProcessIdentity,
  packIdentity,
  unpackIdentity,
} from './process-identity.ts';

/** The folder of segments, unless their makers have one of their own. */
export const SEGMENT_FOLDER = '/dev/shm';
/** Bytes of a packed name: the identity of the creator and a random tag. */
export const SEGMENT_NAME_BYTES = 32;

const PREFIX = 'gaudi_ucx';
/** Random bytes of a name; behind them stands the id of the thread that made it. */
const RANDOM_BYTES = 12;
/** Bytes of what tells the names of one process apart. */
export const TAG_BYTES: number = SEGMENT_NAME_BYTES - PROCESS_IDENTITY_BYTES;
/** Digits of the thread in the name of a file: the bytes in hexadecimal, the lowest first. */
const THREAD_DIGITS_AT: number = RANDOM_BYTES * 2;
/** Names of segments, and of what lies beside them under the same name. */
const FILE_NAME = /^gaudi_ucx\.(\d{1,10})\.(\d{1,10})\.(\d{1,16})\.([0-9a-f]{32})(?:\.[a-z]+)?$/;

/** A mapped segment. */
export class Segment {
  /** Process that created it. */
  readonly owner: ProcessIdentity;
  /** {@link SEGMENT_NAME_BYTES} that name it; do not change. */
  readonly packedName: Uint8Array;
  readonly byteLength: number;
  /** Host virtual address in this process. */
  readonly address: number;
  readonly bytes: Uint8Array;
  /** The whole words of it. */
  readonly words: Int32Array;
  readonly #folder: string;
  readonly #memory: MappedMemory;
  #ownsFile: boolean;

  private constructor(folder: string, packedName: Uint8Array, memory: MappedMemory, created: boolean) {
    this.#folder = folder;
    this.packedName = packedName;
    this.owner = unpackIdentity(packedName, 0);
    this.byteLength = memory.byteLength;
    this.address = memory.address;
    this.bytes = memory.u8;
    this.words = new Int32Array(memory.buffer, 0, Math.floor(memory.byteLength / 4));
    this.#memory = memory;
    this.#ownsFile = created;
  }

  /**
   * Creates a segment of zeros, all of it backed.
   * @param byteLength 1 to 4 GiB
   * @param folder where its file lies; who attaches it must know
   * @throws UcxError ERR_INVALID_PARAM; SyscallError ENOSPC where /dev/shm is full, ENOENT or EACCES where there is none, EMFILE
   */
  static create(byteLength: number, folder: string = SEGMENT_FOLDER): Segment {
    if (!Number.isSafeInteger(byteLength) || byteLength <= 0 || byteLength > VIEW_LENGTH_MAX) {
      throw invalidParam('byteLength', `must be an integer from 1 to ${VIEW_LENGTH_MAX}`, byteLength);
    }
    const packedName = new Uint8Array(SEGMENT_NAME_BYTES);
    packIdentity(ownIdentity(), packedName, 0);
    packedName.set(newTag(), PROCESS_IDENTITY_BYTES);
    const path = segmentPath(packedName, folder);
    const fd = open(path, OpenFlag.RDWR | OpenFlag.CREAT | OpenFlag.EXCL | OpenFlag.NOFOLLOW, 0o600);
    ownFile(path);
    try {
      reserveFile(fd, byteLength);
      return new Segment(folder, packedName, mapFile(fd, byteLength, 0), true);
    } catch (error) {
      unlinkIfThere(path);
      throw error;
    } finally {
      closeFd(fd);
    }
  }

  /**
   * Maps the segment of this name, also of this process.
   * @param packedName {@link SEGMENT_NAME_BYTES}; any bytes
   * @param byteLengthMin least length that makes sense to the caller
   * @throws UcxError ERR_SHM_SEGMENT that says why: no such segment, of another user, too small; SyscallError EMFILE, ENFILE, ENOMEM, which say nothing
   *   about the segment: see {@link isLackOfResources}
   */
  static attach(packedName: Uint8Array, byteLengthMin = 1, folder: string = SEGMENT_FOLDER): Segment {
    if (packedName.byteLength !== SEGMENT_NAME_BYTES) {
      throw segmentError(`a name has ${SEGMENT_NAME_BYTES} bytes, got ${packedName.byteLength}`);
    }
    const name = packedName.slice();
    const path = segmentPath(name, folder);
    try {
      const fd = open(path, OpenFlag.RDWR | OpenFlag.NOFOLLOW | OpenFlag.NONBLOCK);
      try {
        return new Segment(folder, name, mapFile(fd, checkedLength(fd, path, byteLengthMin), 0), false);
      } finally {
        closeFd(fd);
      }
    } catch (error) {
      if (isLackOfResources(error) || (error instanceof UcxError && error.code === 'ERR_SHM_SEGMENT')) throw error;
      throw segmentError(error instanceof Error ? error.message : String(error), error);
    }
  }

  get closed(): boolean {
    return this.#memory.closed;
  }

  /** Path of the file, and the start of the path of what belongs to it. */
  get path(): string {
    return segmentPath(this.packedName, this.#folder);
  }

  /**
   * Leaves the file to a peer, which removes it.
   * @param isPeerGone whether the peer has ended: then the file is removed here later
   */
  leaveTo(isPeerGone: () => boolean): void {
    this.#ownsFile = false;
    leaveFile(this.path, isPeerGone);
  }

  /** Unmaps it; views of it read zeros from now on. The creator removes the file; who has attached it keeps the memory. Idempotent. */
  close(): void {
    if (this.#memory.closed) return;
    this.#memory.close();
    if (this.#ownsFile) unlinkIfThere(this.path);
  }
}

/** True for the failure of a process that has run out of descriptors or memory itself: it tells nothing about a peer. */
export function isLackOfResources(error: unknown): error is SyscallError {
  return [Errno.EMFILE, Errno.ENFILE, Errno.ENOMEM].some((code) => isSyscallError(error, code));
}

/** A tag for a new name: it cannot be guessed, and names this thread. */
export function newTag(): Uint8Array {
  const tag = new Uint8Array(TAG_BYTES);
  tag.set(systemRandomBytes(RANDOM_BYTES));
  new DataView(tag.buffer).setUint32(RANDOM_BYTES, gettid(), true);
  return tag;
}

/** Path of the file behind a packed name of any content. */
export function segmentPath(packedName: Uint8Array, folder: string = SEGMENT_FOLDER): string {
  const { pidNamespace, pid, startTime } = unpackIdentity(packedName, 0);
  const tag = Buffer.from(packedName.subarray(PROCESS_IDENTITY_BYTES, SEGMENT_NAME_BYTES)).toString('hex');
  return `${folder}/${PREFIX}.${pidNamespace}.${pid}.${startTime}.${tag}`;
}

/**
 * Removes the files of processes that have ended without doing so, and of threads of this process; closes the descriptors of such threads, by which their
 * peers learn that they are gone. Files of other users, and of other pid namespaces, whose processes cannot be told dead from alive here, stay.
 * @returns how many files were removed
 */
export function scavenge(folder: string = SEGMENT_FOLDER): number {
  closeAbandonedDescriptors();
  let removed = sweepLeftFiles();
  for (const name of namesIn(folder)) {
    const match = FILE_NAME.exec(name);
    if (match === null) continue;
    const [pidNamespace, pid, startTime] = [Number(match[1]), Number(match[2]), Number(match[3])];
    const owner = { pidNamespace, pid, startTime };
    const isLeft = isOwn(owner) ? isOfEndedThread(match[4]!) : hasEnded(owner);
    if (isLeft && unlinkIfThere(`${folder}/${name}`)) removed += 1;
  }
  return removed;
}

/** Whether the thread of this process that a tag names is gone. */
function isOfEndedThread(tag: string): boolean {
  const tid = Buffer.from(tag.slice(THREAD_DIGITS_AT), 'hex').readUInt32LE();
  return !isThreadAlive(tid);
}

function namesIn(folder: string): readonly string[] {
  try {
    return readdirSync(folder);
  } catch {
    return []; // No such folder, or not for this user: nothing of ours is in it.
  }
}

function checkedLength(fd: number, path: string, byteLengthMin: number): number {
  const { kind, uid, byteLength } = fileStatus(fd);
  if (kind !== FileKind.FILE) throw segmentError(`${path} is no file`);
  // Of another user, a length could change under the mapping: a SIGBUS.
  if (uid !== process.geteuid?.()) throw segmentError(`${path} belongs to user ${uid}`);
  if (byteLength < byteLengthMin || byteLength > VIEW_LENGTH_MAX) {
    throw segmentError(`${path} has ${byteLength} bytes, not ${byteLengthMin} to ${VIEW_LENGTH_MAX}`);
  }
  return byteLength;
}

/** The error for shared memory that is not there, or not what it should be. */
export function segmentError(reason: string, cause?: unknown): UcxError {
  return new UcxError({
    code: 'ERR_SHM_SEGMENT',
    status: Status.SHMEM_SEGMENT,
    message: `shared memory: ${reason}`,
    details: { reason },
    cause,
  });
}
