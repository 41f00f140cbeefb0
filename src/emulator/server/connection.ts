/** The client side of a connection to a node server: requests and replies, the doorbell, and detection that the server has ended. */

import { randomFillSync } from 'node:crypto';
import { readdirSync, readFileSync } from 'node:fs';
import {
  allocateScratch,
  allowMemoryAccess,
  close as closeFd,
  connectUnix,
  Errno,
  errnoName,
  isProcessStopped,
  isProcessTraced,
  isSyscallError,
  MESSAGE_BYTES_MAX,
  PollEvent,
  type PollSubscription,
  pollFor,
  pollNow,
  pollReadable,
  SocketType,
  SyscallError,
  type UnixSocket,
} from '../../sys/index.ts';
import { systemClock, type Timer } from '../../ucs/sys/clock.ts';
import { packageVersion } from '../../ucs/sys/package.ts';
import { userId } from '../../ucs/sys/user-id.ts';
import { checkString } from '../../ucs/type/check-options.ts';
import { asError, UcxError } from '../../ucs/type/error.ts';
import { Status } from '../../ucs/type/status.ts';
import { NODE_PROTOCOL_VERSION } from './mailbox.ts';
import {
  decodeMessage,
  type ErrorReply,
  encodeMessage,
  errorOf,
  type Message,
  ProtocolError,
  RING,
} from './message.ts';
import { ServerWatch } from './server-watch.ts';
import { checkFolder, isOtherFile } from './socket-path.ts';

/** Time limit for the greeting of a server that has accepted the connection; without it the server counts as absent. */
export const GREETING_NS = 10e9;
/** Connection attempts to a server that closes the connection: with too many connections that have sent no hello, it closes the oldest one. */
const CONNECTS_MAX = 8;
/** Time limit for the shutdown of a server, which finishes transfers first. */
const END_NS = 30e9;
/** Time of the first poll for a reply, and of the later ones: the server is checked between polls. */
const FIRST_SLICE_MS = 10;
const SLICE_MS = 100;
/** Interval of the server checks while only non-blocking calls are pending. */
const CHECK_NS = 1e9;
/** Pause before the next attempt to connect to a server whose backlog is full. */
const FULL_MS = 1;
/** A file descriptor that poll(2) ignores. */
const NO_DESCRIPTOR = -1;
const HANG_UP: number = PollEvent.HUP | PollEvent.ERR | PollEvent.RDHUP;

/** A reply and the descriptor sent with it. */
export interface Reply {
  readonly message: Message;
  /** Owned by the caller; -1 for none. */
  readonly fd: number;
}

export class ServerConnection {
  readonly path: string;
  /** The process of the server. */
  readonly serverPid: number;
  readonly #socket: UnixSocket;
  readonly #bytes: Uint8Array = new Uint8Array(MESSAGE_BYTES_MAX);
  readonly #fds: number[] = [];
  /** Identity of the node, set by the server's greeting. */
  identity = '';
  /** Number of RDMA devices of the node, set by the greeting. */
  nics = 0;
  #onSettled: () => void = () => {};
  #nextId = 1;
  #alive = true;
  #subscription: PollSubscription | undefined;
  #waits = 0;
  readonly #watch: ServerWatch;
  /** Runs while non-blocking calls are pending. */
  #checking: Timer | undefined;
  #lostReason: string | undefined;
  /** Whether the server was stopped for too long; it may still continue. */
  #isGivenUp = false;

  /** @throws UcxError ERR_NODE_REFUSED; SyscallError */
  constructor(socket: UnixSocket, path: string) {
    this.path = path;
    this.#socket = socket;
    const { uid, pid } = socket.peerCredentials();
    this.serverPid = pid;
    const isStopped = (): boolean => isProcessStopped(pid) || isProcessTraced(pid);
    this.#watch = new ServerWatch({ clock: systemClock, isStopped });
    if (uid !== userId())
      throw rejected(path, `it serves only user ${uid}: start your own by gaudi-ucx node up --socket <path>`);
  }

  /** False once the server has ended or the connection is closed: no more replies arrive. */
  get alive(): boolean {
    return this.#alive;
  }

  /** Message that names the server and says that it has ended or was stopped for too long; undefined while it runs, and after {@link close}. */
  get lostReason(): string | undefined {
    return this.#lostReason;
  }

