/**
 * The owner's side of sharing device memory: a socket of this host at which peers request the dma-buf of a key. It checks the user of the peer; the memory
 * domain checks the key. It runs on the event loop, and in progress for programs that block their event loop.
 *
 * The socket is in the folder of the rkey tables, with a name of the same form. A process that can access the tables can connect, whatever its network
 * namespace. The socket of a process is removed with its tables: when the process exits, or, if it was killed, by the next process.
 */

import { chmodSync } from 'node:fs';
import {
  close as closeFd,
  Errno,
  listenUnix,
  ownIdentity,
  PollEvent,
  type PollSubscription,
  PROCESS_IDENTITY_BYTES,
  type ProcessIdentity,
  packIdentity,
  pollNow,
  pollReadable,
  SocketType,
  schedYield,
  type UnixListener,
  type UnixSocket,
} from '../../../sys/index.ts';
import { LimitedLog } from '../../../ucs/debug/limited-log.ts';
import type { Log } from '../../../ucs/debug/log.ts';
import type { Clock } from '../../../ucs/sys/clock.ts';
import { effectiveUserId } from '../../../ucs/sys/user-id.ts';
import { isUcxError, type UcxError } from '../../../ucs/type/error.ts';
import { ownFile, scavenge, unlinkIfThere } from '../../base/key/segment.ts';
import { newTag, SEGMENT_NAME_BYTES, segmentPath } from '../../base/key/segment-name.ts';
import {
  CHANNEL_MESSAGE_BYTES_MAX,
  ChannelMessage,
  closingMessage,
  handleMessage,
  nackMessage,
  readMessage,
  retiredMessage,
} from './layout.ts';

/** Maximum number of connected peers; others are disconnected and try again. */
export const CHANNEL_PEERS_MAX = 256;
/** Time for peers to release memory when its owner closes. If a peer still has it mapped afterwards, the driver resets the card. */
const CLOSE_GRACE_NS = 50e6;
/** Maximum number of checks for connected peers within that time, in case the clock does not advance. */
const CLOSE_POLLS_MAX = 200_000;

/** A dma-buf with its handle. The receiver owns the descriptor. */
export interface SharedArena {
  readonly fd: number;
  readonly handle: Uint8Array;
}

/** Dependencies of a service. */
export interface ChannelServiceOptions {
  /** Handles a request. Throws UcxError if the key is invalid. */
  readonly share: (key: Uint8Array) => SharedArena;
  readonly log: Log;
  readonly clock: Clock;
}

/** A connected peer. */
interface Peer {
  readonly socket: UnixSocket;
  readonly subscription: PollSubscription;
  readonly pid: number;
}

/** Path of the socket of a service. */
export function servicePath(owner: ProcessIdentity, tag: Uint8Array): string {
  const name = new Uint8Array(SEGMENT_NAME_BYTES);
  packIdentity(owner, name, 0);
  name.set(tag, PROCESS_IDENTITY_BYTES);
  return `${segmentPath(name)}.ipc`;
}

/** The channel service of one memory domain. */
export class ChannelService {
  /** Random bytes that identify the service, together with the identity of the process. */
  readonly tag: Uint8Array = newTag();
  readonly #options: ChannelServiceOptions;
  /** Log for events that other processes can cause. */
  readonly #warnings: LimitedLog;
  readonly #listener: UnixListener;
  readonly #subscription: PollSubscription;
  readonly #peers: Set<Peer> = new Set();
  readonly #buffer: Uint8Array = new Uint8Array(CHANNEL_MESSAGE_BYTES_MAX);
  #closed = false;

  /** @throws SyscallError of the socket: EMFILE, ENOSPC, EACCES */
  constructor(options: ChannelServiceOptions) {
    this.#options = options;
    this.#warnings = new LimitedLog(options.log, options.clock);
    scavenge();
    const path = servicePath(ownIdentity(), this.tag);
    this.#listener = listenUnix(path, SocketType.SEQPACKET);
    ownFile(path);
    try {
      chmodSync(path, 0o600);
      this.#subscription = pollReadable(this.#listener.fd, () => this.progress());
    } catch (error) {
      this.#stopListening();
      throw error;
    }
    this.#subscription.unref();
  }

  /** Number of connected peers. */
  get peers(): number {
    return this.#peers.size;
  }

