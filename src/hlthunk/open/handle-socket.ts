/**
 * Sends a descriptor and the bytes that belong to it to another process of the same user, one handle per call. Uses SCM_RIGHTS over a Unix socket, for which
 * Node.js does not have a call.
 */

import { chmodSync } from 'node:fs';
import { isAbsolute } from 'node:path';
import {
  close as closeFd,
  connectUnix,
  Errno,
  EventSet,
  errnoText,
  forgetDescriptor,
  isSyscallError,
  listenUnix,
  PATH_BYTES_MAX,
  type PollSubscription,
  pollReadable,
  ReadyFor,
  SocketType,
  type UnixListener,
  type UnixSocket,
} from '../../sys/index.ts';
import { effectiveUserId } from '../../ucs/sys/user-id.ts';
import { AbortError, asError, awaitedHere, throwIfAborted, type UcxError } from '../../ucs/type/error.ts';
import { checkObject, GaudiErrorCode, gaudiError, invalidArgument } from '../base/gaudi-error.ts';
import { checkFd } from '../memory/dmabuf.ts';

/** Maximum number of bytes that accompany a descriptor. */
export const HANDLE_MESSAGE_BYTES_MAX = 4096;

const VERSION = 1;
const ACCEPTED = Uint8Array.of(VERSION);
/** Senders that may be connected at once; others get an error. */
const SENDERS_MAX = 16;

/** A descriptor and the bytes that describe it, such as those of ipcWrapHandle. */
export interface HandleMessage {
  /** The descriptor; a sender keeps its own. */
  readonly fd: number;
  /** At most {@link HANDLE_MESSAGE_BYTES_MAX} bytes. */
  readonly handle: Uint8Array;
}

/** A received descriptor, which the caller owns and closes. */
export interface ReceivedHandle extends HandleMessage {
  /** The sender, as reported by the kernel: a process of the same user. */
  readonly pid: number;
}

/** Options of {@link sendHandle} and {@link receiveHandle}. */
export interface HandleTransferOptions {
  /**
   * Ends the wait, for example `AbortSignal.timeout(5000)`: the promise rejects with an AbortError, whose `name` is `TimeoutError` after a time-out.
   * Default: no limit.
   */
  readonly signal?: AbortSignal | undefined;
}

/**
 * Sends a descriptor to the process that waits at a path in {@link receiveHandle}.
 * @param path absolute path of the socket
 * @returns a promise that resolves when the other process has the descriptor
 * @throws UcxError ERR_GAUDI_INVALID_PARAMS; ERR_GAUDI_CHANNEL_FAILED if no process waits at the path, or that process belongs to another user, ends or rejects
 *   the message; AbortError
 */
export async function sendHandle(
  path: string,
  message: HandleMessage,
  options: HandleTransferOptions = {},
): Promise<void> {
  checkPath(path);
  checkObject('message', message, ['fd', 'handle']);
  const fd = checkFd(message.fd);
  const { handle } = message;
  if (!(handle instanceof Uint8Array) || handle.byteLength > HANDLE_MESSAGE_BYTES_MAX) {
    throw invalidArgument('handle', `must be at most ${HANDLE_MESSAGE_BYTES_MAX} bytes`, handle);
  }
  const signal = signalOf(options);
  const socket = connect(path);
  try {
    const { uid, pid } = socket.peerCredentials();
    if (uid !== effectiveUserId()) throw failed(`${path} belongs to process ${pid} of user ${uid}`);
    const bytes = new Uint8Array(1 + handle.byteLength);
    bytes[0] = VERSION;
    bytes.set(handle, 1);
    const sent = socket.sendmsg(bytes, [fd]);
    if (sent === -Errno.EBADF) throw invalidArgument('fd', 'must be an open descriptor', fd);
    if (sent < 0) throw failed(`${path}: ${errnoText(-sent)}`);
    const answer = new Uint8Array(1);
    await until(socket.fd, signal, () => {
      const fds: number[] = [];
      const received = socket.recvmsg(answer, fds);
      for (const each of fds) closeFd(each);
      if (received === -Errno.EAGAIN) return undefined;
      if (received <= 0 || answer[0] !== VERSION) {
        const reason = 'it has received another one, has ended, or has another version of this library';
        const remedy = 'call receiveHandle there once for each descriptor';
        throw failed(`the process at ${path} did not accept the descriptor: ${reason}; ${remedy}`);
      }
      return true;
    });
  } finally {
    socket.close();
  }
}

/**
 * Waits for one descriptor of another process of the same user. The socket exists when the call returns, so the path can then be passed to a sender; it is
 * removed when the promise settles. Processes of other users, and messages that do not come from {@link sendHandle}, are rejected.
 * @param path absolute path of the socket, which must not exist, in a folder of this user: every user with access to the folder can connect
 * @throws UcxError ERR_GAUDI_INVALID_PARAMS; ERR_GAUDI_CHANNEL_FAILED if the path exists or cannot be created; AbortError
 */
