/** Command `gaudi-ucx web`: serves the page until a signal. */

import { Command } from 'commander';
import { type Program, startProgram } from '../../assembly/program/program.ts';
import { timeType } from '../../ucs/config/value.ts';
import { invalidParam } from '../../ucs/type/error.ts';
import { readArguments } from '../base/command-line.ts';
import { openWebNode, WEB_PORT, type WebNode, webPortOf } from './web-node.ts';
import { WebSession } from './web-session.ts';

const INTERVAL_NS_MIN = 100e6;
const INTERVAL_NS_MAX = 60e9;

interface Options {
  readonly port: string;
  readonly interval: string;
}

/** The command. */
export function webCommand(): Command {
  return new Command('web')
    .description('serve a live web page with the node, its processes and their traffic, on this host')
    .option('--port <port>', 'TCP port on 127.0.0.1; 0 for any free port', WEB_PORT)
    .option('--interval <time>', 'time between two samples, such as 500ms', '1s')
    .action(run);
}

async function run(options: Options, command: Command): Promise<void> {
  const { port, intervalNs } = readArguments(command, () => ({
    port: webPortOf('--port', options.port),
    intervalNs: intervalOf(options.interval),
  }));
  const program = startProgram();
  const web = openWebNode(program);
  const end = new AbortController();
  for (const signal of ['SIGINT', 'SIGTERM', 'SIGHUP'] as const) process.once(signal, () => end.abort());
  try {
    await serveWeb(program, web, { port, intervalNs }, end.signal);
  } finally {
    await web.close();
  }
}

/**
 * Serves the page until the signal fires.
 * @throws UcxError ERR_WEB_PAGE, ERR_NODE_UNREACHABLE; the error of listen(2)
 */
export async function serveWeb(
  program: Program,
  web: WebNode,
  { port, intervalNs }: { readonly port: number; readonly intervalNs: number },
  signal: AbortSignal,
): Promise<void> {
  const session = await WebSession.open(program, web, port);
  const use =
    web.driver === undefined
      ? ''
      : `to use the cards of this page, start programs with UCX_GAUDI_DRIVER=${web.driver}\n`;
  process.stdout.write(`${use}${session.server.url}\n`);
  try {
    await session.run(intervalNs, signal);
  } finally {
    session.close();
  }
}

function intervalOf(text: string): number {
  const ns = timeType.parse(text);
  if (ns === undefined || !(ns >= INTERVAL_NS_MIN && ns <= INTERVAL_NS_MAX)) {
    throw invalidParam('--interval', 'must be a time from 100ms to 1min', text);
  }
  return ns;
}
