/**
 * The owner's side of sharing device memory: a node-local socket at which peers request the dma-buf behind a key. It checks the user of the peer and
 * passes the
 * key to the memory domain, which checks it. Served by the event loop, and by progress of a program whose event loop does not run.
 *
 * The socket is in the folder of the rkey tables, with a name of the same form: a process that can access the tables can connect, and the socket of a
 * killed process
 * is removed with its tables.
 */

import { chmodSync } from 'node:fs';
import {
  close as closeFd,
  Errno,
  listenUnix,
  PollEvent,
  type PollSubscription,
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
import { isUcxError, type UcxError } from '../../../ucs/type/error.ts';
import {
  ownIdentity,
  PROCESS_IDENTITY_BYTES,
  type ProcessIdentity,
  packIdentity,
} from '../../base/process-identity.ts';
import { newTag, SEGMENT_NAME_BYTES, scavenge, segmentPath } from '../../base/segment.ts';
import {
  CHANNEL_MESSAGE_BYTES_MAX,
  ChannelMessage,
  closingMessage,
  handleMessage,
  readMessage,
  refusalMessage,
  retiredMessage,
} from './channel-message.ts';

/** Peers that are connected at one time at most; more are turned away and try again. */
export const CHANNEL_PEERS_MAX = 256;
/** Time that peers get to let go of memory whose owner closes. Who still has it mapped then makes the driver reset the card. */
const CLOSE_GRACE_NS = 50e6;
/** Looks at the peers meanwhile, at most: a clock may stand still. */
const CLOSE_TURNS_MAX = 200_000;

/** A dma-buf with its handle. The receiver owns the descriptor. */
export interface SharedArena {
  readonly fd: number;
  readonly handle: Uint8Array;
}

/** What a service is made of. */
export interface ChannelServiceOptions {
  /** Answers a request. Throws UcxError for a key that is not good. */
  readonly share: (key: Uint8Array) => SharedArena;
  readonly log: Log;
  readonly clock: Clock;
}

/** A connected peer. */
interface Peer {
  readonly socket: UnixSocket;
  readonly subscription: PollSubscription;
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
  /** The bytes that name it, with the identity of the process. */
  readonly tag: Uint8Array = newTag();
  readonly #options: ChannelServiceOptions;
  /** What other processes can cause. */
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
    try {
      chmodSync(path, 0o600);
      this.#subscription = pollReadable(this.#listener.fd, () => this.progress());
    } catch (error) {
      this.#listener.close();
      throw error;
    }
    this.#subscription.unref();
  }

  /** Peers that are connected. */
  get peers(): number {
    return this.#peers.size;
  }

  /** Answers all pending requests. It takes a few system calls: do not call it in every turn of a loop. */
  progress(): void {
    if (this.#closed) return;
    this.#accept();
    for (const peer of this.#peers) this.#serve(peer);
  }

  /** Tells peers that nothing in an arena is in use any more. */
  retire(arenaGeneration: number): void {
    this.#tellAll(retiredMessage(arenaGeneration));
  }

  /**
   * Tells peers that the memory goes and gives them {@link CLOSE_GRACE_NS} to let go, then removes the socket. Idempotent.
   */
  close(): void {
    if (this.#closed) return;
    this.#closed = true;
    this.#subscription.close();
    this.#listener.close();
    this.#tellAll(closingMessage());
    this.#awaitPeers();
    for (const peer of this.#peers) this.#drop(peer);
  }

  #accept(): void {
    try {
      for (let socket = this.#listener.accept(); socket !== undefined; socket = this.#listener.accept()) {
        this.#admit(socket);
      }
    } catch (error) {
      if (!isUcxError(error)) throw error;
      // Out of descriptors: who has asked waits, and gives up in its own time.
      this.#options.log.diag(`gaudi_ipc: a peer cannot be accepted: ${error.message}`);
    }
  }

  #admit(socket: UnixSocket): void {
    try {
      const { uid, pid } = socket.peerCredentials();
      if (uid !== process.geteuid?.()) {
        this.#warnings.warn(`gaudi_ipc: process ${pid} of user ${uid} is turned away`);
        socket.close();
      } else if (this.#peers.size === CHANNEL_PEERS_MAX) socket.close();
      else this.#add(socket);
    } catch (error) {
      socket.close();
      throw error;
    }
  }

  #add(socket: UnixSocket): void {
    const subscription = pollReadable(socket.fd, () => this.#serve(peer));
    subscription.unref();
    const peer: Peer = { socket, subscription };
    this.#peers.add(peer);
  }

  #drop(peer: Peer): void {
    this.#peers.delete(peer);
    peer.subscription.close();
    peer.socket.close();
  }

  /** Answers what a peer has asked; one that says anything else is dropped. */
  #serve(peer: Peer): void {
    while (!peer.socket.closed) {
      const fds: number[] = [];
      const received = peer.socket.recvmsg(this.#buffer, fds);
      for (const fd of fds) closeFd(fd);
      if (received === -Errno.EAGAIN) return;
      const message = received > 0 && fds.length === 0 ? readMessage(this.#buffer.subarray(0, received)) : undefined;
      if (message?.kind !== ChannelMessage.REQUEST || !this.#answer(peer, message.id, message.key)) this.#drop(peer);
    }
  }

  /** False when the peer does not take its answer. */
  #answer(peer: Peer, id: number, key: Uint8Array): boolean {
    let shared: SharedArena;
    try {
      shared = this.#options.share(key);
    } catch (error) {
      if (!isUcxError(error)) throw error;
      return this.#refuse(peer, id, error);
    }
    const sent = peer.socket.sendmsg(handleMessage(id, shared.handle), [shared.fd]);
    closeFd(shared.fd);
    return sent > 0;
  }

  #refuse(peer: Peer, id: number, error: UcxError): boolean {
    this.#options.log.debug(`gaudi_ipc: a request for memory is refused: ${error.message}`);
    return peer.socket.sendmsg(refusalMessage(id, error)) > 0;
  }

  #tellAll(message: Uint8Array): void {
    for (const peer of this.#peers) if (peer.socket.sendmsg(message) <= 0) this.#drop(peer);
  }

  /** Waits until the peers have hung up, which they do when they have let go. */
  #awaitPeers(): void {
    const { clock } = this.#options;
    const deadlineNs = clock.nowNs() + CLOSE_GRACE_NS;
    for (let turn = 0; this.#peers.size > 0 && turn < CLOSE_TURNS_MAX && clock.nowNs() < deadlineNs; turn++) {
      for (const peer of this.#peers) {
        if ((pollNow(peer.socket.fd, PollEvent.IN) & (PollEvent.HUP | PollEvent.ERR)) !== 0) this.#drop(peer);
      }
      schedYield();
    }
  }
}