export async function receiveHandle(path: string, options: HandleTransferOptions = {}): Promise<ReceivedHandle> {
  checkPath(path);
  const signal = signalOf(options);
  const receiver = new Receiver(path);
  try {
    return await until(receiver.fd, signal, () => receiver.take());
  } finally {
    receiver.close();
  }
}

/** The listening socket, and the senders that are connected to it. */
class Receiver {
  readonly #events: EventSet = new EventSet();
  readonly #listener: UnixListener;
  readonly #senders: Set<UnixSocket> = new Set();
  readonly #buffer: Uint8Array = new Uint8Array(1 + HANDLE_MESSAGE_BYTES_MAX);

  constructor(path: string) {
    let listener: UnixListener | undefined;
    try {
      listener = listen(path);
      this.#events.add(listener.fd, ReadyFor.READ, 0);
    } catch (error) {
      listener?.close();
      this.#events.close();
      throw error;
    }
    this.#listener = listener;
  }

  /** Readable when {@link take} should be called. */
  get fd(): number {
    return this.#events.fd;
  }

  /** The descriptor of the first sender that is ready; undefined if none is. */
  take(): ReceivedHandle | undefined {
    for (let socket = this.#listener.accept(); socket !== undefined; socket = this.#listener.accept()) {
      const isAdmitted = this.#senders.size < SENDERS_MAX && socket.peerCredentials().uid === effectiveUserId();
      if (!isAdmitted) {
        socket.close();
        continue;
      }
      this.#senders.add(socket);
      this.#events.add(socket.fd, ReadyFor.READ, 0);
    }
    for (const socket of this.#senders) {
      const received = this.#read(socket);
      if (received !== undefined) return received;
    }
    return undefined;
  }

  close(): void {
    for (const socket of this.#senders) socket.close();
    this.#listener.close();
    this.#events.close();
  }

  #read(socket: UnixSocket): ReceivedHandle | undefined {
    const fds: number[] = [];
    const length = socket.recvmsg(this.#buffer, fds);
    if (length === -Errno.EAGAIN) return undefined;
    const [fd] = fds;
    if (length >= 1 && this.#buffer[0] === VERSION && fd !== undefined && fds.length === 1) {
      // Accepts even if the sender has ended meanwhile, because its message is complete.
      socket.sendmsg(ACCEPTED);
      forgetDescriptor(fd);
      return { fd, handle: this.#buffer.slice(1, length), pid: socket.peerCredentials().pid };
    }
    for (const each of fds) closeFd(each);
    this.#events.remove(socket.fd);
    this.#senders.delete(socket);
    socket.close();
    return undefined;
  }
}

/** Calls `step` now and whenever the descriptor becomes readable, until it returns a value or throws, or the signal fires. */
function until<T>(fd: number, signal: AbortSignal | undefined, step: () => T | undefined): Promise<T> {
  const ended = new Promise<T>((resolve, reject) => {
    throwIfAborted(signal);
    const end = (settle: () => void): void => {
      subscription.close();
      signal?.removeEventListener('abort', onAbort);
      settle();
    };
    const onAbort = (): void => end(() => reject(new AbortError(signal!)));
    const subscription: PollSubscription = pollReadable(fd, () => {
      try {
        const result = step();
        if (result !== undefined) end(() => resolve(result));
      } catch (error) {
        end(() => reject(error));
      }
    });
    signal?.addEventListener('abort', onAbort);
  });
  return awaitedHere(ended);
}

function listen(path: string): UnixListener {
  let listener: UnixListener;
  try {
    listener = listenUnix(path, SocketType.SEQPACKET);
  } catch (error) {
    if (!isSyscallError(error)) throw error;
    const hint =
      error.errno === Errno.EADDRINUSE
        ? '; remove the file if it was left by an ended process, or use another path'
        : '';
    throw failed(`cannot wait at ${path}: ${errnoText(error.errno)}${hint}`, error);
  }
  try {
    chmodSync(path, 0o600);
  } catch (error) {
    listener.close();
    throw failed(`cannot protect the socket at ${path}: ${asError(error).message}`, error);
  }
  return listener;
}

function connect(path: string): UnixSocket {
  try {
    return connectUnix(path, SocketType.SEQPACKET);
  } catch (error) {
    if (!isSyscallError(error)) throw error;
    throw failed(`no process waits at ${path}: ${errnoText(error.errno)}; call receiveHandle there first`, error);
  }
}

function failed(what: string, cause?: unknown): UcxError {
  return gaudiError(GaudiErrorCode.CHANNEL_FAILED, what, undefined, cause);
}

function checkPath(path: string): void {
  const isPath = typeof path === 'string' && isAbsolute(path) && !path.includes('\0');
  if (!isPath || Buffer.byteLength(path) > PATH_BYTES_MAX) {
    throw invalidArgument('path', `must be an absolute path of at most ${PATH_BYTES_MAX} bytes`, path);
  }
}

function signalOf(options: HandleTransferOptions): AbortSignal | undefined {
  checkObject('options', options, ['signal']);
  const { signal } = options;
  if (signal !== undefined && !(signal instanceof AbortSignal)) {
    throw invalidArgument('signal', 'must be an AbortSignal', signal);
  }
  return signal;
}
