/** Opens the files that a variable names for output: a file that cannot be written is the user's to mend, so the error says which variable it is. */

import { openSync } from 'node:fs';
import { UcxError } from './error.ts';
import { Status } from './status.ts';

/** For whom a file is opened. */
export interface OutputFileUse {
  /** The variable that names it. */
  readonly variable: string;
  /** Code of the error for a file that cannot be written. */
  readonly code: 'ERR_LOG_FILE' | 'ERR_STATS_FILE' | 'ERR_PROFILE_FILE';
}

/**
 * Opens a file for writing.
 * @param flags `w`: begun anew; `a`: appended to
 * @returns the descriptor, which is the caller's to close
 * @throws UcxError with the code of `use`
 */
export function openOutputFile(path: string, flags: 'w' | 'a', { variable, code }: OutputFileUse): number {
  try {
    return openSync(path, flags);
  } catch (cause) {
    const message = `${variable} must name a file that can be written: ${(cause as Error).message}`;
    throw new UcxError({ code, status: Status.IO_ERROR, message, details: { path }, cause });
  }
}
