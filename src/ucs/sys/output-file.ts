/** Opens output files that a variable names. The user has to correct a file that cannot be written, so the error names the variable. */

import { closeSync, openSync } from 'node:fs';
import { resolve } from 'node:path';
import { asError, UcxError } from '../type/error.ts';
import { Status } from '../type/status.ts';

/** The purpose of a file. */
export interface OutputFileUse {
  /** The variable that names it. */
  readonly variable: string;
  /** Code of the error for a file that cannot be written. */
  readonly code: 'ERR_LOG_FILE' | 'ERR_STATS_FILE' | 'ERR_PROFILE_FILE';
}

/** Files that this process has opened before. */
const begun = new Set<string>();

/**
 * Opens a file for appending.
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
    const message = `${variable} must name a file that can be written: ${asError(cause).message}`;
    throw new UcxError({ code, status: Status.IO_ERROR, message, details: { path }, cause });
  }
}
