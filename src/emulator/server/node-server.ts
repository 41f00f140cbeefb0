/**
 * The node server: serves one emulated node to several processes of one user, as the kernel would. It listens, manages clients and runs their ioctls in
 * the thread that created it. The node behaves as in process.
 */

import { closeSync, rmSync } from 'node:fs';
import {
  allocateScratch,
  dup,
  Errno,
  isSyscallError,
  listenUnix,
  openFilesMax,
  type PollSubscription,
  pollReadable,
  type ScratchBlock,
  SocketType,
  SyscallError,
  type UnixListener,
  type UnixSocket,
} from '../../sys/index.ts';
import { HL_DEVICE_STATUS_TEXT } from '../../uapi/index.ts';
import { UnauthenticatedPeers } from '../../ucs/datastruct/unauthenticated-peers.ts';
import { LimitedLog } from '../../ucs/debug/limited-log.ts';
import type { Clock } from '../../ucs/sys/clock.ts';
import { inNextTurn } from '../../ucs/sys/next-turn.ts';
import { packageVersion } from '../../ucs/sys/package.ts';
import { userId } from '../../ucs/sys/user-id.ts';
import { checkOptions, checkString } from '../../ucs/type/check-options.ts';
import { invalidParam } from '../../ucs/type/error.ts';
import { printLinks } from '../config/links.ts';
import { type EmulatedNodeOptions, resolveNodeOptions } from '../config/node-config.ts';
import { DeviceService } from '../device-nodes/device-service.ts';
import { FolderMount } from '../device-nodes/folder-mount.ts';
import { EmulatedNode } from '../emulated-node.ts';
import { IoctlTracer } from '../trace/ioctl-tracer.ts';
import { type ServerIdentity, stoppedReasonAt } from './any-version.ts';
import { NODE_PROTOCOL_VERSION } from './mailbox.ts';
import type { CardStatus, NodeStatus } from './node-status.ts';
import { ServedClient } from './served-client.ts';
import type { ServedFile } from './served-file.ts';
import { ServiceLoop } from './service-loop.ts';
import { isOtherFile, lockSocket, prepareFolder } from './socket-path.ts';

/** Limit of clients; the next one is rejected with ERR_NODE_REFUSED. */
export const CLIENTS_MAX = 64;
/** Limit of connections that have not sent a hello: beyond it the oldest is closed, and its client reconnects. */
const UNAUTHENTICATED_PEERS_MAX = 64;
/** Limit of pending faults per card whose kinds a status report lists. */
const FAULTS_NAMED_MAX = 8;
const SOCKET_MASK = 0o177;
const NS_PER_S = 1e9;
/**
 * Transfers up to this size run in the thread that serves ioctls if their stream is idle, because waking an engine thread takes as long. Longer ones run
 * in engine threads: a submission must return before its transfers end, so that queues fill and other clients do not wait.
 */
const INLINE_BYTES_MAX: number = 256 * 2 ** 10;

/** Options of a server. */
export interface NodeServerOptions {
  /** Options of the node that is served. */
  readonly node?: EmulatedNodeOptions | undefined;
  /** Path of the socket; its folder is created if it does not exist. */
  readonly socketPath: string;
  /** An existing folder on which the device nodes of the node are mounted, as `dev` and `sys`, until the server ends. Needs CAP_SYS_ADMIN. Default none. */
  readonly devices?: string | undefined;
  /** File for the trace of all ioctls, or `-` for readable lines on standard output. Default none. */
  readonly trace?: string | undefined;
}

