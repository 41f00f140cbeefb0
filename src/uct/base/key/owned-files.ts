/**
 * Files that are removed when this process exits without having closed their owners. The files of a killed process are left to scavenging. If a peer was to
 * remove a file and has ended without doing so, this process removes it.
 */

import { existsSync, unlinkSync } from 'node:fs';
import { asError } from '../../../ucs/type/error.ts';

/** Codes of files that cannot be removed: missing, of another user, or in a read-only folder. */
const UNREMOVABLE: readonly (string | undefined)[] = ['ENOENT', 'EPERM', 'EACCES', 'EROFS'];
/** Number of files left to peers that are checked whenever another one is added. */
const SWEPT_PER_USE = 8;

const owned = new Set<string>();
/** Files that peers have to remove, with the check whether the peer has ended; the least recently checked first. */
const left = new Map<string, () => boolean>();

/** Adds a file to the list. */
export function ownFile(path: string): void {
  watchExit();
  owned.add(path);
}

/**
 * Transfers the removal of a file to a peer. If the peer ends without removing it, this process removes it: with a later file, in scavenging, or when it
 * ends.
 * @param isPeerGone whether the peer has ended
 */
export function leaveFile(path: string, isPeerGone: () => boolean): void {
  sweepLeftFiles(SWEPT_PER_USE);
  watchExit();
  left.set(path, isPeerGone);
  owned.delete(path);
}

/** Removes files that were left to peers which have ended. Checks `countMax` files. Returns the number of removed files. */
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

/** Removes any file. Returns false if it does not exist, belongs to another user, or cannot be removed. */
export function unlinkIfThere(path: string): boolean {
  if (owned.delete(path)) unwatchExit();
  try {
    unlinkSync(path);
    return true;
  } catch (error) {
    const { code } = asError(error);
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
