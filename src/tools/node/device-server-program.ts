/**
 * Program of the node server that `gaudi-ucx run` starts. It serves until no process uses its mounts. Its first argument has the options of the node. It
 * writes one line to descriptor 3, where it also detects that the process that started it has ended.
 */

import { rmSync } from 'node:fs';
import { Socket } from 'node:net';
import { dirname } from 'node:path';
import { type NodeDescription, startNodeServer } from '../../assembly/node-server.ts';
import { readProgram } from '../../assembly/program/program.ts';
import { avoidOomKiller } from '../../sys/index.ts';
import { isUcxError } from '../../ucs/type/error.ts';

/** The argument of the server. */
export interface ServerArguments {
  /** Path of its socket, in a temporary folder that it removes. */
  readonly socket: string;
  readonly description: NodeDescription;
  /** File for the trace of ioctls. */
  readonly trace?: string;
}

/** Reply of the server, one line. */
export type ServerAnswer =
  | { readonly serving: true }
  | { readonly serving: false; readonly message: string; readonly code?: string };

const starter = new Socket({ fd: 3 });
const { socket, description, trace }: ServerArguments = JSON.parse(process.argv[2]!);

function answer(line: ServerAnswer): void {
  starter.write(`${JSON.stringify(line)}\n`);
}

try {
  avoidOomKiller();
  const server = startNodeServer(readProgram(), socket, description, { trace });
  // No client connects after the process that started the server has ended.
  const end = (): void => {
    server.closeWhenUnused();
    rmSync(dirname(socket), { recursive: true, force: true });
  };
  starter.on('close', end);
  starter.on('error', () => {});
  starter.resume();
  answer({ serving: true });
} catch (error) {
  if (!(error instanceof Error)) throw error;
  answer({ serving: false, message: error.message, ...(isUcxError(error) ? { code: error.code } : {}) });
  starter.end();
  rmSync(dirname(socket), { recursive: true, force: true });
}
