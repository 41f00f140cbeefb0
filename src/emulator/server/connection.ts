/** The client's end of a connection to a node server: requests with their replies, the doorbell, and detection of the server's end. */

import { randomFillSync } from 'node:crypto';
import { readdirSync, readFileSync } from 'node:fs';
import {
  allocateScratch,
  allowMemoryAccess,
  close as closeFd,
  connectUnix,
  Errno,
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
import { decodeMessage, encodeMessage, errorOf, type Message, ProtocolError, type Refusal, RING } from './message.ts';
import { ServerWatch } from './server-watch.ts';
import { checkFolder, isOtherFile } from './socket-path.ts';

/** Time limit for the greeting of a server that has accepted the connection; later it is treated as absent. */
export const GREETING_NS = 10e9;
/** Maximum number of attempts to connect to a server that closes the connection: if too many connections have sent no hello, it closes the oldest. */
const CONNECTS_MAX = 8;
/** Time limit for the shutdown of a server, which finishes transfers first. */
const END_NS = 30e9;
/** The first slice of a wait for a reply, and the others: the server is checked between slices. */
const FIRST_SLICE_MS = 10;
const SLICE_MS = 100;
/** Time between two checks of the server while only non-blocking calls wait for it. */
const CHECK_NS = 1e9;
/** Pause before another attempt to connect to a server that has as many waiting connections as its socket takes. */
const FULL_MS = 1;
/** What poll(2) ignores. */
const NO_DESCRIPTOR = -1;
const HANG_UP: number = PollEvent.HUP | PollEvent.ERR | PollEvent.RDHUP;

/** A reply and the descriptor sent with it. */
export interface Reply {
  readonly message: Message;
  /** Owned by the caller; -1 for none. */
  readonly fd: number;
}

/** A connection. */
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
  /** Runs while non-blocking calls wait. */
  #checking: Timer | undefined;
  #lostReason: string | undefined;
  /** Whether the server was stopped for too long, and may continue. */
  #isGivenUp = false;

  /** @throws UcxError ERR_NODE_REFUSED; SyscallError */
  constructor(socket: UnixSocket, path: string) {
    this.path = path;
    this.#socket = socket;
    const { uid, pid } = socket.peerCredentials();
    this.serverPid = pid;
    const isStopped = (): boolean => isProcessStopped(pid) || isProcessTraced(pid);
    this.#watch = new ServerWatch({ clock: systemClock, isStopped });
    if (uid !== userId()) throw refused(path, `the server is of user ${uid}`);
  }

  /** False once the server has ended or the connection is closed: no request is answered any more. */
  get alive(): boolean {
    return this.#alive;
  }

  /** Message that the server has ended or was stopped for too long, and which server; undefined while it runs, and after {@link close}. */
  get lostReason(): string | undefined {
    return this.#lostReason;
  }

  /** Message that the server is stopped now, so that calls would wait; undefined while it runs. Reads a file of /proc. */
  get stoppedReason(): string | undefined {
    if (!this.#alive || !isProcessStopped(this.serverPid)) return undefined;
    return `${stoppedText(this.serverPid)}, and does not answer: kill -CONT ${this.serverPid} continues it`;
  }

  /** Sets the function that checks the mailboxes when calls have settled or the server has ended. */
  listen(onSettled: () => void): void {
    this.#onSettled = onSettled;
  }

  /** Checks whether the server is still running. */
  check(): boolean {
    if (this.#alive && (pollNow(this.#socket.fd, HANG_UP) & HANG_UP) !== 0) this.#fail();
    return this.#alive;
  }

  /** Likewise, for a call that waits: one that is stopped for longer than calls wait for it is lost as well. */
  checkWaiting(): boolean {
    if (this.check() && this.#watch.look()) this.#giveUp();
    return this.#alive;
  }

  /**
   * Waits until the server closes the connection.
   * @throws UcxError ERR_NODE_REFUSED on time-out, and if the server is stopped
   */
  awaitEnd(): void {
    const deadlineNs = systemClock.nowNs() + END_NS;
    while (this.checkWaiting()) {
      if (systemClock.nowNs() >= deadlineNs) throw this.#broken('the server does not end');
      pollFor(this.#socket.fd, PollEvent.IN, SLICE_MS);
    }
    // It has confirmed that it ends.
    if (this.#isGivenUp) throw refused(this.path, `${stoppedText(this.serverPid)}, and ends once it continues`);
  }

  /** Wakes the server. */
  ring(): void {
    if (!this.#alive) return;
    // If the queue is full, its messages wake the server as well.
    const sent = this.#socket.sendmsg(RING);
    if (sent < 0 && sent !== -Errno.EAGAIN) this.#fail();
  }

  /**
   * Sends a request and waits for its reply. Blocks as a system call does. With a time-out it does not wait for a server that is stopped: nothing is lost then.
   * @param fd a descriptor to send; -1 for none
   * @throws SyscallError ENODEV if the server has ended or was stopped for too long, EBADF for a bad descriptor, and errors of the server; UcxError
   * ERR_NODE_REFUSED after the time-out, and with one if the server is stopped
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
        throw errorOf(error as Refusal);
      }
      if (reply !== undefined) throw this.#broken('a reply to nothing');
      if (!this.#alive) throw this.#gone(isTimed);
      if (systemClock.nowNs() >= deadlineNs) {
        throw this.#broken(`no reply: ${shortageOf(this.serverPid) ?? `process ${this.serverPid} is busy`}`);
      }
      // Most replies come within the first slice. A server that has ended may have replied before.
      const hasCome = pollFor(this.#socket.fd, PollEvent.IN, sliceMs) !== 0;
      if (!hasCome && (isTimed ? isProcessStopped(this.serverPid) : this.#watch.look())) this.#giveUp();
    }
  }

  /**
   * Sends a request whose reply carries a descriptor.
   * @param undo called if this process cannot receive the descriptor: the server has already executed the request
   * @param fd a descriptor to send; -1 for none
   * @throws SyscallError EMFILE, and like {@link request}
   */
  requestDescriptor(message: Message, undo: () => void, fd = -1): Reply {
    try {
      return this.request(message, fd);
    } catch (error) {
      if (isSyscallError(error, Errno.EMFILE) && error.syscall === 'recvmsg') undo();
      throw error;
    }
  }

  /** Sends a request; returns a field of its reply, or undefined once the server has ended. */
  ask<T>(message: Message, field: string): T | undefined {
    if (!this.#alive) return undefined;
    try {
      return this.request(message).message[field] as T;
    } catch (error) {
      if (isSyscallError(error, Errno.ENODEV)) return undefined;
      throw error;
    }
  }

  /** Begins a non-blocking call: its end is reported through the event loop, and the process stays alive until then. */
  beginWait(): void {
    this.#waits += 1;
    if (this.#subscription === undefined) {
      this.#subscription = pollReadable(this.#socket.fd, () => this.#readNotices());
    } else if (this.#waits === 1) this.#subscription.ref();
    this.#checking ??= systemClock.setTimer(CHECK_NS, () => this.#checkLater());
  }

  /** Ends such a call. */
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
    throw this.#gone(false);
  }

  /** Receives the next available reply; notices before it are handled. */
  #receive(): Reply | undefined {
    while (this.#alive) {
      this.#fds.length = 0;
      const received = this.#socket.recvmsg(this.#bytes, this.#fds);
      if (received === -Errno.EAGAIN) return undefined;
      if (received === 0 || received === -Errno.ECONNRESET) {
        this.#fail();
        return undefined;
      }
      // The kernel drops descriptors that exceed the limit of this process.
      if (received === -Errno.EMSGSIZE) throw new SyscallError('recvmsg', Errno.EMFILE, 'a descriptor of a reply');
      if (received < 0) throw this.#broken(`recvmsg ${received}`);
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
    throw this.#broken('a reply to nothing');
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
    this.#fail(`${stoppedText(this.serverPid)} and has not answered; its socket is ${this.path}`);
  }

  /**
   * The error of every call on a node whose server has ended or was stopped for too long.
   * @param isTimed for a call that limits its wait: a stopped server has refused it, and one that has ended has not
   */
  #gone(isTimed: boolean): UcxError {
    const reason = this.#lostReason ?? lostText(this.path);
    return isTimed && this.#isGivenUp ? refused(this.path, reason) : new SyscallError('ioctl', Errno.ENODEV, reason);
  }

  #broken(what: string): UcxError {
    this.#fail();
    return refused(this.path, what);
  }
}

/**
 * Connects to a node server and exchanges greetings.
 * @throws UcxError ERR_NODE_UNREACHABLE if no server listens at the path, ERR_NODE_REFUSED if it accepts no more clients, has another
 * version or cannot read memory of this process
 */
export function connectToServer(path: string): ServerConnection {
  for (let left = CONNECTS_MAX - 1; ; left--) {
    const connection = connectOnce(path, left === 0);
    if (connection !== undefined) return connection;
  }
}

/** @param isLast throw if the server closes before its greeting; otherwise the result is `undefined` */
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
    refuseIfShort(path, pid);
    // A server that ends closes its listener last.
    throw unreachable(path, error);
  }
}

/**
 * Connects, and tries again while the connections that the server has not accepted are as many as its socket takes: it is busy, or others connect as well.
 * @throws SyscallError like connect; UcxError ERR_NODE_REFUSED if that lasts
 */
function connectInTime(path: string): UnixSocket {
  const deadlineNs = systemClock.nowNs() + GREETING_NS;
  for (;;) {
    try {
      return connectUnix(path, SocketType.SEQPACKET);
    } catch (error) {
      if (!isSyscallError(error, Errno.EAGAIN)) throw error;
      if (systemClock.nowNs() >= deadlineNs) throw refused(path, 'it accepts no connections');
    }
    // No descriptor tells when there is room.
    pollFor(NO_DESCRIPTOR, 0, FULL_MS);
  }
}

/**
 * Connects without a greeting, for messages of any version.
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
  // The server reads this word: a proof that it can read memory of its presumed peer process.
  const proof = allocateScratch(4);
  randomFillSync(proof.u8);
  const version = { version: NODE_PROTOCOL_VERSION, package: packageVersion() };
  const hello = { op: 'hello', ...version, address: proof.address, value: proof.words[0] };
  try {
    let { message } = connection.request(hello, -1, GREETING_NS);
    if (message['access'] !== true) {
      allowMemoryAccess(connection.serverPid);
      message = connection.request(hello, -1, GREETING_NS).message;
      if (message['access'] !== true) throw refused(path, String(message['reason']));
    }
    connection.identity = String(message['identity']);
    connection.nics = Number(message['nics']);
    return connection;
  } catch (error) {
    connection.close();
    throw error instanceof ProtocolError ? refused(path, error.message) : error;
  } finally {
    proof.free();
  }
}

/** What helps if no server listens, by the errno of connect. */
const REMEDIES: ReadonlyMap<number, string> = new Map([
  [Errno.ENOENT, ' (ENOENT): gaudi-ucx node up starts one'],
  [
    Errno.ECONNREFUSED,
    ' (ECONNREFUSED): it was killed and has left its socket; gaudi-ucx node up starts one again, gaudi-ucx node down removes the socket',
  ],
]);

function unreachable(path: string, cause: SyscallError): UcxError {
  const isFile = cause.errno === Errno.ECONNREFUSED && isOtherFile(path);
  const reason = isFile ? ': it is a file, not a socket' : (REMEDIES.get(cause.errno) ?? `: ${cause.message}`);
  return new UcxError({
    code: 'ERR_NODE_UNREACHABLE',
    status: Status.UNREACHABLE,
    message: `no node server at ${path}${reason}`,
    details: { path, errno: cause.errno },
    cause,
  });
}

function refused(path: string, why: string): UcxError {
  return new UcxError({
    code: 'ERR_NODE_REFUSED',
    status: Status.REJECTED,
    message: `node server at ${path}: ${why}`,
    details: { path },
  });
}

/** Descriptors that a server needs for one more client. */
const CLIENT_DESCRIPTORS = 4;

/** Why a server takes no client, if it has no descriptors left: the limit is that of its process. */
function shortageOf(pid: number): string | undefined {
  try {
    const open = readdirSync(`/proc/${pid}/fd`).length;
    const max = Number(/^Max open files +(\d+)/m.exec(readFileSync(`/proc/${pid}/limits`, 'latin1'))?.[1]);
    if (!(open + CLIENT_DESCRIPTORS > max)) return undefined;
    return `process ${pid} has ${open} of its ${max} descriptors open: start it with a higher ulimit -n`;
  } catch (error) {
    // It has ended meanwhile, or /proc hides it.
    if (asError(error).syscall === undefined) throw error;
    return undefined;
  }
}

/** @throws UcxError ERR_NODE_REFUSED if the server has no descriptors left */
export function refuseIfShort(path: string, pid: number): void {
  const shortage = shortageOf(pid);
  if (shortage !== undefined) throw refused(path, `it takes no client: ${shortage}`);
}

function lostText(path: string): string {
  return `the node server at ${path} is gone`;
}

function stoppedText(pid: number): string {
  return `node server ${pid} is stopped`;
}
