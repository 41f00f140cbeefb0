/**
 * The importer's side of the channel service of one owner: requests arenas, receives the replies, and detects the end of the owner. It connects at the first
 * request.
 */

import {
  close as closeFd,
  connectUnix,
  Errno,
  errnoName,
  hasEnded,
  isSyscallError,
  type PollSubscription,
  type ProcessIdentity,
  pollReadable,
  SocketType,
  type UnixSocket,
} from '../../../sys/index.ts';
import { effectiveUserId } from '../../../ucs/sys/user-id.ts';
import type { UcxError } from '../../../ucs/type/error.ts';
import { servicePath } from './channel-service.ts';
import { channelFailed, descriptorLost, ownerEnded, staleKey } from './config.ts';
import {
  CHANNEL_MESSAGE_BYTES_MAX,
  ChannelMessage,
  type ParsedMessage,
  readMessage,
  requestMessage,
} from './layout.ts';

/** Listener for the replies and events of a link. */
export interface LinkListener {
  /** Delivers a handle; the listener owns the descriptor. */
  onHandle(id: number, fd: number, handle: Uint8Array): void;
  onNack(id: number, error: UcxError): void;
  /** Memory of an arena is no longer registered. */
  onRetired(link: OwnerLink, arenaGeneration: number): void;
  /**
   * The connection has ended: release the owner's memory, and then close the link.
   * @param error the failure of pending requests if the owner has closed; undefined if it was killed or has disconnected: a repeated request finds the reason
   */
  onEnded(link: OwnerLink, error: UcxError | undefined): void;
  /** Data has arrived. */
  onEvent(): void;
}

/** The connection to one owner. */
export class OwnerLink {
  readonly owner: ProcessIdentity;
  /** Name of the service, as a key of maps. */
  readonly key: string;
  readonly #tag: Uint8Array;
  readonly #listener: LinkListener;
  readonly #buffer: Uint8Array = new Uint8Array(CHANNEL_MESSAGE_BYTES_MAX);
  #socket: UnixSocket | undefined = undefined;
  #subscription: PollSubscription | undefined = undefined;

  constructor(owner: ProcessIdentity, tag: Uint8Array, key: string, listener: LinkListener) {
    this.owner = owner;
    this.key = key;
    this.#tag = tag;
    this.#listener = listener;
  }

  /** Whether there is a connection. */
  get connected(): boolean {
    return this.#socket !== undefined;
  }

  /**
   * Requests the arena of a key.
   * @returns false if the owner cannot accept the request now
   * @throws UcxError ERR_GAUDI_IPC_OWNER_GONE, ERR_RKEY_STALE if the owner has closed, ERR_GAUDI_CHANNEL_FAILED
   */
  request(id: number, packedKey: Uint8Array): boolean {
    this.#socket ??= this.#connect();
    if (this.#socket === undefined) return false;
    const sent = this.#socket.sendmsg(requestMessage(id, packedKey));
    if (sent <= 0 && sent !== -Errno.EAGAIN) this.#listener.onEnded(this, undefined);
    return sent > 0;
  }

  /** Processes received messages. Makes a system call, so do not call it in every iteration of a busy loop. */
  progress(): void {
    while (this.#socket !== undefined) {
      const fds: number[] = [];
      const received = this.#socket.recvmsg(this.#buffer, fds);
      if (received === -Errno.EAGAIN) return;
      if (received === -Errno.EMSGSIZE) {
        this.#listener.onEnded(this, descriptorLost(this.owner));
        return;
      }
      const message = received > 0 ? readMessage(this.#buffer.subarray(0, received)) : undefined;
      if (message === undefined || !this.#take(message, fds)) {
        for (const fd of fds) closeFd(fd);
        this.#listener.onEnded(this, message?.kind === ChannelMessage.CLOSING ? closed() : undefined);
      }
    }
  }

  /** Disconnects. Idempotent. */
  close(): void {
    this.#subscription?.close();
    this.#subscription = undefined;
    this.#socket?.close();
    this.#socket = undefined;
  }

  /** Returns false for a message that an owner must not send. */
  #take(message: ParsedMessage, fds: readonly number[]): boolean {
    const [fd] = fds;
    if (message.kind === ChannelMessage.HANDLE) {
      if (fd === undefined || fds.length !== 1) return false;
      this.#listener.onHandle(message.id, fd, message.handle);
      return true;
    }
    if (fd !== undefined) return false;
    if (message.kind === ChannelMessage.NACK) this.#listener.onNack(message.id, message.error);
    else if (message.kind === ChannelMessage.RETIRED) this.#listener.onRetired(this, message.arenaGeneration);
    else return false;
    return true;
  }

  #connect(): UnixSocket | undefined {
    const socket = this.#open();
    if (socket === undefined) return undefined;
    try {
      const { uid } = socket.peerCredentials();
      if (uid !== effectiveUserId()) throw channelFailed(this.owner, `belongs to user ${uid}`);
      this.#subscription = pollReadable(socket.fd, () => {
        this.progress();
        this.#listener.onEvent();
      });
      this.#subscription.unref();
      return socket;
    } catch (error) {
      socket.close();
      throw error;
    }
  }

  /** Connects to the owner; undefined if the backlog of its socket is full. */
  #open(): UnixSocket | undefined {
    try {
      return connectUnix(servicePath(this.owner, this.#tag), SocketType.SEQPACKET);
    } catch (error) {
      if (!isSyscallError(error)) throw error;
      if (error.errno === Errno.EAGAIN) return undefined;
      // An owner that closes removes its socket, so a socket without a listener belongs to a killed process.
      if (error.errno === Errno.ECONNREFUSED || hasEnded(this.owner)) throw ownerEnded(this.owner);
      if (error.errno === Errno.ENOENT) throw closed();
      throw channelFailed(this.owner, errnoName(error.errno), error);
    }
  }
}

function closed(): UcxError {
  return staleKey('belongs to a closed context');
}
