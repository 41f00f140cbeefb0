/**
 * Program of the node server that `gaudi-ucx run` starts. It serves until no process uses its mounts. Its first argument has the options of the node. It writes
 * one line to descriptor 3, and detects there that the process that has started it has ended.
 */

import { rmSync } from 'node:fs';
import { Socket } from 'node:net';
import { dirname } from 'node:path';
import { startNodeServer } from '../../assembly/node-server.ts';
import { readProgram } from '../../assembly/program/program.ts';
import { isUcxError } from '../../ucs/type/error.ts';
import type { ServerAnswer, ServerArguments } from './server-messages.ts';

const starter = new Socket({ fd: 3 });
const { socket, description, trace }: ServerArguments = JSON.parse(process.argv[2]!);

function answer(line: ServerAnswer): void {
  starter.write(`${JSON.stringify(line)}\n`);
}

try {
  const server = startNodeServer(readProgram(), socket, description, { trace });
  // No client connects after the process that has started the server.
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
