/** Opens the files that a variable names for output: a file that cannot be written is the user's to mend, so the error says which variable it is. */

import { closeSync, openSync } from 'node:fs';
import { resolve } from 'node:path';
import { UcxError } from '../type/error.ts';
import { Status } from '../type/status.ts';

/** For whom a file is opened. */
export interface OutputFileUse {
  /** The variable that names it. */
  readonly variable: string;
  /** Code of the error for a file that cannot be written. */
  readonly code: 'ERR_LOG_FILE' | 'ERR_STATS_FILE' | 'ERR_PROFILE_FILE';
}

/** Files that this process has begun. */
const begun = new Set<string>();

/**
 * Opens a file for writing at its end.
 * @param isKept whether what others have left in it stays; otherwise this process begins it anew at its first use, and goes on with it at later
 *   ones: the contexts of a process, together or one after the other, write to one file
 * @returns the descriptor, which is the caller's to close
 * @throws UcxError with the code of `use`
 */
export function openOutputFile(path: string, isKept: boolean, { variable, code }: OutputFileUse): number {
  const whole = resolve(path);
  try {
    if (!isKept && !begun.has(whole)) closeSync(openSync(whole, 'w'));
    const fd = openSync(whole, 'a');
    begun.add(whole);
    return fd;
  } catch (cause) {
    const message = `${variable} must name a file that can be written: ${(cause as Error).message}`;
    throw new UcxError({ code, status: Status.IO_ERROR, message, details: { path }, cause });
  }
}
