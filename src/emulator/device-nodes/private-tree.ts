/**
 * Merges a device tree with /dev and /sys in a mount namespace of the calling thread; nothing changes outside the namespace.
 *
 * Overlay mounts merge the names: a folder in memory (tmpfs) has the folders and links that the tree adds to folders of the machine. Files, and folders that
 * the machine does not have, are bind mounts of the tree. So files of the machine never depend on the server of the tree.
 */

import {
  chmodSync,
  existsSync,
  lstatSync,
  mkdirSync,
  readdirSync,
  readlinkSync,
  statfsSync,
  statSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs';
import { dirname, join } from 'node:path';
import {
  close as closeFd,
  isSyscallError,
  MountFlag,
  mount,
  OpenFlag,
  open,
  openFuse,
  readMounts,
  unshareMounts,
} from '../../sys/index.ts';
import { mountDeviceTree, type ServeMount, topmost } from './folder-mount.ts';
import type { DisguisedFileSystem } from './supervisor-link.ts';

/** Source of the mounts. */
const SOURCE = 'gaudi-ucx';
/** Folders of /sys that the device tree has as well. */
const SYS_FOLDERS = ['class', 'dev/char', 'bus/pci', 'devices', 'module', 'kernel/debug'] as const;
/** A file system in memory, on /dev until the overlay is mounted there: it has the mounted tree, and the names that the overlays add. */
const TREE = '/dev/tree';
const ADDED = '/dev/added';
const PERMISSIONS = 0o7777;

/** Whether the calling thread is in the mount namespace of {@link enterPrivateTree}, which cannot be entered twice. */
export function isInPrivateTree(): boolean {
  return readMounts().some(({ target, type, source }) => target === '/dev' && type === 'overlay' && source === SOURCE);
}

interface HeldMount {
  readonly target: string;
  readonly source: string;
}

/** Keeps a path accessible after mounts cover it; returns another path of it. */
type Hold = (path: string) => string;

/**
 * Gives the calling thread a mount namespace in which /dev and /sys also have the files of a device tree. Programs that the thread starts or executes see
 * them too.
 * @returns the overlay mounts, which stand for the file systems of the machine
 * @throws SyscallError EPERM without CAP_SYS_ADMIN; others of mount(2)
 */
export function enterPrivateTree(serve: ServeMount): readonly DisguisedFileSystem[] {
  unshareMounts();
  mount('/', { flags: MountFlag.REC | MountFlag.PRIVATE });
  const opened: number[] = [];
  const hold: Hold = (path) => {
    const fd = open(path, OpenFlag.PATH);
    opened.push(fd);
    return `/proc/self/fd/${fd}`;
  };
  try {
    const folders = [...sysTargets().map((target) => join('/sys', target)), '/dev'].map((target) => ({
      target,
      machine: hold(target),
      type: statfsSync(target).type,
      below: holdMountsBelow(target, hold),
    }));
    const fuse = openFuse();
    mount('/dev', { source: SOURCE, type: 'tmpfs', flags: MountFlag.NOSUID, data: 'mode=755' });
    mkdirSync(TREE);
    mountDeviceTree(TREE, serve, fuse);
    const files: HeldMount[] = [];
    const overlays = folders.map((folder) => {
      const added = join(ADDED, folder.target);
      mkdirSync(added, { recursive: true });
      addNames({ target: folder.target, machine: folder.machine, tree: join(TREE, folder.target), added }, files, hold);
      return { ...folder, added: hold(added) };
    });
    for (const each of overlays) overlay(each);
    for (const { target, source } of files) mount(target, { source, flags: MountFlag.BIND });
    return overlays.map(({ target, type }) => ({ device: topmost(target)!.device, type }));
  } finally {
    for (const fd of opened) closeFd(fd);
  }
}

/** A folder of the merged tree, as it is on the machine and in the device tree, and the folder in memory for the names that the device tree adds. */
interface MergedFolder {
  readonly target: string;
  readonly machine: string;
  readonly tree: string;
  readonly added: string;
}

/** Adds the names of a folder of the device tree. Appends the bind mounts that they need to `files`. */
function addNames({ target, machine, tree, added }: MergedFolder, files: HeldMount[], hold: Hold): void {
  // A user who cannot read a folder of the device tree, such as debugfs, cannot read the merged folder either.
  chmodSync(added, statSync(machine).mode & statSync(tree).mode & PERMISSIONS);
  for (const entry of readdirSync(tree, { withFileTypes: true })) {
    const { name } = entry;
    const [inTree, inMachine, inAdded] = [join(tree, name), join(machine, name), join(added, name)];
    const found = lstatSync(inMachine, { throwIfNoEntry: false });
    if (entry.isSymbolicLink()) symlinkSync(readlinkSync(inTree), inAdded);
    else if (entry.isDirectory() && found?.isDirectory() === true) {
      mkdirSync(inAdded);
      addNames({ target: join(target, name), machine: inMachine, tree: inTree, added: inAdded }, files, hold);
    } else {
      if (entry.isDirectory()) mkdirSync(inAdded);
      else writeFileSync(inAdded, '');
      files.push({ target: join(target, name), source: hold(inTree) });
    }
  }
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

/** The mounts below a folder, which an overlay would hide; mounts that this thread cannot enter stay hidden. */
function holdMountsBelow(folder: string, hold: Hold): readonly HeldMount[] {
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

/** Mounts an overlay of added names and a folder of the machine, and binds the mounts below the folder again. */
function overlay({
  target,
  machine,
  added,
  below,
}: {
  readonly target: string;
  readonly machine: string;
  readonly added: string;
  readonly below: readonly HeldMount[];
}): void {
  mount(target, { source: SOURCE, type: 'overlay', flags: MountFlag.RDONLY, data: `lowerdir=${added}:${machine}` });
  for (const each of below) mount(each.target, { source: each.source, flags: MountFlag.BIND | MountFlag.REC });
}
