/** Serves a node to programs through device nodes: its FUSE mounts, and the supervisors of programs. */

import {
  close as closeFd,
  Errno,
  isSyscallError,
  type PollSubscription,
  pollReadable,
  SeccompListener,
} from '../../sys/index.ts';
import type { LimitedLog } from '../../ucs/debug/limited-log.ts';
import { asError } from '../../ucs/type/error.ts';
import type { EmulatedNode } from '../emulated-node.ts';
import { DeviceFiles } from './device-file.ts';
import type { DeviceTree } from './device-tree.ts';
import { TreeFileSystem } from './file-system.ts';
import { FuseChannel, FuseOp } from './fuse-channel.ts';
import { ServedDevices, Supervisor } from './supervisor.ts';

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
  /** Device number of the file system. */
  readonly device: string;
  readonly #tree: DeviceTree;
  readonly #names: TreeFileSystem;
  readonly #files: DeviceFiles;
  readonly #log: LimitedLog;
  readonly subscription: PollSubscription;

  constructor(fd: number, device: string, tree: DeviceTree, { node, log, wake, yieldToEventLoop }: DeviceServiceHost) {
    this.channel = new FuseChannel(fd);
    this.device = device;
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
  readonly supervisor: Supervisor;
  readonly subscription: PollSubscription;
}

export class DeviceService {
  readonly #host: DeviceServiceHost;
  readonly #served: ServedDevices;
  readonly #sessions: Set<Session> = new Set();
  readonly #supervised: Set<Supervised> = new Set();

  constructor(host: DeviceServiceHost) {
    this.#host = host;
    this.#served = new ServedDevices(host.node, host.log);
  }

  /** Whether there are mounts, or supervised programs, whose filtered calls would fail if this process ended. */
  get isUsed(): boolean {
    return this.#sessions.size > 0 || this.#supervised.size > 0;
  }

  /**
   * Serves a mount. Takes ownership of the descriptor of /dev/fuse.
   * @param device number of the mounted file system, such as `0:52`
   * @throws SyscallError EMFILE
   */
  attach(fd: number, device: string): void {
    const session = new Session(fd, device, this.#served.tree, this.#host);
    this.#sessions.add(session);
    this.#served.fileSystems.add(device);
    this.#host.wake();
  }

  /**
   * Handles the filtered system calls of programs (DEVICE_FILTER). Takes ownership of the listener's descriptor.
   * @throws SyscallError EMFILE
   */
  supervise(listener: number): void {
    const supervisor = new Supervisor(new SeccompListener(listener), this.#served);
    const supervised: Supervised = {
      supervisor,
      subscription: pollReadable(listener, () => {
        if (supervisor.serve()) return;
        this.#endSupervision(supervised);
        this.#host.onEnd();
      }),
    };
    this.#supervised.add(supervised);
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

  /** Ends all mounts and supervisors: programs get ENOTCONN. Idempotent. */
  close(): void {
    for (const session of this.#sessions) session.close();
    this.#sessions.clear();
    this.#served.fileSystems.clear();
    for (const supervised of this.#supervised) this.#endSupervision(supervised);
  }

  #endSupervision(supervised: Supervised): void {
    this.#supervised.delete(supervised);
    supervised.subscription.close();
    supervised.supervisor.close();
  }

  #end(session: Session): void {
    session.close();
    this.#sessions.delete(session);
    // A later mount can reuse the device number.
    const isReused = [...this.#sessions].some(({ device }) => device === session.device);
    if (!isReused) this.#served.fileSystems.delete(session.device);
    this.#host.onEnd();
  }
}
