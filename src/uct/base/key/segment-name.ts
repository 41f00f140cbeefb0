/**
 * Packed names of segments: the creator, and the path or descriptor by which peers open it. Fixed-size bytes in addresses and keys.
 *
 * A segment has a path in a folder, or only a descriptor of its creator (`/proc/PID/fd/N`), as in UCX with UCX_POSIX_USE_PROC_LINK=y. The kernel releases a
 * segment without a path with its last descriptor and mapping, however its creator ends. Peers of another pid namespace find only those with a path.
 */

import { basename } from 'node:path';
import {
  close as closeFd,
  Errno,
  gettid,
  isThreadAlive,
  OpenFlag,
  open,
  ownIdentity,
  PROCESS_IDENTITY_BYTES,
  type ProcessIdentity,
  packIdentity,
  readlink,
  SyscallError,
  unpackIdentity,
} from '../../../sys/index.ts';
import { systemRandomBytes } from '../../../ucs/sys/random.ts';

/** The default folder of segments. */
export const SEGMENT_FOLDER = '/dev/shm';
/** Bytes of a packed name: the identity of the creator, and a tag. */
export const SEGMENT_NAME_BYTES = 32;
/** Bytes of the tag, which distinguishes the names of one process: random bytes, descriptor, id of the creating thread. */
export const TAG_BYTES: number = SEGMENT_NAME_BYTES - PROCESS_IDENTITY_BYTES;

const PREFIX = 'gaudi_ucx';
const RANDOM_BYTES = 8;
const AT_FD = 8;
const AT_THREAD = 12;
/** Names of files of segments, and of files beside them with the same name and a suffix. */
const FILE_NAME = /^gaudi_ucx\.(\d{1,10})\.(\d{1,10})\.(\d{1,16})\.([0-9a-f]{32})(?:\.[a-z]+)?$/;

/** A new name, without a descriptor. */
export function newName(): Uint8Array {
  const name = new Uint8Array(SEGMENT_NAME_BYTES);
  packIdentity(ownIdentity(), name, 0);
  name.set(newTag(), PROCESS_IDENTITY_BYTES);
  return name;
}

/** A random tag for a new name, which contains the id of this thread. */
export function newTag(): Uint8Array {
  const tag = new Uint8Array(TAG_BYTES);
  tag.set(systemRandomBytes(RANDOM_BYTES));
  viewOf(tag).setUint32(AT_THREAD, gettid(), true);
  return tag;
}

/** Records the descriptor by which peers open the segment. */
export function setDescriptor(packedName: Uint8Array, fd: number): void {
  viewOf(packedName).setInt32(PROCESS_IDENTITY_BYTES + AT_FD, fd, true);
}

/** The descriptor of the creator by which peers open the segment; 0 if it has a path. */
export function descriptorOf(packedName: Uint8Array): number {
  return viewOf(packedName).getInt32(PROCESS_IDENTITY_BYTES + AT_FD, true);
}

/** Path of the file; if the segment has only a descriptor, the path before the file was unlinked. Accepts any bytes as the name. */
export function segmentPath(packedName: Uint8Array, folder: string = SEGMENT_FOLDER): string {
  const { pidNamespace, pid, startTime } = unpackIdentity(packedName, 0);
  // Copied: slices of a Buffer share its memory.
  const tag = new Uint8Array(packedName.subarray(PROCESS_IDENTITY_BYTES, SEGMENT_NAME_BYTES));
  viewOf(tag).setInt32(AT_FD, 0, true);
  return `${folder}/${PREFIX}.${pidNamespace}.${pid}.${startTime}.${Buffer.from(tag).toString('hex')}`;
}

/** The creator of a file with this name in a folder of segments; undefined for other files. */
export function creatorOf(fileName: string): { readonly owner: ProcessIdentity; readonly thread: number } | undefined {
  const match = FILE_NAME.exec(fileName);
  if (match === null) return undefined;
  const owner = { pidNamespace: Number(match[1]), pid: Number(match[2]), startTime: Number(match[3]) };
  return { owner, thread: viewOf(Buffer.from(match[4]!, 'hex')).getUint32(AT_THREAD, true) };
}

/**
 * Whether the thread that created a segment was certainly terminated: its process may continue, with its descriptors open. False for a thread of another pid
 * namespace, whose state is unknown.
 */
export function hasMakerEnded(packedName: Uint8Array): boolean {
  const { pidNamespace, pid } = unpackIdentity(packedName, 0);
  if (pidNamespace !== ownIdentity().pidNamespace) return false;
  return !isThreadAlive(viewOf(packedName).getUint32(PROCESS_IDENTITY_BYTES + AT_THREAD, true), pid);
}

/** A file of another process: its path, and the descriptor if it no longer has one there. */
export interface SharedFile {
  readonly path: string;
  readonly pid: number;
  /** 0 for a file with a path. */
  readonly fd: number;
}

/**
 * Opens a file that another process shares.
 * @param flags of OpenFlag
 * @throws SyscallError as open(2) and readlink(2); ENOENT if the descriptor is that of another file, because the process has closed it
 */
export function openShared({ path, pid, fd }: SharedFile, flags: number): number {
  if (fd === 0) return open(path, flags | OpenFlag.NOFOLLOW);
  const link = `/proc/${pid}/fd/${fd}`;
  // Checked before too: opening another file, such as a device, might have side effects.
  checkLink(link, path);
  const opened = open(link, flags);
  try {
    checkLink(`/proc/self/fd/${opened}`, path);
    return opened;
  } catch (error) {
    closeFd(opened);
    throw error;
  }
}

/** Checks that a link points to the removed file with this path. Folders may differ: the process may be in another mount namespace. */
function checkLink(link: string, path: string): void {
  const target = readlink(link);
  if (basename(target) === `${basename(path)} (deleted)`) return;
  throw new SyscallError('readlink', Errno.ENOENT, `${link} is ${target}, not ${basename(path)}`);
}

function viewOf(bytes: Uint8Array): DataView {
  return new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
}