  /** Handles all pending requests. Makes several system calls, so it must not be called in every iteration of a loop. */
  progress(): void {
    if (this.#closed) return;
    this.#accept();
    for (const peer of this.#peers) this.#serve(peer);
  }

  /** Notifies peers that memory of an arena is no longer registered. */
  retire(arenaGeneration: number): void {
    this.#notifyAll(retiredMessage(arenaGeneration));
  }

  /** Notifies peers that the memory will be freed, waits up to {@link CLOSE_GRACE_NS} for them to release it, and removes the socket. Idempotent. */
  close(): void {
    if (this.#closed) return;
    this.#closed = true;
    this.#subscription.close();
    this.#stopListening();
    this.#notifyAll(closingMessage());
    this.#awaitPeers();
    for (const peer of this.#peers) this.#drop(peer);
  }

  #stopListening(): void {
    unlinkIfThere(this.#listener.path);
    this.#listener.close();
  }

  #accept(): void {
    try {
      for (let socket = this.#listener.accept(); socket !== undefined; socket = this.#listener.accept()) {
        this.#admit(socket);
      }
    } catch (error) {
      if (!isUcxError(error)) throw error;
      // No free descriptor: the peer waits until its own time-out.
      this.#options.log.diag(`gaudi_ipc: cannot accept a peer: ${error.message}`);
    }
  }

  #admit(socket: UnixSocket): void {
    try {
      const { uid, pid } = socket.peerCredentials();
      if (uid !== effectiveUserId()) {
        this.#warnings.warn(
          `gaudi_ipc: rejected process ${pid} of user ${uid}: only processes of the same user may connect`,
        );
        socket.close();
      } else if (this.#peers.size === CHANNEL_PEERS_MAX) socket.close();
      else this.#add(socket, pid);
    } catch (error) {
      socket.close();
      throw error;
    }
  }

  #add(socket: UnixSocket, pid: number): void {
    const subscription = pollReadable(socket.fd, () => this.#serve(peer));
    subscription.unref();
    const peer: Peer = { socket, subscription, pid };
    this.#peers.add(peer);
  }

  #drop(peer: Peer): void {
    this.#peers.delete(peer);
    peer.subscription.close();
    peer.socket.close();
  }

  /** Handles the requests of a peer; disconnects a peer that sends invalid data. */
  #serve(peer: Peer): void {
    while (!peer.socket.closed) {
      const fds: number[] = [];
      const received = peer.socket.recvmsg(this.#buffer, fds);
      for (const fd of fds) closeFd(fd);
      if (received === -Errno.EAGAIN) return;
      const message = received > 0 && fds.length === 0 ? readMessage(this.#buffer.subarray(0, received)) : undefined;
      if (message?.kind !== ChannelMessage.REQUEST || !this.#reply(peer, message.id, message.key)) this.#drop(peer);
    }
  }

  /** Returns false if the peer does not accept its reply. */
  #reply(peer: Peer, id: number, key: Uint8Array): boolean {
    let shared: SharedArena;
    try {
      shared = this.#options.share(key);
    } catch (error) {
      if (!isUcxError(error)) throw error;
      return this.#sendNack(peer, id, error);
    }
    const sent = peer.socket.sendmsg(handleMessage(id, shared.handle), [shared.fd]);
    closeFd(shared.fd);
    if (sent > 0) this.#options.log.debug(`gaudi_ipc: process ${peer.pid} received the dma-buf of its request ${id}`);
    return sent > 0;
  }

  #sendNack(peer: Peer, id: number, error: UcxError): boolean {
    this.#options.log.debug(`gaudi_ipc: NACK to a request for memory: ${error.message}`);
    return peer.socket.sendmsg(nackMessage(id, error)) > 0;
  }

  #notifyAll(message: Uint8Array): void {
    for (const peer of this.#peers) if (peer.socket.sendmsg(message) <= 0) this.#drop(peer);
  }

  /** Waits until the peers have disconnected, which they do after releasing the memory. */
  #awaitPeers(): void {
    const { clock } = this.#options;
    const deadlineNs = clock.nowNs() + CLOSE_GRACE_NS;
    for (let poll = 0; this.#peers.size > 0 && poll < CLOSE_POLLS_MAX && clock.nowNs() < deadlineNs; poll++) {
      for (const peer of this.#peers) {
        if ((pollNow(peer.socket.fd, PollEvent.IN) & (PollEvent.HUP | PollEvent.ERR)) !== 0) this.#drop(peer);
      }
      schedYield();
    }
  }
}
