/**
 * Named shared memory: files in /dev/shm that only this user can access, with random names. A name is sent in addresses and keys as fixed-size bytes. The
 * creator defines the contents of a segment.
 *
 * The file belongs to the thread that created it and is removed by `close()`. Files of killed processes and of terminated threads are removed by
 * {@link scavenge}.
 */

import { readdirSync } from 'node:fs';
import {
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
} from '../../../sys/index.ts';
import { systemRandomBytes } from '../../../ucs/sys/random.ts';
import { effectiveUserId } from '../../../ucs/sys/user-id.ts';
import { invalidParam, UcxError } from '../../../ucs/type/error.ts';
import { Status } from '../../../ucs/type/status.ts';
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

/** The default folder of segments. */
export const SEGMENT_FOLDER = '/dev/shm';
/** Bytes of a packed name: the identity of the creator and a random tag. */
export const SEGMENT_NAME_BYTES = 32;

const PREFIX = 'gaudi_ucx';
/** Random bytes of a name; the id of the creating thread follows. */
const RANDOM_BYTES = 12;
/** Bytes of the part of a name that distinguishes the names of one process. */
export const TAG_BYTES: number = SEGMENT_NAME_BYTES - PROCESS_IDENTITY_BYTES;
/** Names of segments, and of files beside them with the same name and a suffix. */
const FILE_NAME = /^gaudi_ucx\.(\d{1,10})\.(\d{1,10})\.(\d{1,16})\.([0-9a-f]{32})(?:\.[a-z]+)?$/;

/** A mapped segment. */
export class Segment {
  /** Process that created it. */
  readonly owner: ProcessIdentity;
  /** Its name: {@link SEGMENT_NAME_BYTES} bytes, which must not be changed. */
  readonly packedName: Uint8Array;
  readonly byteLength: number;
  /** Host virtual address in this process. */
  readonly address: number;
  readonly bytes: Uint8Array;
  /** The segment as words. */
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
   * Creates a segment of zeros, and allocates all of its memory.
   * @param byteLength 1 to 4 GiB
   * @param folder folder of its file, which must be passed to {@link attach} too
   * @throws UcxError ERR_INVALID_PARAM; SyscallError ENOSPC if /dev/shm is full, ENOENT or EACCES if the folder does not exist or is not accessible, EMFILE
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
      reserveFile(fd, byteLength, path);
      return new Segment(folder, packedName, mapFile(fd, byteLength, 0), true);
    } catch (error) {
      unlinkIfThere(path);
      throw error;
    } finally {
      closeFd(fd);
    }
  }

  /**
   * Maps the segment with this name, which may belong to this process.
   * @param packedName {@link SEGMENT_NAME_BYTES}; any bytes
   * @param byteLengthMin minimum length that the caller accepts
   * @throws UcxError ERR_SHM_SEGMENT with the reason: no such segment, of another user, too small; SyscallError EMFILE, ENFILE, ENOMEM, which do not concern
   * the segment: see {@link isLackOfResources}
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

  /** Path of the file, and prefix of the paths of files that belong to it. */
  get path(): string {
    return segmentPath(this.packedName, this.#folder);
  }

  /**
   * Transfers the file to a peer, which removes it.
   * @param isPeerGone whether the peer has ended: the file is then removed by this process later
   */
  leaveTo(isPeerGone: () => boolean): void {
    this.#ownsFile = false;
    leaveFile(this.path, isPeerGone);
  }

  /** Unmaps it; views of it then read zeros. The creator removes the file; processes that have attached it keep the memory. Idempotent. */
  close(): void {
    if (this.#memory.closed) return;
    this.#memory.close();
    if (this.#ownsFile) unlinkIfThere(this.path);
  }
}

/** Whether this process itself has run out of descriptors or memory. The error does not concern the peer. */
export function isLackOfResources(error: unknown): error is SyscallError {
  return [Errno.EMFILE, Errno.ENFILE, Errno.ENOMEM].some((code) => isSyscallError(error, code));
}

/** A random tag for a new name, which contains the id of this thread. */
export function newTag(): Uint8Array {
  const tag = new Uint8Array(TAG_BYTES);
  tag.set(systemRandomBytes(RANDOM_BYTES));
  new DataView(tag.buffer).setUint32(RANDOM_BYTES, gettid(), true);
  return tag;
}

/** Path of the file for a packed name with any content. */
export function segmentPath(packedName: Uint8Array, folder: string = SEGMENT_FOLDER): string {
  const { pidNamespace, pid, startTime } = unpackIdentity(packedName, 0);
  const tag = Buffer.from(packedName.subarray(PROCESS_IDENTITY_BYTES, SEGMENT_NAME_BYTES)).toString('hex');
  return `${folder}/${PREFIX}.${pidNamespace}.${pid}.${startTime}.${tag}`;
}

/**
 * Removes the files that ended processes and threads of this process have left. Keeps files of other users, and of other pid namespaces, where this process cannot determine whether a process runs.
 * @returns number of removed files
 */
export function scavenge(folder: string = SEGMENT_FOLDER): number {
  let removed = sweepLeftFiles();
  for (const name of namesIn(folder)) {
    const match = FILE_NAME.exec(name);
    if (match === null) continue;
    const [pidNamespace, pid, startTime] = [Number(match[1]), Number(match[2]), Number(match[3])];
    const owner = { pidNamespace, pid, startTime };
    const isLeft = isOwn(owner) ? !isThreadAlive(threadOf(Buffer.from(match[4]!, 'hex'))) : hasEnded(owner);
    if (isLeft && unlinkIfThere(`${folder}/${name}`)) removed += 1;
  }
  return removed;
}

/**
 * Whether the thread that has made a segment was certainly terminated: its process may go on, with its descriptors open. False for a thread of another pid
 * namespace, whose state is unknown.
 */
export function hasMakerEnded(packedName: Uint8Array): boolean {
  const { pidNamespace, pid } = unpackIdentity(packedName, 0);
  if (pidNamespace !== ownIdentity().pidNamespace) return false;
  return !isThreadAlive(threadOf(packedName.subarray(PROCESS_IDENTITY_BYTES)), pid);
}

/** The id of the thread in a tag. */
function threadOf(tag: Uint8Array): number {
  return new DataView(tag.buffer, tag.byteOffset).getUint32(RANDOM_BYTES, true);
}

function namesIn(folder: string): readonly string[] {
  try {
    return readdirSync(folder);
  } catch {
    return []; // The folder does not exist or is not accessible, so it contains no files of this process.
  }
}

function checkedLength(fd: number, path: string, byteLengthMin: number): number {
  const { kind, uid, byteLength } = fileStatus(fd);
  if (kind !== FileKind.FILE) throw segmentError(`${path} is no file`);
  // Another user could truncate it while it is mapped, which causes SIGBUS.
  if (uid !== effectiveUserId()) throw segmentError(`${path} belongs to user ${uid}`);
  if (byteLength < byteLengthMin || byteLength > VIEW_LENGTH_MAX) {
    throw segmentError(`${path} has ${byteLength} bytes, not ${byteLengthMin} to ${VIEW_LENGTH_MAX}`);
  }
  return byteLength;
}

/** The error for shared memory that does not exist or is invalid. */
export function segmentError(reason: string, cause?: unknown): UcxError {
  return new UcxError({
    code: 'ERR_SHM_SEGMENT',
    status: Status.SHMEM_SEGMENT,
    message: `shared memory: ${reason}`,
    details: { reason },
    cause,
  });
}
