/** Requests snapshots from processes. The result also shows processes that do not reply because their event loop is busy. */

import { readFileSync } from 'node:fs';
import {
  close,
  connectUnix,
  Errno,
  fileStatus,
  getSeals,
  isSyscallError,
  type PollSubscription,
  pollReadable,
  SocketType,
  type UnixSocket,
} from '../../sys/index.ts';
import type { Clock, Timer } from '../../ucs/sys/clock.ts';
import { effectiveUserId } from '../../ucs/sys/user-id.ts';
import { asError } from '../../ucs/type/error.ts';
import { unlinkIfThere } from '../../uct/base/key/segment.ts';
import { REASON_BYTES_MAX, SNAPSHOT_SEALS } from './inspect-server.ts';
import { type InspectSocket, inspectSockets } from './inspect-sockets.ts';
import { type ProcessSnapshot, SNAPSHOT_FORMAT } from './process-snapshot.ts';

/** User id that may inspect the processes of all users. */
const SUPERUSER = 0;
/** Limit of a snapshot in bytes. */
const SNAPSHOT_BYTES_MAX = 256 * 2 ** 20;

/** The reply of one thread of a process. */
export interface InspectAnswer {
  readonly pid: number;
  readonly tid: number;
  /** Undefined if the process has not sent one. */
  readonly snapshot: ProcessSnapshot | undefined;
  /** Why the snapshot is missing. */
  readonly failure: string | undefined;
}

/** The processes to query, and the timeout. */
export interface InspectQuery {
  /** Value of XDG_RUNTIME_DIR. */
  readonly runtimeDirectory: string | undefined;
  readonly clock: Clock;
  /** Timeout of a reply. */
  readonly timeoutNs: number;
  /** Only this process; undefined for all processes of the user. */
  readonly pid?: number | undefined;
}

/** Queries the processes of the user at the same time. Processes that end meanwhile are omitted. @throws SyscallError if their folder cannot be read */
export async function inspectProcesses(query: InspectQuery): Promise<InspectAnswer[]> {
  const sockets = inspectSockets(query.runtimeDirectory).filter(
    ({ process }) => query.pid === undefined || process.pid === query.pid,
  );
  const answers = await Promise.all(sockets.map((socket) => ask(socket, query)));
  return answers.filter((answer) => answer !== undefined);
}

/** Undefined for a process that has ended. */
async function ask(socket: InspectSocket, { clock, timeoutNs }: InspectQuery): Promise<InspectAnswer | undefined> {
  const { pid } = socket.process;
  const fds: number[] = [];
  const failed = (failure: string): InspectAnswer => ({ pid, tid: socket.tid, snapshot: undefined, failure });
  let connection: UnixSocket | undefined;
  try {
    connection = connectTo(socket.path);
    if (connection === undefined) return undefined;
    const { uid } = connection.peerCredentials();
    if (uid !== effectiveUserId() && effectiveUserId() !== SUPERUSER)
      return failed(`the socket is served by user ${uid}`);
    if (!(await isReadable(connection, clock, timeoutNs))) {
      return failed(`no reply within ${timeoutNs / 1e9} s: the process is busy, stopped, or out of file descriptors`);
    }
    const message = Buffer.alloc(REASON_BYTES_MAX);
    const received = connection.recvmsg(message, fds);
    if (received === 0 || received === -Errno.ECONNRESET) {
      return isServed(socket.path) ? failed('connection closed without a reply') : undefined;
    }
    const [fd] = fds;
    if (fd === undefined) return failed(received > 1 ? printable(message, received) : 'the reply has no snapshot');
    return { pid, tid: socket.tid, snapshot: readSnapshot(fd), failure: undefined };
  } catch (error) {
    if (error instanceof SnapshotError || isSyscallError(error)) return failed(error.message);
    throw error;
  } finally {
    for (const fd of fds) close(fd);
    connection?.close();
  }
}

/** Undefined if no process listens at the path. */
function connectTo(path: string): UnixSocket | undefined {
  try {
    return connectUnix(path, SocketType.SEQPACKET);
  } catch (error) {
    if (!isSyscallError(error)) throw error;
    // The process of this socket was killed. For a process in another container, ECONNREFUSED is the only sign of that.
    if (error.errno === Errno.ECONNREFUSED) unlinkIfThere(path);
    if (error.errno === Errno.ECONNREFUSED || error.errno === Errno.ENOENT) return undefined;
    throw error;
  }
}

/** Whether a process still listens at the path. The kernel closes the sockets of an ending process before its pid is free. */
function isServed(path: string): boolean {
  const connection = connectTo(path);
  connection?.close();
  return connection !== undefined;
}

/** The reason that a process has sent, without control characters, which a terminal would interpret. */
function printable(message: Buffer, byteLength: number): string {
  return message.toString('utf8', 0, byteLength).replaceAll(/\p{C}/gu, '?');
}

/** An unreadable snapshot. */
class SnapshotError extends TypeError {}

/** Reads sealed memory: its length is final, and reading it does not block. */
function readSnapshot(fd: number): ProcessSnapshot {
  let seals: number;
  try {
    seals = getSeals(fd);
  } catch {
    throw new SnapshotError('the reply is not sealed memory');
  }
  if ((seals & SNAPSHOT_SEALS) !== SNAPSHOT_SEALS) throw new SnapshotError('the reply is not sealed memory');
  const { byteLength } = fileStatus(fd);
  if (byteLength > SNAPSHOT_BYTES_MAX)
    throw new SnapshotError(`the snapshot has ${byteLength} bytes, at most ${SNAPSHOT_BYTES_MAX} are read`);
  let snapshot: Partial<ProcessSnapshot>;
  try {
    snapshot = JSON.parse(readFileSync(`/proc/self/fd/${fd}`, 'utf8'));
  } catch (error) {
    throw new SnapshotError(`the snapshot is malformed: ${asError(error).message}`);
  }
  if (snapshot?.format !== SNAPSHOT_FORMAT) {
    throw new SnapshotError(
      `the process uses gaudi-ucx ${snapshot?.version ?? 'of unknown version'}, whose snapshot format is different: use its gaudi-ucx inspect`,
    );
  }
  return snapshot as ProcessSnapshot;
}

/** Waits for a reply, or the end of the connection; false after the timeout. */
async function isReadable(connection: UnixSocket, clock: Clock, timeoutNs: number): Promise<boolean> {
  let subscription: PollSubscription | undefined;
  let timer: Timer | undefined;
  try {
    return await new Promise<boolean>((resolve) => {
      subscription = pollReadable(connection.fd, () => resolve(true));
      timer = clock.setTimer(timeoutNs, () => resolve(false));
      timer.ref();
    });
  } finally {
    subscription?.close();
    timer?.cancel();
  }
}
