/** Mounts a device tree on a folder and removes the mount. */

import { statSync } from 'node:fs';
import {
  close as closeFd,
  Errno,
  errnoOf,
  type MountEntry,
  MountFlag,
  mount,
  openFuse,
  readMounts,
  unmount,
} from '../../sys/index.ts';
import { UcxError } from '../../ucs/type/error.ts';
import { Status } from '../../ucs/type/status.ts';

/** Source of the mounts: identifies mounts of this library in /proc. */
const SOURCE = 'gaudi-ucx';

/** Serves a mount: receives the descriptor of /dev/fuse, which the caller keeps, and the device number of the file system. */
export type ServeMount = (fuse: number, device: string) => void;

/**
 * Mounts a device tree on a folder.
 * @param serve called at once: until it serves the mount, every access blocks
 * @param fuse a new descriptor of /dev/fuse, which the call closes
 * @returns the device number of the file system
 * @throws SyscallError EPERM without CAP_SYS_ADMIN, ENOENT, ENODEV without FUSE
 */
export function mountDeviceTree(folder: string, serve: ServeMount, fuse: number = openFuse()): string {
  try {
    // Usable by all users, with permissions checked by the kernel; the root is a folder.
    const data = `fd=${fuse},rootmode=40000,user_id=0,group_id=0,allow_other,default_permissions`;
    mount(folder, { source: SOURCE, type: 'fuse', flags: MountFlag.NOSUID, data });
    const { device } = topmost(folder)!;
    try {
      serve(fuse, device);
    } catch (error) {
      unmount(folder);
      throw error;
    }
    return device;
  } finally {
    closeFd(fuse);
  }
}

/** File systems that this thread serves: a system call on one of them would block this thread forever. */
const served: Set<string> = new Set();

/** A mounted device tree that its server removes. */
export class FolderMount {
  readonly #folder: string;
  readonly #device: string;

  /**
   * Mounts a device tree on a folder, after removing a mount that an ended server has left there.
   * @throws UcxError ERR_NODE_RUNNING if the server of a mount there still runs; SyscallError like {@link mountDeviceTree}
   */
  constructor(folder: string, serve: ServeMount) {
    removeDead(folder);
    this.#folder = folder;
    this.#device = mountDeviceTree(folder, serve);
    served.add(this.#device);
  }

  /** Removes the mount, unless it was removed before or is covered by another one. */
  close(): void {
    served.delete(this.#device);
    if (topmost(this.#folder)?.device === this.#device) unmount(this.#folder);
  }
}

/** Removes a mount whose server has ended. Throws UcxError ERR_NODE_RUNNING if the mount is served. */
function removeDead(folder: string): void {
  const found = topmost(folder);
  if (found?.type !== 'fuse' || found.source !== SOURCE) return;
  if (!served.has(found.device) && !isConnected(folder)) {
    unmount(folder);
    return;
  }
  throw new UcxError({
    code: 'ERR_NODE_RUNNING',
    status: Status.ALREADY_EXISTS,
    message: `a node server already has its device nodes at ${folder}`,
    details: { path: folder },
  });
}

/** Whether the server of a mount replies. */
function isConnected(folder: string): boolean {
  try {
    statSync(folder);
    return true;
  } catch (error) {
    if (errnoOf(error) === Errno.ENOTCONN) return false;
    throw error;
  }
}

/** The mount that a path of this thread shows; undefined if nothing is mounted there. */
export function topmost(folder: string): MountEntry | undefined {
  return readMounts().findLast(({ target }) => target === folder);
}
