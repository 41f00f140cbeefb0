/**
 * Files that go with this process: removed when it ends in the ordinary way without having closed what they belong to. A process that is
 * killed leaves them to scavenging.
 */

import { unlinkSync } from 'node:fs';

/** Why a file stays: it is gone, of another user, or in a folder that is read-only. */
const UNREMOVABLE: readonly (string | undefined)[] = ['ENOENT', 'EPERM', 'EACCES', 'EROFS'];

const owned = new Set<string>();

/** Takes a file into the list. */
export function ownFile(path: string): void {
  if (owned.size === 0) process.once('exit', removeAll);
  owned.add(path);
}

/** Leaves a file to somebody else. */
export function disownFile(path: string): void {
  if (owned.delete(path) && owned.size === 0) process.off('exit', removeAll);
}

/** Removes a file, of this process or not. False when it is not there any more, belongs to another user, or cannot be removed. */
export function unlinkIfThere(path: string): boolean {
  disownFile(path);
  try {
    unlinkSync(path);
    return true;
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException;
    if (UNREMOVABLE.includes(code)) return false;
    throw error;
  }
}

function removeAll(): void {
  for (const path of [...owned]) unlinkIfThere(path);
}
