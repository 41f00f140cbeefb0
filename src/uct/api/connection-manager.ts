/**
 * Connection managers (uct_cm): two programs connect by a socket address before either has the worker address of the other.
 *
 * A client sends private data to a listener. The listener's program accepts with its private data, or rejects, and the client confirms the
 * acceptance. The workers connect with this data.
 */

import type { StatsNode } from '../../ucs/stats/stats-node.ts';
import type { UcxError } from '../../ucs/type/error.ts';
import type { Status } from '../../ucs/type/status.ts';

/** A numeric address, for link-local IPv6 with its zone, and a port. */
export interface SocketAddress {
  /** Numeric IPv4 or IPv6 address. */
  readonly address: string;
  /** Port, 0 to 65535. */
  readonly port: number;
}

/** Longest private data of either side. */
export const PRIVATE_DATA_BYTES_MAX = 16_384;
/** Longest reason of a rejection in bytes of UTF-8; the rest is cut off. */
export const REASON_BYTES_MAX = 512;

/** A client that waits for a decision: exactly one of accept and reject replies to it. */
export interface ClientRequest {
  /** Address of the client. */
  readonly clientAddress: SocketAddress;
  /** Address of the listener that was connected to. */
  readonly serverAddress: SocketAddress;
  /** Private data of the client. */
  readonly privateData: Uint8Array;
  /** False once the request was answered, the client has disconnected, or the listener's manager has closed. */
  readonly live: boolean;
  /**
   * Accepts the request.
   * @param onSettled called once inside progress, unless the manager closes before: OK if the client continues, its failure if it cannot, CONNECTION_RESET
   *   if it has disconnected, TIMED_OUT if it does not confirm
   * @throws UcxError ERR_INVALID_PARAM for too long private data; ERR_NOT_CONNECTED if the client has disconnected or the request was answered
   */
  accept(privateData: Uint8Array, onSettled: (status: Status) => void): void;
  /** Rejects the request: the client gets the status, a failure, and the reason as text for users. No effect on a request that is not live. */
  reject(status: Status, reason: string): void;
}

/** A listening address. */
export interface SocketListener {
  /** The address, with the actual port. */
  readonly address: SocketAddress;
  /** Stops listening: no more requests are reported, but reported ones can still be answered. Idempotent. */
  close(): void;
}

/** The result of an attempt to connect. */
export interface ConnectAnswer {
  /** OK; REJECTED or the status of the server; UNREACHABLE, TIMED_OUT, CONNECTION_RESET. */
  readonly status: Status;
  /** Private data of the server; empty for a failure. */
  readonly privateData: Uint8Array;
  /** Address of the client, if there was a connection. */
  readonly clientAddress?: SocketAddress | undefined;
  /** Address of the server, if there was a connection. */
  readonly serverAddress?: SocketAddress | undefined;
  /** The cause of a failure. */
  readonly error?: UcxError | undefined;
}

/** An attempt to connect. */
export interface ConnectAttempt {
  /** Cancels the attempt: no answer is reported. Idempotent. */
  cancel(): void;
}

/**
 * Receives the answer of a listener.
 * @returns OK to continue with an accepted connection, or the reason why that is impossible, which the server receives. Ignored after a failure
 */
export type OnConnectAnswer = (answer: ConnectAnswer) => Status;

/** A connection manager of one worker. Its callbacks run inside `progress()`. */
export interface ConnectionManager {
  /** Name of its transport, such as `tcp`. */
  readonly name: string;
  /** Time limit for each step of either side in nanoseconds; Infinity for none. */
  readonly timeoutNs: number;
  /**
   * Starts listening.
   * @param address port 0 for any free port; `0.0.0.0` or `::` for every device
   * @param onRequest called inside progress for every client
   * @throws UcxError ERR_INVALID_PARAM; SyscallError EADDRINUSE, EADDRNOTAVAIL, EACCES, EMFILE
   */
  listen(address: SocketAddress, backlog: number, onRequest: (request: ClientRequest) => void): SocketListener;
  /**
   * Connects to a listener.
   * @param onAnswer called once inside progress, unless the attempt is cancelled before
   */
  connect(address: SocketAddress, privateData: Uint8Array, onAnswer: OnConnectAnswer): ConnectAttempt;
  /** Drives the manager; returns how many callbacks ran. */
  progress(): number;
  /** Number of pending attempts, pending clients and listeners. While there are any, progress must be called, and waiting is possible. */
  readonly outstanding: number;
  /** Sleeps until progress may have something to do or `timeoutNs` has passed, without blocking the event loop. */
  wait(timeoutNs: number): Promise<void>;
  /** Statistics and current state: a node of class `uct_cm`. */
  stats(): StatsNode;
  /** Closes listeners, cancels attempts and rejects pending requests; nothing is reported afterwards. Idempotent. */
  close(): void;
}
