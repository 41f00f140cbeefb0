/**
 * Conventions of all commands: invalid arguments, error messages, exit codes, and programs of this package as child processes.
 *
 * | Exit code | Meaning |
 * |---|---|
 * | 0 | The command succeeded |
 * | 1 | The command failed: the last line of standard error is the reason |
 * | 2 | An argument is wrong: the last line of standard error names it, the line before names the help |
 * | 130 | The command was interrupted |
 */

import { type ChildProcess, type SpawnOptions, type StdioOptions, spawn } from 'node:child_process';
import { fileURLToPath } from 'node:url';
import { type Command, CommanderError, Option } from 'commander';
import { type ErrorDetails, invalidParam, isUcxError, UcxError } from '../../ucs/type/error.ts';
import { Status, statusName } from '../../ucs/type/status.ts';

export const EXIT_FAILURE = 1;
export const EXIT_USAGE = 2;
export const EXIT_INTERRUPTED = 130;

/** Name of the program, the prefix of its error messages. */
const NAME = 'gaudi-ucx';

/**
 * Runs the part of a command that reads its arguments.
 * @throws CommanderError, if `read` rejects an argument; the message is printed
 */
export function readArguments<T>(command: Command, read: () => T): T {
  try {
    return read();
  } catch (error) {
    if (!isUcxError(error) || !USAGE_CODES.has(error.code)) throw error;
    return command.error(errorText(namingOption(command, error)));
  }
}

/** The same error, naming the option that the user typed instead of the parameter of a function. */
function namingOption(command: Command, error: UcxError): UcxError {
  const { argument, rule } = error.details;
  const option = command.options.find((each) => each.attributeName() === argument);
  const isGiven = option !== undefined && command.getOptionValueSource(option.attributeName()) === 'cli';
  if (!isGiven || option.long === undefined || option.long === null || rule === undefined) return error;
  return invalidParam(option.long, String(rule), command.getOptionValue(option.attributeName()));
}

const USAGE_CODES: ReadonlySet<string> = new Set(['ERR_INVALID_PARAM', 'ERR_GAUDI_INVALID_PARAMS', 'ERR_UNSUPPORTED']);

/** Makes a command and its subcommands throw a CommanderError for wrong arguments instead of ending the process. */
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

/** Full name of a command, such as `gaudi-ucx node up`. */
function pathOf(command: Command): string {
  return command.parent === null ? command.name() : `${pathOf(command.parent)} ${command.name()}`;
}

/**
 * Prints an error on one line and sets the exit code.
 * @throws `error`, if it is a bug of this program
 */
export function reportFailure(error: unknown): void {
  if (error instanceof CommanderError) {
    // Commander has printed the message. Help that was requested is not a failure.
    if (error.exitCode !== 0) process.exitCode = EXIT_USAGE;
    return;
  }
  const line = lineOf(error);
  if (line === undefined) throw error;
  process.stderr.write(`${NAME}: ${line}\n`);
  process.exitCode = isAboutOption(error) ? EXIT_USAGE : isInterruption(error) ? EXIT_INTERRUPTED : EXIT_FAILURE;
}

/** The error of a command that a signal has interrupted. */
export function interruptedBy(signal: NodeJS.Signals): UcxError {
  return commandError(Status.CANCELED, `interrupted by ${signal}`, { signal });
}

/** An error with the code of a status, and a message that says more than the text of the status. */
export function commandError(status: Status, message: string, details: ErrorDetails = {}): UcxError {
  return new UcxError({ code: `ERR_${statusName(status)}`, status, message, details });
}

function isInterruption(error: unknown): boolean {
  return isUcxError(error) && error.details['signal'] !== undefined;
}

/** Whether an error is about the value of an option, such as a device that does not exist. */
function isAboutOption(error: unknown): boolean {
  return isUcxError(error) && error.code === 'ERR_INVALID_PARAM' && String(error.details['argument']).startsWith('-');
}

/** Message of an error; undefined for a bug of this program. */
function lineOf(error: unknown): string | undefined {
  if (isUcxError(error)) return errorText(error);
  // Errors of node:fs, node:net and node:dns name the call and the path, and have the code of Node.js.
  if (error instanceof Error && 'syscall' in error && 'code' in error) {
    const code = error.syscall === 'getaddrinfo' ? 'ERR_UNREACHABLE' : `ERR_SYSCALL_${String(error.code)}`;
    return errorText({ message: error.message, code });
  }
  return undefined;
}

function errorText({ message, code }: { readonly message: string; readonly code: string }): string {
  return `${message} (${code})`;
}

/**
 * Handles write errors of standard output and standard error. If standard error is closed or full, its text is dropped. A failure to write standard output is
 * reported on one line, except for a closed pipe, as after head: the output ends, and the program finishes its work before it exits.
 */
export function watchOutput(): void {
  let isReported = false;
  process.stderr.on('error', () => {});
  process.stdout.on('error', (error: NodeJS.ErrnoException) => {
    if (error.code === 'EPIPE' || isReported) return;
    isReported = true;
    process.stderr.write(`${NAME}: standard output: ${error.message}\n`);
    process.exitCode = EXIT_FAILURE;
  });
}

/* Options with values for shell completion that commander does not check. */

const suggestions = new WeakMap<Option, readonly string[]>();

/** Makes an option with `values` for shell completion. */
export function suggestingOption(flags: string, description: string, values: readonly string[]): Option {
  const option = new Option(flags, description);
  suggestions.set(option, values);
  return option;
}

/** Values for shell completion of an option; undefined if file names are completed. */
export function suggestedValues(option: Option): readonly string[] | undefined {
  return suggestions.get(option) ?? option.argChoices;
}

/** Descriptors of a child process that exchanges messages with this one over IPC; only its standard error is shown. */
export const CHANNEL_STDIO: StdioOptions = ['ignore', 'ignore', 'inherit', 'ipc'];

/** The command line that runs a program with the same Node.js and Node.js options as this process. */
export function programLine(program: URL | string, args: readonly string[]): [string, ...string[]] {
  const path = program instanceof URL ? fileURLToPath(program) : program;
  return [process.execPath, ...process.execArgv, path, ...args];
}

/** Starts a program as a child process. @throws the error of the system, if it is not one that the process reports as an event */
export function spawnProgram(program: URL | string, args: readonly string[], options: SpawnOptions): ChildProcess {
  const [node, ...line] = programLine(program, args);
  return spawn(node, line, options);
}
