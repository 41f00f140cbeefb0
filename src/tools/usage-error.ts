/** Bad arguments of a command: the message and the usage to standard error, exit code 2. */

import type { Command } from 'commander';
import { isUcxError } from '../ucs/type/error.ts';

const EXIT_USAGE = 2;

/** Runs the part of a command that reads its arguments; undefined, with everything said, when they are bad. */
export function readArguments<T>(command: Command, read: () => T): T | undefined {
  try {
    return read();
  } catch (error) {
    if (!isUcxError(error) || error.code !== 'ERR_INVALID_PARAM') throw error;
    process.stderr.write(`gaudi-ucx: ${error.message} (${error.code})\n\n${command.helpInformation()}`);
    process.exitCode = EXIT_USAGE;
    return undefined;
  }
}
