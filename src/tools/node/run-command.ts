/** Command `gaudi-ucx run`: runs any program on device nodes of emulated cards. */

import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtempSync, rmSync } from 'node:fs';
import type { Socket } from 'node:net';
import { tmpdir } from 'node:os';
import { extname, join, resolve } from 'node:path';
import type { Readable } from 'node:stream';
import { Command } from 'commander';
import { becomeProgram } from '../../assembly/device-run.ts';
import { connectNodeServer, type RemoteNode } from '../../assembly/node-server.ts';
import { GAUDI_CONFIG_TABLE } from '../../assembly/program/config.ts';
import { readProgram } from '../../assembly/program/program.ts';
import {
  Errno,
  SocketType,
  schedGetAffinity,
  schedSetAffinity,
  type UnixSocket,
  unixSocketPair,
} from '../../sys/index.ts';
import { UcxError } from '../../ucs/type/error.ts';
import { Status } from '../../ucs/type/status.ts';
import { programLine, reportFailure } from '../base/command-line.ts';
import { addNodeOptions, describeNode, type NodeOptions } from '../node-access/node.ts';
import type { ServerAnswer, ServerArguments } from './device-server-program.ts';

const SERVER = new URL(`./device-server-program${extname(import.meta.url)}`, import.meta.url);
const SUPERVISOR = new URL(`./supervisor-program${extname(import.meta.url)}`, import.meta.url);
/** Exit codes of env(1) and of shells: the program was found but cannot be run; the program was not found. */
const EXIT_CANNOT_RUN = 126;
const EXIT_NOT_FOUND = 127;

interface RunOptions extends NodeOptions {
  readonly socket?: string;
  readonly trace?: string;
  readonly oneProcessor?: boolean;
}

/** The command. */
export function runCommand(): Command {
  const command = new Command('run')
    .description('run a program on the device nodes of emulated cards')
    .argument('<program>', 'any program: it opens /dev/accel/accel0, or /dev/hl0')
    .argument('[arguments...]', 'its arguments')
    .passThroughOptions();
  return addNodeOptions(command)
    .option('--socket <path>', 'use the node server at this socket instead of a new node')
    .option('--trace <file>', 'record every ioctl in this file as JSON lines; not with a running node server')
    .option('--one-processor', 'run the program, and a new node server, on one processor: short calls are faster')
    .action(run);
}

async function run(file: string, args: readonly string[], options: RunOptions, command: Command): Promise<void> {
  const socket = socketOf(options);
  if (options.trace === '-') command.error('--trace must be a file: standard output belongs to the program');
  if (options.trace !== undefined && socket !== undefined)
    command.error('--trace works only with a new node; to trace a node server, start it by node up --trace');
  // Inherited by the processes that this one starts, and by the program: a call then needs no wake-up of another processor.
  if (options.oneProcessor === true) schedSetAffinity(0, schedGetAffinity(0).slice(-1));
  const supervisor = startSupervisor();
  const server = socket === undefined ? await startServer(options, command) : connectNodeServer(socket);
  try {
    becomeProgram({ server, supervisor }, file, args);
  } catch (error) {
    supervisor.close();
    server.close();
    reportFailure(error);
    if (!(error instanceof Error && 'syscall' in error && error.syscall === 'execve')) return;
    process.exitCode = 'errno' in error && error.errno === Errno.ENOENT ? EXIT_NOT_FOUND : EXIT_CANNOT_RUN;
  }
}

/** The socket of a running node server: the given one, else that of UCX_GAUDI_DRIVER; undefined for a new node. */
function socketOf({ socket }: RunOptions): string | undefined {
  if (socket !== undefined) return resolve(socket);
  const { DRIVER } = readProgram().config.get(GAUDI_CONFIG_TABLE);
  return typeof DRIVER === 'object' ? DRIVER.socket : undefined;
}

/** Starts the supervisor of the program; returns the connection to it. It ends if the connection is closed before it has its work. */
function startSupervisor(): UnixSocket {
  const [own, supervisor] = unixSocketPair(SocketType.SEQPACKET);
  startDetached(SUPERVISOR, [], supervisor.fd);
  supervisor.close();
  return own;
}

/** Starts a program of this package that is not a child of this process: the program that this process executes has only the children that it starts. */
function startDetached(program: URL, args: readonly string[], link: 'pipe' | number): ChildProcess {
  return spawn('/bin/sh', ['-c', '"$@" &', 'sh', ...programLine(program, args)], {
    detached: true,
    stdio: ['ignore', 'ignore', 'inherit', link],
  });
}

/**
 * Starts a node server that is not a child of this process, because this process executes the program.
 * @throws UcxError ERR_NODE_START, ERR_INVALID_PARAM
 */
async function startServer(options: RunOptions, command: Command): Promise<RemoteNode> {
  const folder = mkdtempSync(join(tmpdir(), 'gaudi-ucx-run-'));
  const socket = join(folder, 'node.sock');
  const serverArguments: ServerArguments = {
    socket,
    description: describeNode(options),
    ...(options.trace === undefined ? {} : { trace: resolve(options.trace) }),
  };
  const shell = startDetached(SERVER, [JSON.stringify(serverArguments)], 'pipe');
  // When this channel closes, the server knows that this process has executed the program, or has ended.
  const channel = shell.stdio[3] as Socket;
  const line = await firstLine(channel);
  channel.unref();
  if (shell.exitCode === null) await once(shell, 'exit');
  if (line === '') {
    rmSync(folder, { recursive: true, force: true });
    throw new UcxError({
      code: 'ERR_NODE_START',
      status: Status.IO_ERROR,
      message: 'the node server ended during its start: its output is above, on standard error',
    });
  }
  const answer: ServerAnswer = JSON.parse(line);
  if (answer.serving) return connectNodeServer(socket);
  if (answer.code === 'ERR_INVALID_PARAM') command.error(answer.message);
  throw new UcxError({ code: answer.code ?? 'ERR_NODE_START', status: Status.IO_ERROR, message: answer.message });
}

/** Reads the first line of a stream; empty if the stream ends before. */
async function firstLine(stream: Readable): Promise<string> {
  let text = '';
  for await (const chunk of stream.iterator({ destroyOnReturn: false })) {
    text += String(chunk);
    if (text.includes('\n')) break;
  }
  return text.split('\n')[0]!;
}
