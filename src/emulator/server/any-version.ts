/**
 * Requests that node servers of every version support, without a hello: to identify the server, and to end it. All other messages and the shared memory
 * require the same protocol version in server and client.
 */

import { Errno, isSyscallError } from '../../sys/index.ts';
import { isUcxError } from '../../ucs/type/error.ts';
import { connectUngreeted, GREETING_NS, requireServerDescriptors, type ServerConnection } from './connection.ts';
import { NODE_PROTOCOL_VERSION } from './mailbox.ts';
import type { Message } from './message.ts';
import { isOtherFile, removeLeftSocket } from './socket-path.ts';

/** Identity of a server. Later versions may add fields, but remove none. */
export interface ServerIdentity {
  /** Process id of the server. */
  readonly pid: number;
  /** Path of its socket. */
  readonly socket: string;
  /** Version of its package, such as `0.1.0`; undefined if its protocol is older than 8. */
  readonly package?: string;
  /** Version of its protocol; undefined if older than 8. */
  readonly protocol?: number;
  /** Seconds since its start; undefined if its protocol is older than 8. */
  readonly upSeconds?: number;
  /** Whether a client of this version can use it; otherwise it can only be ended. */
  readonly usable?: boolean;
}

/**
 * Queries the identity of a server of any version.
 * @throws UcxError ERR_NODE_UNREACHABLE, ERR_NODE_REFUSED
 */
export function identifyServer(socketPath: string): ServerIdentity {
  const connection = connectUngreeted(socketPath);
  try {
    const told = query(connection, 'who')?.['who'] as Partial<ServerIdentity> | undefined;
    if (told === undefined) requireServerDescriptors(socketPath, connection.serverPid);
    const usable = told?.protocol === NODE_PROTOCOL_VERSION;
    return { pid: connection.serverPid, socket: socketPath, ...told, usable };
  } finally {
    connection.close();
  }
}

/**
 * Ends a server of any version, and waits until it has ended: all its clients lose their cards. A server with a protocol older than 8 gets SIGTERM.
 * @returns its process id; undefined if it was killed earlier and left its socket, which is then removed
 * @throws UcxError ERR_NODE_UNREACHABLE; ERR_NODE_REFUSED, also if it does not end in time
 */
export function endServer(socketPath: string): number | undefined {
  const connection = connectToEnd(socketPath);
  if (connection === undefined) return undefined;
  const { serverPid } = connection;
  try {
    if (query(connection, 'shutdown') !== undefined) connection.awaitEnd();
    else {
      // The server has closed the connection above. This one closes when its process ends; it is undefined if the process was killed meanwhile.
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

/** Reason why the server at a path does not reply, if it is stopped; undefined if it runs, or if no server listens there. */
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

/** Connects; if an ended server has left its socket, removes the socket and returns undefined. */
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

/** Error message for a client of another version. @param other package of the client @param protocol protocol of the client */
export function otherVersionText(server: ServerIdentity, other: string, protocol: number): string {
  const { pid, socket, package: own, protocol: spoken } = server;
  return `the node server ${pid} at ${socket} is gaudi-ucx ${own}, protocol ${spoken}, but this client is gaudi-ucx ${other}, protocol ${protocol}: use the same version, or end the server by gaudi-ucx node down`;
}

/** The reply; undefined if the server does not know the request and closes the connection. */
function query(connection: ServerConnection, op: string): Message | undefined {
  try {
    return connection.request({ op }, -1, GREETING_NS).message;
  } catch (error) {
    if (isSyscallError(error, Errno.ENODEV)) return undefined;
    throw error;
  }
}
