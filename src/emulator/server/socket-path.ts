/** Socket path of node servers: the default path, checks of its folder, which no other user may enter, and the lock of the server that uses it. */

import { closeSync, existsSync, lstatSync, mkdirSync, openSync, rmSync, type Stats } from 'node:fs';
import { dirname, isAbsolute, join } from 'node:path';
import { Errno, errnoOf, PATH_BYTES_MAX, SyscallError, tryLockFile } from '../../sys/index.ts';
import { userId } from '../../ucs/sys/user-id.ts';
import { checkString } from '../../ucs/type/check-options.ts';
import { UcxError } from '../../ucs/type/error.ts';
import { Status } from '../../ucs/type/status.ts';

const FOLDER = 'gaudi-ucx';
const SOCKET = 'node.sock';
const OTHERS = 0o077;

/**
 * The default path of `node up` and its clients: in XDG_RUNTIME_DIR, else in a folder of the user in /tmp.
 * @param runtimeDirectory value of XDG_RUNTIME_DIR; ignored if it is relative, as the XDG specification demands, or too long for a socket
 */
export function defaultSocketPath(runtimeDirectory: string | undefined): string {
  if (runtimeDirectory !== undefined) checkString('runtimeDirectory', runtimeDirectory);
  const path = join(runtimeDirectory ?? '', FOLDER, SOCKET);
  const isUsable = isAbsolute(path) && Buffer.byteLength(path) <= PATH_BYTES_MAX;
  return isUsable ? path : join('/tmp', `${FOLDER}-${userId()}`, SOCKET);
}

/**
 * Creates the folder of a socket, for its owner only, unless it exists.
 * @throws SyscallError EACCES, ENOTDIR; ENOENT in a file system that cannot create folders, such as /proc; EPERM for a folder of the default path that
 * others may enter or that another user owns
 */
export function prepareFolder(socketPath: string): void {
  checkString('socketPath', socketPath);
  const folder = dirname(socketPath);
  try {
    createFolder(folder);
  } catch (error) {
    throw new SyscallError('mkdir', errnoOf(error), folder, { cause: error });
  }
  checkFolder(socketPath);
}

/** Creates a folder and its parents, one at a time: `recursive` of Node.js 20 never returns if mkdir fails with ENOENT in a folder that exists. */
function createFolder(folder: string): void {
  if (existsSync(folder)) return;
  createFolder(dirname(folder));
  try {
    mkdirSync(folder, 0o700);
  } catch (error) {
    // Another process may have created it meanwhile.
    if (!existsSync(folder)) throw error;
  }
}

/**
 * Checks that a folder of the default path has the expected owner and mode, so that its socket can be trusted. Folders chosen by the user are not checked.
 * @throws SyscallError EPERM; EACCES, ENOTDIR if XDG_RUNTIME_DIR is not a folder, or is the folder of another user, as after `su`
 */
export function checkFolder(socketPath: string): void {
  const folder = dirname(socketPath);
  if (!folder.endsWith(`/${FOLDER}`) && folder !== dirname(defaultSocketPath(undefined))) return;
  let status: Stats | undefined;
  try {
    status = lstatSync(folder, { throwIfNoEntry: false });
  } catch (error) {
    throw new SyscallError('lstat', errnoOf(error), folder, { cause: error });
  }
  if (status === undefined) return;
  if (!status.isDirectory() || status.uid !== userId() || (status.mode & OTHERS) !== 0) {
    throw new SyscallError('open', Errno.EPERM, `${folder} must be a folder that this user owns, with mode 0700`);
  }
}

/**
 * Locks the file beside the socket; the lock is released when this process ends, for any reason.
 * @param whyBusy called if another server has the lock: what is known about it, such as that it is stopped
 * @returns the descriptor of the lock
 * @throws UcxError ERR_NODE_RUNNING
 */
export function lockSocket(path: string, whyBusy: (path: string) => string | undefined = () => undefined): number {
  const fd = openSync(`${path}.lock`, 'a', 0o600);
  if (tryLockFile(fd)) return fd;
  closeSync(fd);
  const reason = whyBusy(path);
  throw new UcxError({
    code: 'ERR_NODE_RUNNING',
    status: Status.ALREADY_EXISTS,
    message: `a node server already runs at ${path}${reason === undefined ? '' : `: ${reason}`}`,
    details: { path },
  });
}

/** Whether the path is a file that is not a socket, which a server cannot have left. */
export function isOtherFile(path: string): boolean {
  return lstatSync(path, { throwIfNoEntry: false })?.isSocket() === false;
}

/** Removes the socket that a killed server has left. @throws UcxError ERR_NODE_RUNNING if another one has started meanwhile */
export function removeLeftSocket(path: string): void {
  const fd = lockSocket(path);
  if (lstatSync(path, { throwIfNoEntry: false })?.isSocket() === true) rmSync(path, { force: true });
  closeSync(fd);
}
