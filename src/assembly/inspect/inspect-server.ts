/**
 * Serves the snapshot of this thread at its inspect socket, to processes of the same user. A client gets one message with the descriptor of sealed memory
 * that contains the snapshot as JSON, or the reason why there is none. The server reads nothing from clients, so a slow or hostile client needs no memory of
 * the server. The socket does not keep the process alive, and has no cost until a client connects.
 */

import { chmodSync, renameSync, writeFileSync } from 'node:fs';
import {
  addSeals,
  close,
  Errno,
  isSyscallError,
  listenUnix,
  memfdCreate,
  type PollSubscription,
  pollReadable,
  SealFlag,
  SocketType,
  SyscallError,
  type UnixListener,
  type UnixSocket,
} from '../../sys/index.ts';
import type { Ternary } from '../../ucs/config/value.ts';
import type { Log } from '../../ucs/debug/log.ts';
import type { Clock, Timer } from '../../ucs/sys/clock.ts';
import { effectiveUserId } from '../../ucs/sys/user-id.ts';
import { asError, isUcxError, type UcxError } from '../../ucs/type/error.ts';
import { ownFile, unlinkIfThere } from '../../uct/base/key/segment.ts';
import { inspectSockets, ownSocketPath } from './inspect-sockets.ts';
import { processSnapshot } from './process-snapshot.ts';

/** Seals of the memory: its length and contents are final. */
export const SNAPSHOT_SEALS: number = SealFlag.SEAL | SealFlag.SHRINK | SealFlag.GROW | SealFlag.WRITE;
/** Limit of a message to a client with the reason for a missing snapshot. */
export const REASON_BYTES_MAX = 512;
/** Maximum number of clients that get the same snapshot; others get the next one. */
const CLIENTS_MAX = 64;
const MODE = 0o600;
/** Errors for a lack of descriptors or disk space. */
const RUN_OUT: readonly number[] = [Errno.EMFILE, Errno.ENFILE, Errno.ENOSPC, Errno.EDQUOT, Errno.ENOMEM];
/** Pause after accept has failed for lack of descriptors: the client stays in the backlog. */
const PAUSE_NS = 1e9;

/** The server of this thread. */
class InspectServer {
  readonly #listener: UnixListener;
  readonly #path: string;
  readonly #clock: Clock;
  readonly #log: Log;
  #subscription: PollSubscription | undefined;
  #pause: Timer | undefined;
  #hasWarned = false;

  /** @throws SyscallError, UcxError ERR_INVALID_PARAM for a path that is too long */
  constructor(path: string, clock: Clock, log: Log) {
    this.#path = path;
    this.#clock = clock;
    this.#log = log;
    // This name is not visible to clients until the socket listens and other users are excluded.
    const unready = `${path}.new`;
    unlinkIfThere(unready);
    this.#listener = listenUnix(unready, SocketType.SEQPACKET);
    try {
      chmodSync(unready, MODE);
      this.#subscribe();
      renameSync(unready, path);
      ownFile(path);
    } catch (error) {
      this.close();
      throw error;
    }
  }

  close(): void {
    this.#pause?.cancel();
    this.#subscription?.close();
    this.#listener.close();
    unlinkIfThere(this.#path);
  }

  #subscribe(): void {
    this.#subscription = pollReadable(this.#listener.fd, () => this.#serve());
    this.#subscription.unref();
  }

  #serve(): void {
    const clients: UnixSocket[] = [];
    try {
      for (let client = this.#listener.accept(); client !== undefined; client = this.#listener.accept()) {
        if (isSameUser(client)) clients.push(client);
        else client.close();
        if (clients.length === CLIENTS_MAX) break;
      }
      if (clients.length > 0) sendSnapshot(clients);
    } catch (error) {
      // A failure must not end the program, which did not request the inspection.
      this.#warn(error);
      sendReason(clients, asError(error).message);
      this.#subscription?.close();
      this.#resumeLater();
    } finally {
      for (const client of clients) client.close();
    }
  }

  #resumeLater(): void {
    this.#pause = this.#clock.setTimer(PAUSE_NS, () => {
      try {
        this.#subscribe();
      } catch (error) {
        this.#warn(error);
        this.#resumeLater();
      }
    });
  }

  /** Warns once, because clients can connect repeatedly. */
  #warn(error: unknown): void {
    const text = `inspect: cannot send a snapshot: ${asError(error).message}`;
    if (this.#hasWarned) this.#log.debug(text);
    else this.#log.warn(text);
    this.#hasWarned = true;
  }
}

