/**
 * Shared memory that only this user can access. Its packed name (segment-name.ts) is sent in addresses and keys.
 *
 * A segment belongs to the thread that created it and ends with `close()`. The kernel releases those without a path when their process ends; files of killed
 * processes and of terminated threads are removed by {@link scavenge}.
 */

import { existsSync, readdirSync, unlinkSync } from 'node:fs';
import {
  close as closeFd,
  Errno,
  FileKind,
  fileStatus,
  hasEnded,
  isOwn,
  isSyscallError,
  isThreadAlive,
  type MappedMemory,
  mapFile,
  OpenFlag,
  open,
  ownIdentity,
  type ProcessIdentity,
  reserveFile,
  type SyscallError,
  unpackIdentity,
  VIEW_LENGTH_MAX,
} from '../../../sys/index.ts';
import { effectiveUserId } from '../../../ucs/sys/user-id.ts';
import { checkString } from '../../../ucs/type/check-options.ts';
import { asError, invalidParam, UcxError } from '../../../ucs/type/error.ts';
import { Status } from '../../../ucs/type/status.ts';
import {
  creatorOf,
  descriptorOf,
  newName,
  openShared,
  SEGMENT_FOLDER,
  SEGMENT_NAME_BYTES,
  segmentPath,
  setDescriptor,
} from './segment-name.ts';

/** Remedy for shared memory between pid namespaces. */
export const PATH_REMEDY = 'set UCX_POSIX_USE_PROC_LINK=n for both';

