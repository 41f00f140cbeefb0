/**
 * The mount of a device tree whose server has ended. The kernel keeps the connection of the file system while a process has its descriptor of /dev/fuse open,
 * and requests wait for a reply. This class replies instead of the server: with ENODEV, as a driver does after its device was removed.
 */

import { close as closeFd, Errno, EventSet, isSyscallError, ReadyFor } from '../../sys/index.ts';
import { FuseChannel, FuseOp } from './fuse-channel.ts';

/** Requests that release something, which succeeds. */
const RELEASES: ReadonlySet<number> = new Set([FuseOp.RELEASE, FuseOp.RELEASEDIR, FuseOp.FLUSH, FuseOp.DESTROY]);
/** Requests without a reply. */
const UNANSWERED: ReadonlySet<number> = new Set([FuseOp.FORGET, FuseOp.BATCH_FORGET, FuseOp.INTERRUPT]);

/** Descriptors of the thread that cares for a mount. */
export interface MountGuard {
  /** Connection to the server, which hangs up when the server ends. */
  readonly server: number;
  /** /dev/fuse of the mount. */
  readonly fuse: number;
  /** Becomes readable when the thread must end. */
  readonly stop: number;
}

/** Tokens of the polled descriptors. */
const Source = { SERVER: 0, FUSE: 1, STOP: 2 } as const;

/**
 * Takes the place of the server of a mount once that has ended, until the mount or `stop` ends it. Blocks its thread, which must do nothing else: every other
 * thread can wait for a file of the mount.
 */
export function guardMount({ server, fuse, stop }: MountGuard): void {
  const events = new EventSet();
  const mount = new OrphanedMount(fuse);
  events.add(server, 0, Source.SERVER);
  events.add(stop, ReadyFor.READ, Source.STOP);
  for (let isServed = true; isServed; ) {
    const count = events.wait();
    for (let i = 0; i < count; i++) {
      const token = events.token(i);
      if (token === Source.SERVER) {
        events.remove(server);
        mount.adopt();
        events.add(fuse, ReadyFor.READ, Source.FUSE);
      } else if (token === Source.STOP || !mount.serve()) isServed = false;
    }
  }
  events.close();
  mount.close();
}

export class OrphanedMount {
  readonly #channel: FuseChannel;

  /** Takes ownership of the descriptor of /dev/fuse. */
  constructor(fuse: number) {
    this.#channel = new FuseChannel(fuse);
  }

  /** Takes over the requests that the server has read but not answered. Call it once the server has ended. */
  adopt(): void {
    this.#channel.resend();
  }

  /** Replies to the waiting requests. Returns false once the file system is unmounted. */
  serve(): boolean {
    const channel = this.#channel;
    try {
      while (channel.read()) {
        if (!UNANSWERED.has(channel.opcode)) channel.fail(RELEASES.has(channel.opcode) ? 0 : Errno.ENODEV);
      }
      return true;
    } catch (error) {
      if (isSyscallError(error, Errno.ENODEV)) return false;
      throw error;
    }
  }

  close(): void {
    closeFd(this.#channel.fd);
    this.#channel.free();
  }
}