/** The superuser may read the memory of the process anyway. */
function isSameUser(client: UnixSocket): boolean {
  const { uid } = client.peerCredentials();
  return uid === effectiveUserId() || uid === 0;
}

function sendSnapshot(clients: readonly UnixSocket[]): void {
  const fd = memfdCreate('gaudi-ucx-snapshot', { sealing: true });
  try {
    writeFileSync(fd, JSON.stringify(processSnapshot()));
    addSeals(fd, SNAPSHOT_SEALS);
    // The send buffer of a new connection is empty; a client that has left is not a failure.
    for (const client of clients) client.sendmsg(MESSAGE, [fd]);
  } finally {
    close(fd);
  }
}

/** Sends clients the reason for a missing snapshot: a message of at least two bytes, without a descriptor. */
function sendReason(clients: readonly UnixSocket[], reason: string): void {
  const text = Buffer.from(`no snapshot: ${reason}`).subarray(0, REASON_BYTES_MAX);
  for (const client of clients) {
    try {
      client.sendmsg(text);
    } catch (error) {
      // The client has left, or detects the end of the connection instead.
      if (!isSyscallError(error)) throw error;
    }
  }
}

/** A message has at least one byte. */
const MESSAGE = new Uint8Array(1);

let server: InspectServer | undefined;
let users = 0;

/** Parameters of opening the server. */
export interface InspectOptions {
  /** UCX_INSPECT. */
  readonly mode: Ternary;
  /** Value of XDG_RUNTIME_DIR. */
  readonly runtimeDirectory: string | undefined;
  readonly clock: Clock;
  readonly log: Log;
}

/**
 * Opens the server of this thread, which its contexts share.
 * @returns false without a server; otherwise {@link releaseServer} has to be called once
 * @throws SyscallError, UcxError with the reason, if the mode is `yes`; with `try` it is logged
 */
export function acquireServer({ mode, runtimeDirectory, clock, log }: InspectOptions): boolean {
  if (mode === 'no') return false;
  if (server === undefined) {
    try {
      const path = ownSocketPath(runtimeDirectory);
      // Removes the sockets of killed processes.
      inspectSockets(runtimeDirectory);
      server = new InspectServer(path, clock, log);
    } catch (caught) {
      const error = typed(caught);
      if (mode === 'yes' || !isUcxError(error)) throw error;
      reportNone(error, log);
      return false;
    }
  }
  users += 1;
  return true;
}

/** Whether this thread has warned that it has no server. */
let hasWarned = false;

/** Warns once if a resource is exhausted. An unusable folder, as in a container without one, is not reported. */
function reportNone(error: UcxError, log: Log): void {
  const text = `this process cannot be inspected: ${error.message}`;
  const isNews = isSyscallError(error) && RUN_OUT.includes(error.errno) && !hasWarned;
  if (isNews) log.warn(text);
  else log.debug(text);
  hasWarned ||= isNews;
}

/** Converts errors of file functions of Node.js to errors of this package. */
function typed(error: unknown): unknown {
  const { syscall, errno } = asError(error);
  if (isUcxError(error) || syscall === undefined || errno === undefined) return error;
  return new SyscallError(syscall, Math.abs(errno), 'creation of the inspect socket', { cause: error });
}

/** Called when a context with {@link acquireServer} closes; the last one closes the server. */
export function releaseServer(): void {
  users -= 1;
  if (users > 0) return;
  server?.close();
  server = undefined;
}