  /** Message that the server is stopped now, so that calls would wait; undefined while it runs. Reads a file in /proc. */
  get stoppedReason(): string | undefined {
    if (!this.#alive || !isProcessStopped(this.serverPid)) return undefined;
    return `${stoppedText(this.serverPid)} and does not reply: continue it by kill -CONT ${this.serverPid}`;
  }

  /** Sets the function that checks the mailboxes after calls have settled or the server has ended. */
  listen(onSettled: () => void): void {
    this.#onSettled = onSettled;
  }

  /** Checks whether the server still runs. */
  check(): boolean {
    if (this.#alive && (pollNow(this.#socket.fd, HANG_UP) & HANG_UP) !== 0) this.#fail();
    return this.#alive;
  }

  /** Like {@link check}, for a waiting call: a server that stays stopped for too long counts as lost too. */
  checkWaiting(): boolean {
    if (this.check() && this.#watch.look()) this.#giveUp();
    return this.#alive;
  }

  /**
   * Waits until the server closes the connection.
   * @throws UcxError ERR_NODE_REFUSED on time-out, or if the server is stopped
   */
  awaitEnd(): void {
    const deadlineNs = systemClock.nowNs() + END_NS;
    while (this.checkWaiting()) {
      if (systemClock.nowNs() >= deadlineNs) {
        const { serverPid } = this;
        throw this.#broken(
          `process ${serverPid} has not ended within ${END_NS / 1e9} s: end it by kill -KILL ${serverPid}`,
        );
      }
      pollFor(this.#socket.fd, PollEvent.IN, SLICE_MS);
    }
    // It has confirmed the request to end.
    if (this.#isGivenUp) throw rejected(this.path, `${stoppedText(this.serverPid)} and will end when it continues`);
  }

  /** Wakes the server. */
  ring(): void {
    if (!this.#alive) return;
    // If the queue is full, the queued messages wake the server too.
    const sent = this.#socket.sendmsg(RING);
    if (sent < 0 && sent !== -Errno.EAGAIN) this.#fail();
  }

  /**
   * Sends a request and waits for its reply. Blocks as a system call does. With a time-out, it does not wait for a stopped server, and the connection
   * stays usable.
   * @param fd a descriptor to send; -1 for none
   * @throws SyscallError ENODEV if the server has ended or was stopped for too long, EBADF for a bad descriptor, and errors of the server; UcxError
   * ERR_NODE_REFUSED after the time-out, or, if a time-out is given, for a stopped server
   */
  request(message: Message, fd = -1, timeoutNs: number = Number.POSITIVE_INFINITY): Reply {
    const id = this.#nextId++;
    this.#send(encodeMessage({ ...message, id }), fd);
    const deadlineNs = systemClock.nowNs() + timeoutNs;
    const isTimed = timeoutNs !== Number.POSITIVE_INFINITY;
    for (let sliceMs = FIRST_SLICE_MS; ; sliceMs = SLICE_MS) {
      const reply = this.#receive();
      if (reply !== undefined && reply.message['id'] === id) {
        const { error } = reply.message;
        if (error === undefined) return reply;
        if (reply.fd >= 0) closeFd(reply.fd);
        throw errorOf(error as ErrorReply);
      }
      if (reply !== undefined)
        throw this.#broken(`unexpected reply: id ${String(reply.message['id'])}, but the pending request has id ${id}`);
      if (!this.#alive) throw this.#lostError(isTimed);
      if (systemClock.nowNs() >= deadlineNs) {
        const reason = shortageOf(this.serverPid) ?? `process ${this.serverPid} is busy`;
        throw this.#broken(
          `no reply within ${timeoutNs / 1e9} s: ${reason}; repeat the command, or end the server by gaudi-ucx node down`,
        );
      }
      // Most replies arrive within the first poll. A server that has ended may have replied before.
      const hasCome = pollFor(this.#socket.fd, PollEvent.IN, sliceMs) !== 0;
      if (!hasCome && (isTimed ? isProcessStopped(this.serverPid) : this.#watch.look())) this.#giveUp();
    }
  }

  /**
   * Sends a request whose reply has a descriptor.
   * @param undo called if this process cannot receive the descriptor: the server has already executed the request
   * @param fd a descriptor to send; -1 for none
   * @throws SyscallError EMFILE, and those of {@link request}
   */
  requestDescriptor(message: Message, undo: () => void, fd = -1): Reply {
    try {
      return this.request(message, fd);
    } catch (error) {
      if (isSyscallError(error, Errno.EMFILE) && error.syscall === 'recvmsg') undo();
      throw error;
    }
  }

  /** Sends a request; returns a field of the reply, or undefined if the server has ended. */
  query<T>(message: Message, field: string): T | undefined {
    if (!this.#alive) return undefined;
    try {
      return this.request(message).message[field] as T;
    } catch (error) {
      if (isSyscallError(error, Errno.ENODEV)) return undefined;
      throw error;
    }
  }

  /** Starts a non-blocking call: the event loop reports its end and keeps the process alive until then. */
  beginWait(): void {
    this.#waits += 1;
    if (this.#subscription === undefined) {
      this.#subscription = pollReadable(this.#socket.fd, () => this.#readNotices());
    } else if (this.#waits === 1) this.#subscription.ref();
    this.#checking ??= systemClock.setTimer(CHECK_NS, () => this.#checkLater());
  }

  /** Ends a non-blocking call. */
  endWait(): void {
    this.#waits -= 1;
    if (this.#waits === 0) this.#subscription?.unref();
  }

  /** Closes the connection: the server releases everything of this process. Idempotent. */
  close(): void {
    this.#fail(undefined);
  }

  #checkLater(): void {
    this.#checking = undefined;
    if (this.#waits > 0 && this.checkWaiting()) {
      this.#checking = systemClock.setTimer(CHECK_NS, () => this.#checkLater());
    }
  }

  #send(bytes: Uint8Array, fd: number): void {
    while (this.#alive) {
      const sent = this.#socket.sendmsg(bytes, fd < 0 ? [] : [fd]);
      if (sent >= 0) return;
      if (sent === -Errno.EBADF) throw new SyscallError('sendmsg', Errno.EBADF, `descriptor ${fd}`);
      if (sent !== -Errno.EAGAIN) this.#fail();
      else {
        pollFor(this.#socket.fd, PollEvent.OUT, SLICE_MS);
        if (this.#watch.look()) this.#giveUp();
      }
    }
    throw this.#lostError(false);
  }

  /** Receives the next available reply, and handles the notices before it. */
  #receive(): Reply | undefined {
    while (this.#alive) {
      this.#fds.length = 0;
      const received = this.#socket.recvmsg(this.#bytes, this.#fds);
      if (received === -Errno.EAGAIN) return undefined;
      if (received === 0 || received === -Errno.ECONNRESET) {
        this.#fail();
        return undefined;
      }
      // The kernel drops descriptors beyond the limit of this process.
      if (received === -Errno.EMSGSIZE) throw new SyscallError('recvmsg', Errno.EMFILE, 'the descriptor in a reply');
      if (received < 0) throw this.#broken(`recvmsg failed with ${errnoName(-received)}`);
      if (received === 1) {
        this.#onSettled();
        continue;
      }
      return { message: decodeMessage(this.#bytes.subarray(0, received)), fd: this.#fds[0] ?? -1 };
    }
    return undefined;
  }

  #readNotices(): void {
    const reply = this.#receive();
    if (reply === undefined) return;
    if (reply.fd >= 0) closeFd(reply.fd);
    throw this.#broken('unexpected reply: no request is pending');
  }

  #fail(reason: string | undefined = lostText(this.path)): void {
    if (!this.#alive) return;
    this.#alive = false;
    this.#lostReason = reason;
    this.#checking?.cancel();
    this.#checking = undefined;
    this.#subscription?.close();
    this.#subscription = undefined;
    this.#socket.close();
    this.#onSettled();
  }

  #giveUp(): void {
    this.#isGivenUp = true;
    this.#fail(`${stoppedText(this.serverPid)} and did not reply; its socket is ${this.path}`);
  }

  /**
   * The error of calls on a node whose server has ended or was stopped for too long.
   * @param isTimed for a call with a time-out: ERR_NODE_REFUSED if the server is stopped
   */
  #lostError(isTimed: boolean): UcxError {
    const reason = this.#lostReason ?? lostText(this.path);
    return isTimed && this.#isGivenUp ? rejected(this.path, reason) : new SyscallError('ioctl', Errno.ENODEV, reason);
  }

  #broken(what: string): UcxError {
    this.#fail();
    return rejected(this.path, what);
  }
}

/**
 * Connects to a node server and exchanges greetings.
 * @throws UcxError ERR_NODE_UNREACHABLE if no server listens at the path; ERR_NODE_REFUSED if it rejects the client, has another version or cannot read
 * memory of this process
 */
export function connectToServer(path: string): ServerConnection {
  for (let left = CONNECTS_MAX - 1; ; left--) {
    const connection = connectOnce(path, left === 0);
    if (connection !== undefined) return connection;
  }
}

/** @param isLast throw if the server closes before its greeting; otherwise return undefined */
function connectOnce(path: string, isLast: boolean): ServerConnection | undefined {
  let socket: UnixSocket;
  try {
    checkFolder(path);
    socket = connectInTime(path);
  } catch (error) {
    throw isSyscallError(error) ? unreachable(path, error) : error;
  }
  const { pid } = socket.peerCredentials();
  try {
    return greet(socket, path);
  } catch (error) {
    if (!isSyscallError(error, Errno.ENODEV)) throw error;
    if (!isLast) return undefined;
    requireServerDescriptors(path, pid);
    // A server that ends closes its listener last.
    throw unreachable(path, error);
  }
}

/**
 * Connects; retries while the backlog of the server is full, because it is busy or other clients connect too.
 * @throws SyscallError like connect; UcxError ERR_NODE_REFUSED after the time limit
 */
function connectInTime(path: string): UnixSocket {
  const deadlineNs = systemClock.nowNs() + GREETING_NS;
  for (;;) {
    try {
      return connectUnix(path, SocketType.SEQPACKET);
    } catch (error) {
      if (!isSyscallError(error, Errno.EAGAIN)) throw error;
      if (systemClock.nowNs() >= deadlineNs)
        throw rejected(
          path,
          `it has not accepted this connection within ${GREETING_NS / 1e9} s, so it is busy or has too many clients`,
        );
    }
    // No descriptor becomes ready when the backlog has space.
    pollFor(NO_DESCRIPTOR, 0, FULL_MS);
  }
}

/**
 * Connects without a hello, for requests that every version supports.
 * @throws UcxError ERR_NODE_UNREACHABLE, ERR_NODE_REFUSED
 */
export function connectUngreeted(path: string): ServerConnection {
  checkString('socketPath', path);
  try {
    checkFolder(path);
    return connectionOver(connectInTime(path), path);
  } catch (error) {
    throw isSyscallError(error) ? unreachable(path, error) : error;
  }
}

/** @throws UcxError ERR_NODE_REFUSED for a server of another user */
function connectionOver(socket: UnixSocket, path: string): ServerConnection {
  try {
    return new ServerConnection(socket, path);
  } catch (error) {
    socket.close();
    throw error;
  }
}

/** @throws SyscallError ENODEV if the server closes the connection; UcxError ERR_NODE_REFUSED */
function greet(socket: UnixSocket, path: string): ServerConnection {
  const connection = connectionOver(socket, path);
  // The server reads this word, which proves that it can access memory of its client.
  const proof = allocateScratch(4);
  randomFillSync(proof.u8);
  const version = { version: NODE_PROTOCOL_VERSION, package: packageVersion() };
  const hello = { op: 'hello', ...version, address: proof.address, value: proof.words[0] };
  try {
    let { message } = connection.request(hello, -1, GREETING_NS);
    if (message['access'] !== true) {
      allowMemoryAccess(connection.serverPid);
      message = connection.request(hello, -1, GREETING_NS).message;
      if (message['access'] !== true) throw rejected(path, String(message['reason']));
    }
    connection.identity = String(message['identity']);
    connection.nics = Number(message['nics']);
    return connection;
  } catch (error) {
    connection.close();
    throw error instanceof ProtocolError ? rejected(path, error.message) : error;
  } finally {
    proof.free();
  }
}

/** Reasons and remedies if no server listens, by the errno of connect. */
const REMEDIES: ReadonlyMap<number, string> = new Map([
  [Errno.ENOENT, ' (ENOENT): start one by gaudi-ucx node up'],
  [
    Errno.ECONNREFUSED,
    ' (ECONNREFUSED): it was killed and left its socket; start one by gaudi-ucx node up, or remove the socket by gaudi-ucx node down',
  ],
]);

function unreachable(path: string, cause: SyscallError): UcxError {
  const isFile = cause.errno === Errno.ECONNREFUSED && isOtherFile(path);
  const reason = isFile ? ': the path is a file, not a socket' : (REMEDIES.get(cause.errno) ?? `: ${cause.message}`);
  return new UcxError({
    code: 'ERR_NODE_UNREACHABLE',
    status: Status.UNREACHABLE,
    message: `no node server at ${path}${reason}`,
    details: { path, errno: cause.errno },
    cause,
  });
}

function rejected(path: string, why: string): UcxError {
  return new UcxError({
    code: 'ERR_NODE_REFUSED',
    status: Status.REJECTED,
    message: `node server at ${path}: ${why}`,
    details: { path },
  });
}

/** Descriptors that a server needs for another client. */
const CLIENT_DESCRIPTORS = 4;

/** Reason why a server rejects clients: the descriptor limit of its process is reached. Undefined otherwise. */
function shortageOf(pid: number): string | undefined {
  try {
    const open = readdirSync(`/proc/${pid}/fd`).length;
    const max = Number(/^Max open files +(\d+)/m.exec(readFileSync(`/proc/${pid}/limits`, 'latin1'))?.[1]);
    if (!(open + CLIENT_DESCRIPTORS > max)) return undefined;
    return `process ${pid} has ${open} of at most ${max} file descriptors open: restart it with a higher ulimit -n`;
  } catch (error) {
    // It has ended meanwhile, or /proc does not show it.
    if (asError(error).syscall === undefined) throw error;
    return undefined;
  }
}

/** @throws UcxError ERR_NODE_REFUSED if the server has no free descriptors */
export function requireServerDescriptors(path: string, pid: number): void {
  const shortage = shortageOf(pid);
  if (shortage !== undefined) throw rejected(path, `it cannot accept a client: ${shortage}`);
}

function lostText(path: string): string {
  return `the node server at ${path} has ended`;
}

function stoppedText(pid: number): string {
  return `node server ${pid} is stopped`;
}
