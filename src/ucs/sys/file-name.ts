/**
 * File names that identify the process: the `%` templates of UCX's log, statistics and profile files.
 *
 * Source: `ucs_fill_filename_template` in UCX `src/ucs/sys/string.c`.
 */

import { closeSync, fstatSync, openSync, readFileSync } from 'node:fs';
import { hostname, userInfo } from 'node:os';
import { basename, resolve } from 'node:path';
import { isatty } from 'node:tty';
import { asError, invalidParam, UcxError } from '../type/error.ts';
import { Status } from '../type/status.ts';
import { effectiveUserId } from './user-id.ts';

export const FILE_NAME_SYNTAX = '%h host, %p process, %c first CPU, %t time, %u user, %e executable, %i user id';

/**
 * The name that `template` gives in this process: `%h` host name without its domain, `%p` process id, `%c` first CPU that the process may
 * use (two digits), `%t` local time as `2026-01-31-23-59-59`, `%u` user name, `%e` base name of the executable, `%i` effective user id.
 * Any other `%` is kept.
 * @param now the time of `%t`; default: now
 */
export function expandFileName(template: string, now: Date = new Date()): string {
  return template.replace(/%([hpctuei])/g, (_match, letter: string) => substitute(letter, now));
}

function substitute(letter: string, now: Date): string {
  switch (letter) {
    case 'h':
      return hostname().split('.', 1)[0]!;
    case 'p':
      return String(process.pid);
    case 'c':
      return String(firstCpu()).padStart(2, '0');
    case 't':
      return localTime(now);
    case 'u':
      return userName();
    case 'e':
      return basename(process.execPath);
    default:
      return String(effectiveUserId());
  }
}

/** The lowest CPU in the affinity of this process. */
function firstCpu(): number {
  const match = /^Cpus_allowed_list:\s*(\d+)/m.exec(readFileSync('/proc/self/status', 'utf8'));
  return Number(match?.[1] ?? 0);
}

/** A user without an entry in the password database, as in containers, is identified by number. */
function userName(): string {
  try {
    return basename(userInfo().username);
  } catch {
    return String(effectiveUserId());
  }
}

function localTime(now: Date): string {
  const parts = [now.getMonth() + 1, now.getDate(), now.getHours(), now.getMinutes(), now.getSeconds()];
  return [now.getFullYear(), ...parts.map((part) => String(part).padStart(2, '0'))].join('-');
}

/** The purpose of an output file. */
export interface OutputFileUse {
  /** The variable that names the file. */
  readonly variable: string;
  /** Code of the error for a file that cannot be written. */
  readonly code: 'ERR_LOG_FILE' | 'ERR_STATS_FILE' | 'ERR_PROFILE_FILE';
}

/** Files that this process has already opened. */
const begun = new Set<string>();

/**
 * Opens an output file for appending. An error names the variable, so that the user can correct the file name.
 * @param isKept whether existing contents are kept; otherwise the first use in this process truncates the file, and later uses
 *   append, because the contexts of a process write to one file
 * @returns the descriptor, which the caller closes
 * @throws UcxError with the code of `use`
 */
export function openOutputFile(path: string, isKept: boolean, { variable, code }: OutputFileUse): number {
  const absolute = resolve(path);
  try {
    if (!isKept && !begun.has(absolute)) closeSync(openSync(absolute, 'w'));
    const fd = openSync(absolute, 'a');
    begun.add(absolute);
    return fd;
  } catch (cause) {
    const message = `${variable} must name a writable file: ${asError(cause).message}`;
    throw new UcxError({ code, status: Status.IO_ERROR, message, details: { path }, cause });
  }
}

/**
 * Reads the text of a file that a user names on the command line, or of a pipe until end of file.
 * @param argument name of the argument that names the file
 * @throws UcxError ERR_INVALID_PARAM for a device, because /dev/zero is endless; the error of node:fs
 */
export function readText(argument: string, path: string): string {
  const fd = openSync(path, 'r');
  try {
    const status = fstatSync(fd);
    // A terminal as standard input is allowed: the user ends the input.
    if ((status.isCharacterDevice() && !isatty(fd)) || status.isBlockDevice()) {
      throw invalidParam(argument, 'must be a regular file or a pipe, not a device', path);
    }
    return readFileSync(fd, 'utf8');
  } finally {
    closeSync(fd);
  }
}
