/**
 * Merges a device tree with /dev and /sys in a mount namespace of the calling thread; nothing changes outside the namespace.
 *
 * Overlay mounts merge the names. They pass on neither ioctls nor writes, so device nodes and folders with writable files are bind-mounted over their
 * names in the overlay.
 */

import { existsSync, readdirSync, readlinkSync } from 'node:fs';
import { dirname, join } from 'node:path';
import {
  close as closeFd,
  isSyscallError,
  MountFlag,
  mount,
  OpenFlag,
  open,
  readMounts,
  unshareMounts,
} from '../../sys/index.ts';
import { mountDeviceTree, type ServeMount } from './folder-mount.ts';

/** Source of the overlay mounts. */
const SOURCE = 'gaudi-ucx';
/** Folders of /sys that the device tree has as well. */
const SYS_FOLDERS = ['class', 'dev/char', 'bus/pci', 'devices', 'module', 'kernel/debug'] as const;

/** Whether the calling thread is in the mount namespace of {@link enterPrivateTree}, which cannot be entered twice. */
export function isInPrivateTree(): boolean {
  return readMounts().some(({ target, type, source }) => target === '/dev' && type === 'overlay' && source === SOURCE);
}

/**
 * Gives the calling thread a mount namespace in which /dev and /sys also have the files of a device tree. Programs that the thread starts or executes see
 * them too.
 * @throws SyscallError EPERM without CAP_SYS_ADMIN; others of mount(2)
 */
export function enterPrivateTree(serve: ServeMount): void {
  unshareMounts();
  mount('/', { flags: MountFlag.REC | MountFlag.PRIVATE });
  const opened: number[] = [];
  const hold = (path: string): string => {
    const fd = open(path, OpenFlag.PATH);
    opened.push(fd);
    return `/proc/self/fd/${fd}`;
  };
  try {
    const oldDev = hold('/dev');
    const devMounts = holdMountsBelow('/dev', hold);
    // The tree is mounted on /dev, which every machine has, until the overlay is mounted there. Descriptors keep the previous contents accessible.
    mountDeviceTree('/dev', serve);
    const newDev = hold('/dev/dev');
    const nodes = readdirSync('/dev/dev').map((name) => ({
      target: join('/dev', name),
      source: hold(join('/dev/dev', name)),
    }));
    const written = writtenFolders('/dev/sys').map((folder) => ({
      target: join('/sys', folder),
      source: hold(join('/dev/sys', folder)),
    }));
    for (const folder of sysTargets())
      overlay(join('/sys', folder), [hold(join('/dev/sys', folder)), hold(join('/sys', folder))], hold);
    overlay('/dev', [newDev, oldDev], hold, devMounts);
    for (const { target, source } of [...nodes, ...written]) mount(target, { source, flags: MountFlag.BIND });
  } finally {
    for (const fd of opened) closeFd(fd);
  }
}

/** Folders below `sys` of a tree with writable files: an overlay would reject writes. */
function writtenFolders(sys: string): readonly string[] {
  const sensors = readdirSync(join(sys, 'class/hwmon')).map((name) => {
    const link = readlinkSync(join(sys, 'class/hwmon', name));
    return join('class/hwmon', dirname(link));
  });
  return ['kernel/debug/accel', 'kernel/debug/habanalabs', ...sensors];
}

/** Folders of /sys that overlays are mounted on: those that the machine has, else the nearest existing parent. */
function sysTargets(): readonly string[] {
  const targets = new Set<string>();
  for (const folder of SYS_FOLDERS) {
    let target: string = folder;
    while (!existsSync(join('/sys', target))) target = dirname(target);
    targets.add(target);
  }
  return [...targets].filter((target) => ![...targets].some((other) => target.startsWith(`${other}/`)));
}

interface HeldMount {
  readonly target: string;
  readonly source: string;
}

/** The mounts below a folder, which an overlay would hide; mounts that this thread cannot enter stay hidden. */
function holdMountsBelow(folder: string, hold: (path: string) => string): readonly HeldMount[] {
  const targets = new Set(readMounts().map(({ target }) => target));
  const held: HeldMount[] = [];
  for (const target of [...targets].filter((each) => each.startsWith(`${folder}/`)).sort()) {
    try {
      held.push({ target, source: hold(target) });
    } catch (error) {
      if (!isSyscallError(error)) throw error;
    }
  }
  return held;
}

/** Mounts an overlay of two folders on a target, and binds the mounts below the target again. */
function overlay(
  target: string,
  [upper, lower]: readonly [string, string],
  hold: (path: string) => string,
  below: readonly HeldMount[] = holdMountsBelow(target, hold),
): void {
  mount(target, { source: SOURCE, type: 'overlay', flags: MountFlag.RDONLY, data: `lowerdir=${upper}:${lower}` });
  for (const each of below) mount(each.target, { source: each.source, flags: MountFlag.BIND | MountFlag.REC });
}
