/** User ids of this process. */

import process from 'node:process';

/** The real user id, which peers see in the credentials of a socket. */
export function userId(): number {
  return process.getuid?.() ?? -1;
}

/** The effective user id, which owns the files that this process creates. */
export function effectiveUserId(): number {
  return process.geteuid?.() ?? -1;
}
