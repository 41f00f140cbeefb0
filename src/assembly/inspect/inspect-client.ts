/** Requests snapshots from processes. The exit of a process and a missing reply, because its event loop is busy, are results too. */

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
/** Longest snapshot that is read. */
const SNAPSHOT_BYTES_MAX = 256 * 2 ** 20;

/** The answer of one thread of a process. */
export interface InspectAnswer {
  readonly pid: number;
  readonly tid: number;
  /** Undefined if there is none. */
  readonly snapshot: ProcessSnapshot | undefined;
  /** Why there is none. */
  readonly failure: string | undefined;
}

/** The processes to ask, and the time to wait for them. */
export interface InspectQuery {
  /** Value of XDG_RUNTIME_DIR. */
  readonly runtimeDirectory: string | undefined;
  readonly clock: Clock;
  /** Time for an answer. */
  readonly timeoutNs: number;
  /** Only this process; undefined for all of the user. */
  readonly pid?: number | undefined;
}

/** Asks the processes of the user at the same time. Those that end meanwhile are omitted. @throws SyscallError if their folder cannot be read */
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
      return failed(
        `no answer in ${timeoutNs / 1e9} s: its event loop is busy, it is stopped, or it has no descriptors left`,
      );
    }
    const message = Buffer.alloc(REASON_BYTES_MAX);
    const received = connection.recvmsg(message, fds);
    if (received === 0 || received === -Errno.ECONNRESET) {
      return isServed(socket.path) ? failed('closed without an answer') : undefined;
    }
    const [fd] = fds;
    if (fd === undefined) return failed(received > 1 ? printable(message, received) : 'the answer has no snapshot');
    return { pid, tid: socket.tid, snapshot: readSnapshot(fd), failure: undefined };
  } catch (error) {
    if (error instanceof SnapshotError || isSyscallError(error)) return failed(error.message);
    throw error;
  } finally {
    for (const fd of fds) close(fd);
    connection?.close();
  }
}

/** Undefined if no process listens at the path any more. */
function connectTo(path: string): UnixSocket | undefined {
  try {
    return connectUnix(path, SocketType.SEQPACKET);
  } catch (error) {
    if (!isSyscallError(error)) throw error;
    // The socket of a process that was killed, and whose end could not be seen, as in another container.
    if (error.errno === Errno.ECONNREFUSED) unlinkIfThere(path);
    if (error.errno === Errno.ECONNREFUSED || error.errno === Errno.ENOENT) return undefined;
    throw error;
  }
}

/** Whether a process still listens at the path: the kernel closes the sockets of an ending process before its pid is free. */
function isServed(path: string): boolean {
  const connection = connectTo(path);
  connection?.close();
  return connection !== undefined;
}

/** The reason that a process gives; control characters, which a terminal would obey, are replaced. */
function printable(message: Buffer, byteLength: number): string {
  return message.toString('utf8', 0, byteLength).replaceAll(/\p{C}/gu, '?');
}

/** A snapshot that cannot be read. */
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
  if (byteLength > SNAPSHOT_BYTES_MAX) throw new SnapshotError(`the snapshot has ${byteLength} bytes`);
  let snapshot: Partial<ProcessSnapshot>;
  try {
    snapshot = JSON.parse(readFileSync(`/proc/self/fd/${fd}`, 'utf8'));
  } catch (error) {
    throw new SnapshotError(`the snapshot is malformed: ${asError(error).message}`);
  }
  if (snapshot?.format !== SNAPSHOT_FORMAT) {
    throw new SnapshotError(
      `the process has ${snapshot?.version ?? 'an unknown version'} of gaudi-ucx, whose format is another one`,
    );
  }
  return snapshot as ProcessSnapshot;
}

/** Waits for an answer, or the end of the connection; false if there is neither in time. */
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
