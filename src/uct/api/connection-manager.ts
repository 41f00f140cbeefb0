/**
 * Connection managers: how two programs find each other by a socket address before they know each other's worker addresses (uct_cm). Types only.
 *
 * A client sends private data to a listener; the listener's program accepts with private data of its own, or rejects; the client confirms that it goes on
 * with it. Nothing else goes this way: the connection of the workers is made with what was exchanged.
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

/** A client that waits for an answer. Exactly one of accept and reject answers it. */
export interface ClientRequest {
  /** Address of the client. */
  readonly clientAddress: SocketAddress;
  /** Address of the listener that was connected to. */
  readonly serverAddress: SocketAddress;
  /** What the client sent. */
  readonly privateData: Uint8Array;
  /** False once it was answered, the client has gone away, or the listener's manager has closed. */
  readonly live: boolean;
  /**
   * Accepts.
   * @param onSettled called once inside progress, unless the manager closes before: OK when the client goes on, its failure when it cannot,
   *   CONNECTION_RESET when it has gone away, TIMED_OUT when it says nothing
   * @throws UcxError ERR_INVALID_PARAM for too long private data; ERR_NOT_CONNECTED when the client has gone away or was answered
   */
  accept(privateData: Uint8Array, onSettled: (status: Status) => void): void;
  /**
   * Rejects: the client gets the status, a failure, and the reason, words for users. Without effect on a request that is not live.
   */
  reject(status: Status, reason: string): void;
}

/** A listening address. */
export interface SocketListener {
  /** With the port that was taken. */
  readonly address: SocketAddress;
  /** Ends listening: nothing is reported any more; requests that were handed out can still be answered. Idempotent. */
  close(): void;
}

/** How an attempt to connect has ended. */
export interface ConnectAnswer {
  /** OK; REJECTED or what the server said; UNREACHABLE, TIMED_OUT, CONNECTION_RESET. */
  readonly status: Status;
  /** What the server sent; empty for a failure. */
  readonly privateData: Uint8Array;
  /** The own end and the server's, where there was a connection. */
  readonly clientAddress?: SocketAddress;
  /** Address of the server. */
  readonly serverAddress?: SocketAddress;
  /** The cause of a failure. */
  readonly error?: UcxError;
}

/** An attempt to connect. */
export interface ConnectAttempt {
  /** Gives up: no answer is reported. Idempotent. */
  cancel(): void;
}

/**
 * Takes an answer.
 * @returns OK to go on with what was accepted, else why that cannot be: the server is told. Of no meaning after a failure
 */
export type OnConnectAnswer = (answer: ConnectAnswer) => Status;

/** A connection manager of one worker. Its callbacks run inside `progress()`. */
export interface ConnectionManager {
  /** Name of its transport, such as `tcp`. */
  readonly name: string;
  /** Time in which either side has to do what is its turn; Infinity for no bound. */
  readonly timeoutNs: number;
  /**
   * Listens.
   * @param address port 0 for one that is free; `0.0.0.0` or `::` for every device
   * @param onRequest called inside progress for every client
   * @throws UcxError ERR_INVALID_PARAM; SyscallError EADDRINUSE, EADDRNOTAVAIL, EACCES, EMFILE
   */
  listen(address: SocketAddress, backlog: number, onRequest: (request: ClientRequest) => void): SocketListener;
  /**
   * Connects to a listener.
   * @param onAnswer called once inside progress, unless the attempt is cancelled before
   * @throws UcxError ERR_INVALID_PARAM
   */
  connect(address: SocketAddress, privateData: Uint8Array, onAnswer: OnConnectAnswer): ConnectAttempt;
  /** Drives it; returns how many callbacks ran. */
  progress(): number;
  /** Attempts and clients that something is still to be heard of, and listeners: while there are any, it has to be driven, and can be slept on. */
  readonly outstanding: number;
  /** Sleeps until progress may have something to do, or `timeoutNs` is over, without blocking the event loop. */
  wait(timeoutNs: number): Promise<void>;
  /** What it has done, and what it holds: a node of class `uct_cm`. */
  stats(): StatsNode;
  /** Closes listeners, gives up attempts, rejects what waits; nothing is reported any more. Idempotent. */
  close(): void;
}
