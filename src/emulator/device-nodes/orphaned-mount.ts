/**
 * The mount of a device tree whose server has ended. While somebody holds its descriptor of /dev/fuse, requests wait for a reply: this class replies in place
 * of the server, with ENODEV, as a driver does after its device was removed.
 */

import { close as closeFd, Errno, isSyscallError } from '../../sys/index.ts';
import { FuseChannel, FuseOp } from './fuse-channel.ts';

/** Requests that release something, which succeeds. */
const RELEASES: ReadonlySet<number> = new Set([FuseOp.RELEASE, FuseOp.RELEASEDIR, FuseOp.FLUSH, FuseOp.DESTROY]);
/** Requests without a reply. */
const UNANSWERED: ReadonlySet<number> = new Set([FuseOp.FORGET, FuseOp.BATCH_FORGET, FuseOp.INTERRUPT]);

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
