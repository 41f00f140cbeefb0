/**
 * Files that go with this process: removed when it ends in the ordinary way without having closed what they belong to. A process that is
 * killed leaves them to scavenging. A file that a peer was to remove is removed here when the peer has ended without.
 */

import { existsSync, unlinkSync } from 'node:fs';

/** Why a file stays: it is gone, of another user, or in a folder that is read-only. */
const UNREMOVABLE: readonly (string | undefined)[] = ['ENOENT', 'EPERM', 'EACCES', 'EROFS'];
/** Files that were left to peers and are looked at with the next one. */
const SWEPT_PER_USE = 8;

const owned = new Set<string>();
/** Files that peers are to remove, with the question whether their peer has ended; oldest look first. */
const left = new Map<string, () => boolean>();

/** Takes a file into the list. */
export function ownFile(path: string): void {
  watchExit();
  owned.add(path);
}

/**
 * Leaves a file to a peer. If the peer ends without removing it, it is removed here: with a later file, in scavenging, or when this process ends.
 * @param isPeerGone whether the peer has ended
 */
export function leaveFile(path: string, isPeerGone: () => boolean): void {
  sweepLeftFiles(SWEPT_PER_USE);
  watchExit();
  left.set(path, isPeerGone);
  owned.delete(path);
}

/** Removes what was left to peers that have ended. Looks at `countMax` files. Returns how many were removed. */
export function sweepLeftFiles(countMax: number = left.size): number {
  let removed = 0;
  for (const [path, isPeerGone] of [...left].slice(0, countMax)) {
    left.delete(path);
    if (!existsSync(path)) continue;
    if (isPeerGone()) removed += unlinkIfThere(path) ? 1 : 0;
    else left.set(path, isPeerGone);
  }
  unwatchExit();
  return removed;
}

/** Removes a file, of this process or not. False when it is not there any more, belongs to another user, or cannot be removed. */
export function unlinkIfThere(path: string): boolean {
  if (owned.delete(path)) unwatchExit();
  try {
    unlinkSync(path);
    return true;
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException;
    if (UNREMOVABLE.includes(code)) return false;
    throw error;
  }
}

function watchExit(): void {
  if (owned.size + left.size === 0) process.once('exit', removeAll);
}

function unwatchExit(): void {
  if (owned.size + left.size === 0) process.off('exit', removeAll);
}

function removeAll(): void {
  sweepLeftFiles();
  for (const path of [...owned]) unlinkIfThere(path);
}