/** A running server. */
export class NodeServer {
  /** Path of the Unix socket on which the server listens. */
  readonly socketPath: string;
  /** The served node. */
  readonly node: EmulatedNode;
  /** Resolves when the server has ended: by {@link close} or by a client's request. */
  readonly closed: Promise<void>;
  readonly #log: LimitedLog;
  readonly #clock: Clock;
  readonly #startNs: number;
  readonly #lockFd: number;
  readonly #listener: UnixListener;
  readonly #accepting: PollSubscription;
  readonly #loop: ServiceLoop;
  readonly #scratch: ScratchBlock;
  readonly #clients: Set<ServedClient> = new Set();
  /** Clients that have not sent a hello, by process id. */
  readonly #unauthenticatedPeers: UnauthenticatedPeers<ServedClient> = new UnauthenticatedPeers(
    UNAUTHENTICATED_PEERS_MAX,
  );
  /** The files of all clients, and their owners, in polling order. */
  #files: readonly ServedFile[] = [];
  #owners: readonly ServedClient[] = [];
  readonly #devices: DeviceService;
  #mount: FolderMount | undefined;
  #endsUnused = false;
  #onClosed: () => void = () => {};
  #closed = false;

  /**
   * Creates a node and serves it.
   * @throws UcxError ERR_INVALID_PARAM for invalid options, ERR_NODE_RUNNING if another server uses the socket or the folder for device nodes;
   * SyscallError
   */
  constructor(options: NodeServerOptions) {
    checkOptions(options, 'options', ['node', 'socketPath', 'devices', 'trace']);
    const { devices, trace, node } = options;
    if (node !== undefined) checkOptions(node, 'node');
    if (devices !== undefined) checkString('devices', devices);
    if (trace !== undefined) checkString('trace', trace);
    const config = resolveNodeOptions({ inlineBytesMax: INLINE_BYTES_MAX, ...options.node });
    this.socketPath = options.socketPath;
    this.#log = new LimitedLog(config.log.child('server'), config.clock);
    this.#clock = config.clock;
    this.#startNs = config.clock.nowNs();
    checkDescriptors(config.cards, config.dmaThreads);
    prepareFolder(this.socketPath);
    this.#lockFd = lockSocket(this.socketPath, stoppedReasonAt);
    try {
      this.#listener = listen(this.socketPath);
    } catch (error) {
      closeSync(this.#lockFd);
      throw error;
    }
    this.node = new EmulatedNode(config);
    this.#scratch = allocateScratch(8);
    this.#loop = new ServiceLoop(
      config.clock,
      () => this.#poll(),
      (sleeping) => this.#setSleeping(sleeping),
    );
    this.#devices = new DeviceService({
      node: this.node,
      log: this.#log,
      wake: () => this.#loop.wake(),
      yieldToEventLoop: () => this.#loop.yieldToEventLoop(),
      onEnd: () => this.#endIfUnused(),
    });
    try {
      if (options.trace !== undefined) this.node.tracer = new IoctlTracer(options.trace, config.clock, this.#log);
      if (options.devices !== undefined)
        this.#mount = new FolderMount(options.devices, (fuse) => this.#devices.attach(dup(fuse)));
      this.#accepting = pollReadable(this.#listener.fd, () => this.#accept());
    } catch (error) {
      this.#listener.close();
      this.#loop.close();
      this.#mount?.close();
      this.#devices.close();
      this.node.close();
      this.node.tracer?.close();
      this.#scratch.free();
      closeSync(this.#lockFd);
      throw error;
    }
    this.closed = new Promise((resolve) => {
      this.#onClosed = resolve;
    });
  }

  /** The state of the server. */
  status(): NodeStatus {
    const { config } = this.node;
    return {
      pid: process.pid,
      socket: this.socketPath,
      asic: config.profile.name,
      links: printLinks(config.absentLinks),
      upSeconds: (this.#clock.nowNs() - this.#startNs) / NS_PER_S,
      nics: config.nics,
      dmabufs: this.node.dmabufCount,
      cards: Array.from({ length: config.cards }, (_, minor) => this.#cardStatus(minor)),
      clients: [...this.#clients].map(({ pid, files, ioctls }) => ({ pid, files: files.size, ioctls })),
    };
  }

  /** Makes the server reject new clients, and end once it has neither clients nor mounts of device nodes. */
  closeWhenUnused(): void {
    if (this.#closed) return;
    this.#endsUnused = true;
    this.#accepting.close();
    this.#listener.close();
    this.#endIfUnused();
  }

  /** Ends the server: clients lose their cards, the socket is removed. Idempotent. */
  close(): void {
    if (this.#closed) return;
    this.#closed = true;
    this.#accepting.close();
    this.#listener.close();
    this.#loop.close();
    this.#mount?.close();
    this.#devices.close();
    this.node.close();
    this.#scratch.free();
    // Last: a client that detects the closed connection may start another server.
    closeSync(this.#lockFd);
    for (const client of [...this.#clients]) client.drop();
    this.node.tracer?.close();
    this.#log.reportOmitted();
    this.#onClosed();
  }

  #accept(): void {
    for (;;) {
      let socket: UnixSocket | undefined;
      try {
        socket = this.#listener.accept();
      } catch (error) {
        // Without free descriptors no client can be accepted; waiting ones are accepted when another one has disconnected.
        if (!isSyscallError(error)) throw error;
        this.#log.warn(`cannot accept a client: ${error.message}`);
        return;
      }
      if (socket === undefined) return;
      this.#take(socket);
    }
  }

  #take(socket: UnixSocket): void {
    try {
      const { pid, uid } = socket.peerCredentials();
      if (uid !== userId() || pid <= 0) {
        this.#log.warn(`rejected process ${pid} of user ${uid}: only the user of the server may connect`);
        socket.close();
        return;
      }
      this.#evictOldest(String(pid));
      const client = new ServedClient(socket, pid, {
        node: this.node,
        log: this.#log,
        clock: this.#clock,
        scratch: this.#scratch,
        wake: () => this.#loop.wake(),
        yieldToEventLoop: () => this.#loop.yieldToEventLoop(),
        rejection: () =>
          this.#clients.size - this.#unauthenticatedPeers.size >= CLIENTS_MAX
            ? `it has ${CLIENTS_MAX} clients, the maximum`
            : undefined,
        devices: this.#devices,
        status: () => this.status(),
        identity: () => this.#identity(),
        shutdown: () => inNextTurn(() => this.close()),
        onFiles: () => this.#listFiles(),
        onGreeted: (greeted) => this.#unauthenticatedPeers.delete(greeted),
        onGone: (gone) => {
          this.#clients.delete(gone);
          this.#unauthenticatedPeers.delete(gone);
          this.#endIfUnused();
        },
      });
      this.#clients.add(client);
      this.#unauthenticatedPeers.add(client, String(pid));
    } catch (error) {
      socket.close();
      if (!isSyscallError(error)) throw error;
      this.#log.warn(`cannot accept a client: ${error.message}`);
    }
  }

  /** Ends an unused server in a later iteration of the event loop: the last mount may end during a poll. */
  #endIfUnused(): void {
    if (!this.#endsUnused || this.#clients.size > 0 || this.#devices.isUsed) return;
    inNextTurn(() => this.close());
  }

  /** Evicts the oldest connections without a hello until one more of this process fits. */
  #evictOldest(pid: string): void {
    const unauthenticatedPeers = this.#unauthenticatedPeers;
    for (let oldest = unauthenticatedPeers.excess(pid); oldest !== undefined; oldest = unauthenticatedPeers.excess(pid))
      oldest.evict();
  }

  #listFiles(): void {
    const files: ServedFile[] = [];
    const owners: ServedClient[] = [];
    for (const client of this.#clients) {
      for (const file of client.files.values()) {
        files.push(file);
        owners.push(client);
      }
    }
    this.#files = files;
    this.#owners = owners;
    for (const file of files) file.setSleeping(!this.#loop.awake);
  }

  #poll(): boolean {
    const files = this.#files;
    const owners = this.#owners;
    let served = false;
    for (let i = 0; i < files.length; i++) {
      // A dropped client removes its files from the list; those that this round still polls are closed and have no work.
      if (owners[i]!.poll(files[i]!)) served = true;
    }
    if (this.#devices.poll()) served = true;
    if (!served) this.node.pump();
    return served;
  }

  #setSleeping(sleeping: boolean): void {
    for (const file of this.#files) file.setSleeping(sleeping);
  }

  #identity(): ServerIdentity {
    return {
      pid: process.pid,
      socket: this.socketPath,
      package: packageVersion(),
      protocol: NODE_PROTOCOL_VERSION,
      upSeconds: (this.#clock.nowNs() - this.#startNs) / NS_PER_S,
    };
  }

  #cardStatus(minor: number): CardStatus {
    const card = this.node.card(minor);
    const { place, context, device } = card;
    return {
      ...place,
      status: card.removed ? 'removed' : (HL_DEVICE_STATUS_TEXT.get(card.status) ?? 'unknown'),
      owner: context?.userMemory.owner ?? null,
      dramUsedBytes: card.dramUsedBytes,
      dramBytes: device.hbm.byteLength,
      hardResets: card.hardResets,
      faultsWaiting: card.faults.waiting,
      faultKinds: card.faults.pending.slice(0, FAULTS_NAMED_MAX).map(({ kind }) => kind),
      faultsFired: card.faults.fired.length,
      portsDown: card.links.down(minor),
    };
  }
}

/** Descriptors of a server without cards and clients, per card, per DMA thread, and for its first clients. */
const DESCRIPTORS = { server: 40, card: 4, thread: 8, clients: 40 } as const;

/** Without free descriptors, cards fail at their first use and clients are not accepted. @throws SyscallError EMFILE with the number that is needed */
function checkDescriptors(cards: number, threads: number): void {
  const needed = DESCRIPTORS.server + DESCRIPTORS.card * cards + DESCRIPTORS.thread * threads + DESCRIPTORS.clients;
  if (openFilesMax() >= needed) return;
  throw new SyscallError(
    'open',
    Errno.EMFILE,
    `a node server with ${cards} cards needs at least ${needed} file descriptors: raise ulimit -n`,
  );
}

/** Listens for this user only. An existing socket is from a server that has ended, because its lock was free. Other files are not removed. */
function listen(path: string): UnixListener {
  if (isOtherFile(path)) {
    throw invalidParam('socketPath', 'must be the path of a socket, not of another file', path);
  }
  rmSync(path, { force: true });
  const mask = process.umask(SOCKET_MASK);
  try {
    return listenUnix(path, SocketType.SEQPACKET);
  } finally {
    process.umask(mask);
  }
}
