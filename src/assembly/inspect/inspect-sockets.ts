/** The inspect sockets of a user: their folder, which only this user may enter, and their names, which identify their owners. */

import { existsSync, readdirSync, rmdirSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { defaultSocketPath, prepareFolder } from '../../emulator/index.ts';
import {
  Errno,
  errnoOf,
  gettid,
  hasEnded,
  listenUnix,
  ownIdentity,
  type ProcessIdentity,
  SocketType,
  SyscallError,
} from '../../sys/index.ts';
import { systemRandomBytes } from '../../ucs/sys/random.ts';
import { unlinkIfThere } from '../../uct/base/key/segment.ts';

/** `.new`: not ready yet. */
const NAME = /^inspect-(\d+)-(\d+)-(\d+)-(\d+)-[\da-f]{8}\.sock(\.new)?$/;
/** Distinguishes the instances of this module in one thread, such as two versions of the package. */
const INSTANCE = Buffer.from(systemRandomBytes(4)).toString('hex');

/** The socket of a thread. */
export interface InspectSocket {
  readonly path: string;
  readonly process: ProcessIdentity;
  readonly tid: number;
}

/** The folder of the sockets. @param runtimeDirectory value of XDG_RUNTIME_DIR */
export function socketFolder(runtimeDirectory: string | undefined): string {
  return dirname(defaultSocketPath(runtimeDirectory));
}

/**
 * The path of the socket of this thread, in its folder, which is created.
 * @param runtimeDirectory value of XDG_RUNTIME_DIR
 * @throws SyscallError as `prepareFolder`
 */
export function ownSocketPath(runtimeDirectory: string | undefined): string {
  const anySocket = defaultSocketPath(runtimeDirectory);
  prepareFolder(anySocket);
  const { pidNamespace, pid, startTime } = ownIdentity();
  return join(dirname(anySocket), `inspect-${pidNamespace}-${pid}-${gettid()}-${startTime}-${INSTANCE}.sock`);
}

/**
 * Creates a socket in the folder and removes it, and the folder too unless it existed.
 * @returns the folder
 * @throws SyscallError as `prepareFolder`, and as bind: EROFS, ENOSPC without free inodes; UcxError ERR_INVALID_PARAM for a path that is too long
 */
export function trySocketFolder(runtimeDirectory: string | undefined): string {
  const folder = socketFolder(runtimeDirectory);
  const missing = missingFolders(folder);
  try {
    // The name of a socket that is not ready: if this process is killed, the next one removes it.
    const path = `${ownSocketPath(runtimeDirectory)}.new`;
    listenUnix(path, SocketType.SEQPACKET).close();
    unlinkIfThere(path);
  } finally {
    for (const path of missing) if (existsSync(path)) removeIfEmpty(path);
  }
  return folder;
}

/** The missing folders of a path, the innermost first. */
function missingFolders(folder: string): string[] {
  return existsSync(folder) ? [] : [folder, ...missingFolders(dirname(folder))];
}

/** Another process may use the folder meanwhile, or have removed it. */
function removeIfEmpty(folder: string): void {
  try {
    rmdirSync(folder);
  } catch (error) {
    const code = errnoOf(error);
    if (code !== Errno.ENOENT && code !== Errno.ENOTEMPTY) throw error;
  }
}

/**
 * The sockets of all processes of the user, in the order of their pids; empty if the folder does not exist. Sockets of processes and threads that were
 * certainly killed are removed.
 * @throws SyscallError if the folder cannot be read
 */
export function inspectSockets(runtimeDirectory: string | undefined): InspectSocket[] {
  const folder = socketFolder(runtimeDirectory);
  let names: string[];
  try {
    names = readdirSync(folder);
  } catch (error) {
    const errno = errnoOf(error);
    if (errno === Errno.ENOENT) return [];
    throw new SyscallError('readdir', errno, `reading of the socket folder ${folder}`, { cause: error });
  }
  const sockets: InspectSocket[] = [];
  for (const name of names) {
    const match = NAME.exec(name);
    if (match === null) continue;
    const [pidNamespace, pid, tid, startTime] = match.slice(1, 5).map(Number) as [number, number, number, number];
    const socket = { path: join(folder, name), process: { pidNamespace, pid, startTime }, tid };
    if (isStale(socket)) unlinkIfThere(socket.path);
    else if (match[5] === undefined) sockets.push(socket);
  }
  return sockets.sort((left, right) => left.process.pid - right.process.pid || left.tid - right.tid);
}

/** False for threads of processes in other pid namespaces, whose state is unknown. */
function isStale({ process: { pid, pidNamespace, startTime }, tid }: InspectSocket): boolean {
  if (pidNamespace !== ownIdentity().pidNamespace) return false;
  return hasEnded({ pid, pidNamespace, startTime }) || !existsSync(`/proc/${pid}/task/${tid}`);
}
