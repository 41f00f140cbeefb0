/** Text files that users name on command lines. */

import { closeSync, fstatSync, openSync, readFileSync } from 'node:fs';
import { isatty } from 'node:tty';
import { invalidParam } from '../type/error.ts';

/**
 * Reads a text file, or a pipe to its end.
 * @param argument name of the argument that names the file
 * @throws UcxError ERR_INVALID_PARAM for a device: /dev/zero has no end; the error of node:fs
 */
export function readText(argument: string, path: string): string {
  const fd = openSync(path, 'r');
  try {
    const status = fstatSync(fd);
    // Not standard input that is a terminal, which a user ends.
    if ((status.isCharacterDevice() && !isatty(fd)) || status.isBlockDevice()) {
      throw invalidParam(argument, 'must be a file or a pipe, and no device', path);
    }
    return readFileSync(fd, 'utf8');
  } finally {
    closeSync(fd);
  }
}
