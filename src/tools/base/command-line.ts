/**
 * Rules of all commands: how arguments are refused, how errors are printed, and the exit codes.
 *
 * | Exit code | Meaning |
 * |---|---|
 * | 0 | The command succeeded |
 * | 1 | It failed: the last line of standard error says why |
 * | 2 | Its arguments are wrong: the last line of standard error says which, the line before it where the usage is |
 * | 130 | It was interrupted |
 */

import { type Command, CommanderError } from 'commander';
import { isUcxError } from '../../ucs/type/error.ts';

export const EXIT_FAILURE = 1;
export const EXIT_USAGE = 2;
export const EXIT_INTERRUPTED = 130;

/** The program's name at the beginning of its error lines. */
const NAME = 'gaudi-ucx';

/**
 * Runs the part of a command that reads its arguments.
 * @throws CommanderError, with the message printed, for what `read` refuses as bad arguments
 */
export function readArguments<T>(command: Command, read: () => T): T {
  try {
    return read();
  } catch (error) {
    if (!isUcxError(error) || !USAGE_CODES.has(error.code)) throw error;
    return command.error(errorText(error));
  }
}

const USAGE_CODES: ReadonlySet<string> = new Set(['ERR_INVALID_PARAM', 'ERR_GAUDI_INVALID_PARAMS', 'ERR_UNSUPPORTED']);

/** Makes a command and its subcommands report wrong arguments as described above, instead of ending the process. */
export function reportUsage(command: Command): void {
  command.exitOverride();
  command.configureOutput({
    outputError: (text, write) => {
      const line = text.trimEnd().replace(/^error: /, '');
      write(`Try '${pathOf(command)} --help'.\n${NAME}: ${line}\n`);
    },
  });
  for (const child of command.commands) reportUsage(child);
}

/** `gaudi-ucx node up`. */
function pathOf(command: Command): string {
  return command.parent === null ? command.name() : `${pathOf(command.parent)} ${command.name()}`;
}

/**
 * Prints why the program has failed, on one line, and sets its exit code.
 * @throws its argument, if that is a defect of this program
 */
export function reportFailure(error: unknown): void {
  if (error instanceof CommanderError) {
    // The message is already printed; requested help is not a failure.
    if (error.exitCode !== 0) process.exitCode = EXIT_USAGE;
    return;
  }
  const line = lineOf(error);
  if (line === undefined) throw error;
  process.stderr.write(`${NAME}: ${line}\n`);
  process.exitCode = isAboutOption(error) ? EXIT_USAGE : EXIT_FAILURE;
}

/** True for an option whose value only turned out to be wrong when it was used, such as a device that is not there. */
function isAboutOption(error: unknown): boolean {
  return isUcxError(error) && error.code === 'ERR_INVALID_PARAM' && String(error.details['argument']).startsWith('-');
}

/** The line for an error that a user can act on; undefined for a defect of this program. */
function lineOf(error: unknown): string | undefined {
  if (isUcxError(error)) return errorText(error);
  // Errors of node:fs and node:net name the call and the path.
  if (error instanceof Error && 'syscall' in error) return error.message;
  return undefined;
}

function errorText({ message, code }: { readonly message: string; readonly code: string }): string {
  return `${message} (${code})`;
}

/**
 * Reports a failure to write standard output in one line. A closed pipe, as after head, is not a failure: the output ends, and the
 * program finishes its work before it exits.
 */
export function watchOutput(): void {
  let isReported = false;
  process.stdout.on('error', (error: NodeJS.ErrnoException) => {
    if (error.code === 'EPIPE' || isReported) return;
    isReported = true;
    process.stderr.write(`${NAME}: standard output: ${error.message}\n`);
    process.exitCode = EXIT_FAILURE;
  });
}
