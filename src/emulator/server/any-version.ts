/**
 * The requests that every version of a node server supports, without a greeting: its identity, and its end. All other messages and the shared memory
 * require the same protocol version in server and client.
 */

import { Errno, isSyscallError } from '../../sys/index.ts';
import { isUcxError } from '../../ucs/type/error.ts';
import { connectUngreeted, GREETING_NS, refuseIfShort, type ServerConnection } from './connection.ts';
import { NODE_PROTOCOL_VERSION } from './mailbox.ts';
import type { Message } from './message.ts';
import { isOtherFile, removeLeftSocket } from './socket-path.ts';

/** Who a server is. Later versions may add fields; none goes. */
export interface ServerIdentity {
  /** Process id of the server. */
  readonly pid: number;
  /** Path of its socket. */
  readonly socket: string;
  /** Version of its package, such as `0.1.0`; undefined for one from before protocol 8, which does not tell. */
  readonly package?: string;
  /** Version of its protocol; undefined likewise. */
  readonly protocol?: number;
  /** Seconds since its start; undefined likewise. */
  readonly upSeconds?: number;
  /** Whether a client of this version can use it; else it can only end it. */
  readonly usable?: boolean;
}

/**
 * Asks a server of any version who it is.
 * @throws UcxError ERR_NODE_UNREACHABLE, ERR_NODE_REFUSED
 */
export function identifyServer(socketPath: string): ServerIdentity {
  const connection = connectUngreeted(socketPath);
  try {
    const told = ask(connection, 'who')?.['who'] as Partial<ServerIdentity> | undefined;
    if (told === undefined) refuseIfShort(socketPath, connection.serverPid);
    const usable = told?.protocol === NODE_PROTOCOL_VERSION;
    return { pid: connection.serverPid, socket: socketPath, ...told, usable };
  } finally {
    connection.close();
  }
}

/**
 * Ends a server of any version, and waits until it has ended: all its clients lose their cards. One from before protocol 8 gets SIGTERM.
 * @returns its process id; undefined if it was killed before and has left its socket, which is then removed
 * @throws UcxError ERR_NODE_UNREACHABLE, ERR_NODE_REFUSED, also if it does not end in time
 */
export function endServer(socketPath: string): number | undefined {
  const connection = connectToEnd(socketPath);
  if (connection === undefined) return undefined;
  const { serverPid } = connection;
  try {
    if (ask(connection, 'shutdown') !== undefined) connection.awaitEnd();
    else {
      // The connection above has ended: the next one ends with the process, unless that has just been killed.
      const watch = connectToEnd(socketPath);
      if (watch === undefined) return serverPid;
      process.kill(serverPid, 'SIGTERM');
      watch.awaitEnd();
    }
    return serverPid;
  } finally {
    connection.close();
  }
}

/** Why the server at a path does not answer, if it is stopped; undefined for one that runs, and if none listens there. */
export function stoppedReasonAt(socketPath: string): string | undefined {
  try {
    const connection = connectUngreeted(socketPath);
    const reason = connection.stoppedReason;
    connection.close();
    return reason;
  } catch (error) {
    if (!isUcxError(error)) throw error;
    return undefined;
  }
}

/** Connects; if the server has left its socket without listening, removes the socket and returns undefined. */
function connectToEnd(socketPath: string): ServerConnection | undefined {
  try {
    return connectUngreeted(socketPath);
  } catch (error) {
    const isLeft = isUcxError(error) && error.details['errno'] === Errno.ECONNREFUSED && !isOtherFile(socketPath);
    if (!isLeft) throw error;
    removeLeftSocket(socketPath);
    return undefined;
  }
}

/** Why a client of another version is refused, and what helps. @param other package of the client @param protocol of the client */
export function otherVersionText(server: ServerIdentity, other: string, protocol: number): string {
  const { pid, socket, package: own, protocol: spoken } = server;
  return `the node server ${pid} at ${socket} is gaudi-ucx ${own}, protocol ${spoken}, and this client is gaudi-ucx ${other}, protocol ${protocol}: use one version, or end the server by gaudi-ucx node down`;
}

/** The reply; undefined if the server does not know the question, and ends the connection. */
function ask(connection: ServerConnection, op: string): Message | undefined {
  try {
    return connection.request({ op }, -1, GREETING_NS).message;
  } catch (error) {
    if (isSyscallError(error, Errno.ENODEV)) return undefined;
    throw error;
  }
}
