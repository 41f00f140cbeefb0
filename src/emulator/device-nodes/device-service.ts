/** Serves a node to programs through device nodes: its FUSE mounts, and the supervisors of programs. */

import {
  close as closeFd,
  Errno,
  isSyscallError,
  type PollSubscription,
  pollReadable,
  SocketType,
  type UnixSocket,
  unixSocketPair,
} from '../../sys/index.ts';
import type { LimitedLog } from '../../ucs/debug/limited-log.ts';
import { asError } from '../../ucs/type/error.ts';
import type { EmulatedNode } from '../emulated-node.ts';
import { DeviceFiles } from './device-file.ts';
import { DeviceTree } from './device-tree.ts';
import { TreeFileSystem } from './file-system.ts';
import { ForwardedCalls } from './forwarded-calls.ts';
import { FuseChannel, FuseOp } from './fuse-channel.ts';
import type { SupervisedNode } from './supervisor-link.ts';

/** Requests of one mount that are served before other mounts get a turn. */
const REQUESTS_PER_POLL = 16;

/** Callbacks to the process that runs the service. */
export interface DeviceServiceHost {
  readonly node: EmulatedNode;
  readonly log: LimitedLog;
  /** Called when there may be work for {@link DeviceService.poll}. */
  readonly wake: () => void;
  /** Called when the event loop has to run. */
  readonly yieldToEventLoop: () => void;
  /** Called when a mount or the supervision of programs has ended. */
  readonly onEnd: () => void;
}

/** A mounted file system. */
class Session {
  readonly channel: FuseChannel;
  readonly #tree: DeviceTree;
  readonly #names: TreeFileSystem;
  readonly #files: DeviceFiles;
  readonly #log: LimitedLog;
  readonly subscription: PollSubscription;

  constructor(fd: number, tree: DeviceTree, { node, log, wake, yieldToEventLoop }: DeviceServiceHost) {
    this.channel = new FuseChannel(fd);
    this.#log = log;
    this.#tree = tree;
    this.#names = new TreeFileSystem(tree, this.channel);
    this.#files = new DeviceFiles({ node, channel: this.channel, log, yieldToEventLoop });
    this.subscription = pollReadable(fd, wake);
  }

  /** Replies to waiting requests. Returns whether there were any. Throws SyscallError ENODEV once the file system is unmounted. */
  serve(): boolean {
    for (let served = 0; served < REQUESTS_PER_POLL; served++) {
      if (!this.channel.read()) return served > 0;
      try {
        this.#answer();
      } catch (error) {
        // Every request needs a reply: otherwise its caller would wait forever.
        if (isSyscallError(error) && error.syscall === 'write') throw error;
        if (!isSyscallError(error)) this.#log.error(`unexpected error in a request: ${asError(error).stack}`);
        this.channel.fail(isSyscallError(error) ? error.errno : Errno.EIO);
      }
    }
    return true;
  }

  #answer(): void {
    const device = this.#tree.device(this.channel.node);
    if (device !== undefined && this.channel.opcode === FuseOp.IOCTL) this.#files.answer(device);
    else if (this.channel.opcode === FuseOp.INTERRUPT) this.#files.interrupt();
    else if (!this.#names.answer()) this.#files.answer(device!);
  }

  close(): void {
    this.#files.close();
    this.subscription.close();
    closeFd(this.channel.fd);
    this.channel.free();
  }
}

/** Supervised programs. */
interface Supervised {
  readonly calls: ForwardedCalls;
  readonly subscription: PollSubscription;
}

export class DeviceService {
  readonly #host: DeviceServiceHost;
  readonly #tree: DeviceTree;
  readonly #sessions: Set<Session> = new Set();
  readonly #supervised: Set<Supervised> = new Set();

  constructor(host: DeviceServiceHost) {
    this.#host = host;
    this.#tree = new DeviceTree(host.node);
  }

  /** Whether there are mounts, or supervised programs, whose filtered calls would fail if this process ended. */
  get isUsed(): boolean {
    return this.#sessions.size > 0 || this.#supervised.size > 0;
  }

  /**
   * Serves a mount. Takes ownership of the descriptor of /dev/fuse.
   * @throws SyscallError EMFILE
   */
  attach(fd: number): void {
    const session = new Session(fd, this.#tree, this.#host);
    this.#sessions.add(session);
    this.#host.wake();
  }

  /** The device nodes of the tree. */
  get nodes(): readonly SupervisedNode[] {
    return this.#tree.devices();
  }

  /**
   * Handles the system calls that the supervisor of a program forwards.
   * @returns the end of a connection that the supervisor uses
   * @throws SyscallError EMFILE
   */
  supervise(): UnixSocket {
    const [own, supervisor] = unixSocketPair(SocketType.SEQPACKET);
    const calls = new ForwardedCalls(own, { node: this.#host.node, tree: this.#tree, log: this.#host.log });
    const supervised: Supervised = {
      calls,
      subscription: pollReadable(own.fd, () => {
        if (calls.serve()) return;
        this.#endSupervision(supervised);
        this.#host.onEnd();
      }),
    };
    this.#supervised.add(supervised);
    return supervisor;
  }

  /** Replies to the waiting requests of the mounts. Returns whether there were any. */
  poll(): boolean {
    let served = false;
    for (const session of this.#sessions) {
      try {
        if (session.serve()) served = true;
      } catch (error) {
        if (!isSyscallError(error)) throw error;
        this.#end(session);
      }
    }
    return served;
  }

  /** Ends all mounts and connections to supervisors: programs get ENODEV from their supervisor, or ENOTCONN without one. Idempotent. */
  close(): void {
    for (const session of this.#sessions) session.close();
    this.#sessions.clear();
    for (const supervised of this.#supervised) this.#endSupervision(supervised);
  }

  #endSupervision(supervised: Supervised): void {
    this.#supervised.delete(supervised);
    supervised.subscription.close();
    supervised.calls.close();
  }

  #end(session: Session): void {
    session.close();
    this.#sessions.delete(session);
    this.#host.onEnd();
  }
}
