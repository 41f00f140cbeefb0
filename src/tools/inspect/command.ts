/** Command `gaudi-ucx inspect`: prints contexts, workers, endpoints and pending requests of running processes of this user. */

import { existsSync } from 'node:fs';
import { Command } from 'commander';
import { type InspectAnswer, type InspectQuery, inspectProcesses } from '../../assembly/inspect/inspect-client.ts';
import { socketFolder, trySocketFolder } from '../../assembly/inspect/inspect-sockets.ts';
import { snapshotText, workerNames } from '../../assembly/inspect/snapshot-text.ts';
import { startProgram } from '../../assembly/program/program.ts';
import { timeType } from '../../ucs/config/value.ts';
import { invalidParam, UcxError } from '../../ucs/type/error.ts';
import { Status } from '../../ucs/type/status.ts';
import { EXIT_FAILURE, readArguments } from '../base/command-line.ts';
import { pause } from '../base/text-table.ts';

const INTERVAL_NS_MIN = 100e6;
const INTERVAL_NS_MAX = 3600e9;
/** Timeout of a reply. A process replies when its event loop runs. */
const TIMEOUT = '2s';

interface Options {
  readonly json?: boolean;
  readonly watch?: string | true;
  readonly timeout: string;
}

/** The command. */
export function inspectCommand(): Command {
  return new Command('inspect')
    .description('show what running processes do: endpoints, lanes, pending requests, unexpected messages')
    .argument('[pid]', 'only this process')
    .option('--json', 'the snapshots as JSON: an array, on one line with --watch')
    .option('--watch [time]', 'repeat, every second or at this interval')
    .option('--timeout <time>', 'timeout for the reply of a process', TIMEOUT)
    .action(run);
}

async function run(pidText: string | undefined, options: Options, command: Command): Promise<void> {
  const { pid, timeoutNs, intervalNs } = readArguments(command, () => ({
    pid: pidText === undefined ? undefined : pidOf(pidText),
    timeoutNs: timeOf('timeout', options.timeout),
    intervalNs:
      options.watch === undefined ? undefined : timeOf('watch', options.watch === true ? '1s' : options.watch),
  }));
  const { clock, env } = startProgram();
  const query = { runtimeDirectory: env['XDG_RUNTIME_DIR'], clock, timeoutNs, pid };
  const print = async (): Promise<void> => {
    const answers = await inspectProcesses(query);
    if (answers.length === 0) reportNone(query, options.json === true ? process.stderr : process.stdout);
    if (pid !== undefined && answers.every(({ snapshot }) => snapshot === undefined)) process.exitCode = EXIT_FAILURE;
    if (options.json === true) process.stdout.write(jsonOf(answers, intervalNs !== undefined));
    else if (answers.length > 0) process.stdout.write(textOf(answers));
  };
  await print();
  if (intervalNs === undefined) return;
  for (const ending = watchEnd(); await pause(clock, intervalNs, ending); ) {
    if (options.json !== true) process.stdout.write('\n');
    await print();
  }
}

/**
 * Reports where no socket was found.
 * @throws UcxError ERR_INSPECT_NOT_FOUND for one process; SyscallError if the folder does not exist and cannot be created, so that no program can have a
 * socket
 */
function reportNone({ runtimeDirectory, pid }: InspectQuery, output: NodeJS.WritableStream): void {
  const folder = socketFolder(runtimeDirectory);
  if (pid !== undefined) throw notFound(pid, folder);
  const isThere = existsSync(folder);
  if (!isThere) trySocketFolder(runtimeDirectory);
  const where = isThere ? `no socket in ${folder}` : `${folder} does not exist`;
  const advice = 'to see programs that were started with another XDG_RUNTIME_DIR, set the same value for this command';
  output.write(`no process to inspect: ${where}; ${advice}\n`);
}

function jsonOf(answers: readonly InspectAnswer[], isLine: boolean): string {
  return `${JSON.stringify(answers, undefined, isLine ? undefined : 2)}\n`;
}

function textOf(answers: readonly InspectAnswer[]): string {
  const names = workerNames(answers.flatMap(({ snapshot }) => snapshot ?? []));
  const parts = answers.map(({ pid, tid, snapshot, failure }) =>
    snapshot === undefined ? [`process ${pid} thread ${tid}: ${failure}`] : snapshotText(snapshot, names),
  );
  return `${parts.map((lines) => lines.join('\n')).join('\n\n')}\n`;
}

/** Signal aborted by SIGINT, SIGTERM and SIGHUP, or when the reader closes the pipe. */
function watchEnd(): AbortSignal {
  const ending = new AbortController();
  const end = (): void => ending.abort();
  for (const signal of ['SIGINT', 'SIGTERM', 'SIGHUP'] as const) process.once(signal, end);
  process.stdout.once('error', end);
  return ending.signal;
}

function pidOf(text: string): number {
  if (!/^[1-9]\d{0,9}$/.test(text)) throw invalidParam('pid', 'must be a process id', text);
  return Number(text);
}

function timeOf(argument: string, text: string): number {
  const ns = timeType.parse(text);
  if (ns === undefined || !(ns >= INTERVAL_NS_MIN && ns <= INTERVAL_NS_MAX)) {
    throw invalidParam(argument, 'must be a time from 100ms to 60m', text);
  }
  return ns;
}

function notFound(pid: number, folder: string): UcxError {
  return new UcxError({
    code: 'ERR_INSPECT_NOT_FOUND',
    status: Status.NO_ELEM,
    message: `process ${pid} has no inspect socket in ${folder}: it does not run, has no open context, has UCX_INSPECT=n or another XDG_RUNTIME_DIR, or belongs to another user`,
    details: { pid, folder },
  });
}
