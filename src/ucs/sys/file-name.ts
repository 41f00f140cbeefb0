/**
 * File names that identify the process: the `%` templates of UCX's log, statistics and profile files. Opens nothing.
 *
 * Source: `ucs_fill_filename_template` in UCX `src/ucs/sys/string.c`.
 */

import { readFileSync } from 'node:fs';
import { hostname, userInfo } from 'node:os';
import { basename } from 'node:path';
import { effectiveUserId } from './user-id.ts';

/** The letters after `%`, for the documentation of fields. */
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