/** How a new segment is shared. */
export interface SegmentOptions {
  /** Folder of its file, which must be passed to {@link Segment.attach} too. */
  readonly folder?: string;
  /** Whether peers open it by its path, which also those of other pid namespaces can: the file is left behind by a killed process. Default false. */
  readonly keepsPath?: boolean;
}

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
  /** The descriptor that peers open; 0 if there is none. */
  readonly #fd: number;
  #ownsFile: boolean;

  private constructor(folder: string, packedName: Uint8Array, memory: MappedMemory, created: boolean) {
    this.#fd = created ? descriptorOf(packedName) : 0;
    this.#folder = folder;
    this.packedName = packedName;
    this.owner = unpackIdentity(packedName, 0);
    this.byteLength = memory.byteLength;
    this.address = memory.address;
    this.bytes = memory.u8;
    this.words = new Int32Array(memory.buffer, 0, Math.floor(memory.byteLength / 4));
    this.#memory = memory;
    this.#ownsFile = created && this.#fd === 0;
  }

  /**
   * Creates a segment of zeros, and allocates all of its memory.
   * @param byteLength 1 to 4 GiB
   * @throws UcxError ERR_INVALID_PARAM; SyscallError ENOSPC if /dev/shm is full, ENOENT or EACCES if the folder does not exist or is not accessible, EMFILE
   */
  static create(byteLength: number, { folder = SEGMENT_FOLDER, keepsPath = false }: SegmentOptions = {}): Segment {
    if (!Number.isSafeInteger(byteLength) || byteLength <= 0 || byteLength > VIEW_LENGTH_MAX) {
      throw invalidParam('byteLength', `must be an integer from 1 to ${VIEW_LENGTH_MAX}`, byteLength);
    }
    const packedName = newName();
    const path = segmentPath(packedName, folder);
    const fd = open(path, OpenFlag.RDWR | OpenFlag.CREAT | OpenFlag.EXCL | OpenFlag.NOFOLLOW, 0o600);
    try {
      if (keepsPath) ownFile(path);
      else {
        unlinkIfThere(path);
        setDescriptor(packedName, fd);
      }
      reserveFile(fd, byteLength, path);
      const segment = new Segment(folder, packedName, mapFile(fd, byteLength, 0), true);
      if (keepsPath) closeFd(fd);
      return segment;
    } catch (error) {
      unlinkIfThere(path);
      closeFd(fd);
      throw error;
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
    const name = new Uint8Array(packedName);
    const path = segmentPath(name, folder);
    try {
      const fd = openSegment(name, path);
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

  /** Path of the file, or its path before it was unlinked; prefix of the paths of files that belong to it. */
  get path(): string {
    return segmentPath(this.packedName, this.#folder);
  }

  /**
   * Transfers the removal of the file to a peer.
   * @param isPeerGone whether the peer has ended: this process then removes the file later
   */
  leaveTo(isPeerGone: () => boolean): void {
    this.#ownsFile = false;
    leaveFile(this.path, isPeerGone);
  }

  /** Unmaps it; views of it then read zeros. The creator closes or removes the file; processes that have attached it keep the memory. Idempotent. */
  close(): void {
    if (this.#memory.closed) return;
    this.#memory.close();
    if (this.#fd !== 0) closeFd(this.#fd);
    if (this.#ownsFile) unlinkIfThere(this.path);
  }
}

/** Whether this process itself has run out of descriptors or memory. The error does not concern the peer. */
export function isLackOfResources(error: unknown): error is SyscallError {
  return [Errno.EMFILE, Errno.ENFILE, Errno.ENOMEM].some((code) => isSyscallError(error, code));
}

/**
 * Removes the files that ended processes and threads of this process have left. Keeps files of other users, and of other pid namespaces, where this process cannot determine whether a process runs.
 * @returns number of removed files
 */
export function scavenge(folder: string = SEGMENT_FOLDER): number {
  checkString('folder', folder);
  let removed = sweepLeftFiles();
  for (const name of namesIn(folder)) {
    const creator = creatorOf(name);
    if (creator === undefined) continue;
    const { owner, thread } = creator;
    const isLeft = isOwn(owner) ? !isThreadAlive(thread) : hasEnded(owner);
    if (isLeft && unlinkIfThere(`${folder}/${name}`)) removed += 1;
  }
  return removed;
}

/** Opens the file of a segment of any process. */
function openSegment(packedName: Uint8Array, path: string): number {
  const fd = descriptorOf(packedName);
  const { pidNamespace, pid } = unpackIdentity(packedName, 0);
  if (fd !== 0 && pidNamespace !== ownIdentity().pidNamespace) {
    throw segmentError(`its process is in another pid namespace (a container): ${PATH_REMEDY}`);
  }
  return openShared({ path, pid, fd }, OpenFlag.RDWR | OpenFlag.NONBLOCK);
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
  if (kind !== FileKind.FILE) throw segmentError(`${path} is not a regular file`);
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

/* Attached segments of peers: each is attached once while it is in use, and a limited number of idle ones stays attached. */

interface Entry {
  readonly segment: Segment;
  references: number;
}

/** A set of attached segments. */
export class SegmentCache {
  /** By name; the idle ones in the order of their release. */
  readonly #entries: Map<string, Entry> = new Map();
  readonly #idleMax: number;
  readonly #folder: string;
  #idle = 0;

  /**
   * @param idleMax maximum number of idle attached segments; beyond it the oldest is detached
   * @param folder folder of the segments
   */
  constructor(idleMax: number, folder: string = SEGMENT_FOLDER) {
    this.#folder = folder;
    this.#idleMax = idleMax;
  }

  /**
   * Attaches a segment. Each call needs one {@link release}.
   * @throws UcxError ERR_SHM_SEGMENT as {@link Segment.attach}
   */
  acquire(packedName: Uint8Array, byteLengthMin = 1): Segment {
    const key = keyOf(packedName);
    const entry = this.#entries.get(key);
    if (entry === undefined) {
      const segment = Segment.attach(packedName, byteLengthMin, this.#folder);
      this.#entries.set(key, { segment, references: 1 });
      return segment;
    }
    if (entry.references === 0) this.#idle -= 1;
    entry.references += 1;
    return entry.segment;
  }

  /** Releases a segment that {@link acquire} returned, once for each call. */
  release(segment: Segment): void {
    const key = keyOf(segment.packedName);
    const entry = this.#entries.get(key);
    if (entry === undefined || entry.segment !== segment) return;
    entry.references -= 1;
    if (entry.references > 0) return;
    // Moved to the end: a map keeps the order of insertion.
    this.#entries.delete(key);
    this.#entries.set(key, entry);
    this.#idle += 1;
    if (this.#idle > this.#idleMax) this.#detachOldest();
  }

  /** Detaches all segments, including those in use. */
  close(): void {
    for (const { segment } of this.#entries.values()) segment.close();
    this.#entries.clear();
    this.#idle = 0;
  }

  #detachOldest(): void {
    for (const [key, { segment, references }] of this.#entries) {
      if (references > 0) continue;
      segment.close();
      this.#entries.delete(key);
      this.#idle -= 1;
      return;
    }
  }
}

function keyOf(packedName: Uint8Array): string {
  return Buffer.from(packedName.buffer, packedName.byteOffset, packedName.byteLength).toString('latin1');
}

/** Error codes of files that cannot be removed: missing, of another user, or in a read-only folder. */
const UNREMOVABLE: readonly (string | undefined)[] = ['ENOENT', 'EPERM', 'EACCES', 'EROFS'];
/** Number of files left to peers that are checked whenever another one is added. */
const SWEPT_PER_USE = 8;

const owned = new Set<string>();
/**
 * Files that peers have to remove, with the check whether the peer has ended; the least recently checked first. If the peer has ended, this process removes
 * the file. After a kill, {@link scavenge} removes the files.
 */
const left = new Map<string, () => boolean>();

/** Adds a file to the list. */
export function ownFile(path: string): void {
  watchExit();
  owned.add(path);
}

/**
 * Transfers the removal of a file to a peer. If the peer ends without removing it, this process removes it: with a later file, in scavenging, or when it
 * ends.
 * @param isPeerGone whether the peer has ended
 */
function leaveFile(path: string, isPeerGone: () => boolean): void {
  sweepLeftFiles(SWEPT_PER_USE);
  watchExit();
  left.set(path, isPeerGone);
  owned.delete(path);
}

/** Removes files that were left to peers which have ended. Checks `countMax` files. Returns the number of removed files. */
function sweepLeftFiles(countMax: number = left.size): number {
  let removed = 0;
  for (const [path, isPeerGone] of [...left].slice(0, countMax)) {
    left.delete(path);
    if (!existsSync(path)) continue;
    if (isPeerGone()) removed += unlinkIfThere(path) ? 1 : 0;
    else left.set(path, isPeerGone);
  }
  unwatchExit();
  return removed;
}

/** Removes any file. Returns false if it does not exist, belongs to another user, or cannot be removed. */
export function unlinkIfThere(path: string): boolean {
  if (owned.delete(path)) unwatchExit();
  try {
    unlinkSync(path);
    return true;
  } catch (error) {
    const { code } = asError(error);
    if (UNREMOVABLE.includes(code)) return false;
    throw error;
  }
}

function watchExit(): void {
  if (owned.size + left.size === 0) process.once('exit', removeAll);
}

function unwatchExit(): void {
  if (owned.size + left.size === 0) process.off('exit', removeAll);
}

function removeAll(): void {
  sweepLeftFiles();
  for (const path of [...owned]) unlinkIfThere(path);
}
