/** Command `gaudi-ucx node`: starts, shows and ends a node server, and injects faults into its cards. */

import { closeSync, existsSync, fstatSync, openSync, readFileSync, realpathSync, rmSync } from 'node:fs';
import { resolve } from 'node:path';
import { Command } from 'commander';
import {
  connectNodeServer,
  endServer,
  identifyServer,
  NODE_FIELDS,
  type NodeServer,
  type NodeStatus,
  nodeSocketPath,
  prepareNodeFolder,
  type RemoteNode,
  type ServerIdentity,
  startNodeServer,
} from '../../assembly/node-server.ts';
import { cardsOf } from '../../assembly/open-node.ts';
import { type Program, startProgram } from '../../assembly/program/program.ts';
import { connectUnix, SocketType, SyscallError } from '../../sys/index.ts';
import { packageVersion } from '../../ucs/sys/package.ts';
import { isUcxError, UcxError } from '../../ucs/type/error.ts';
import { Status } from '../../ucs/type/status.ts';
import { EXIT_USAGE, readArguments, spawnProgram } from '../base/command-line.ts';
import { formatBytes, formatTable } from '../base/text-table.ts';
import { cardNamed } from '../node-access/card.ts';
import { type FaultArguments, faultOf, faultSentence } from '../node-access/fault.ts';
import { addNodeOptions, describeNode, type NodeOptions } from '../node-access/node.ts';
import { WEB_PORT, webNodeOf, webPortOf } from '../web/web-node.ts';
import { WebSession } from '../web/web-session.ts';

interface SocketOption {
  readonly socket?: string;
}

interface UpOptions extends SocketOption, NodeOptions {
  readonly foreground?: boolean;
  readonly devices?: string;
  readonly trace?: string;
  readonly web?: string | true;
}

interface FaultOptions extends SocketOption, FaultArguments {
  readonly json?: boolean;
}

/** Interval between two models of the page. */
const WEB_INTERVAL_NS = 1e9;
const SOCKET = '--socket <path>';
const SOCKET_HELP = 'socket of the server (default: from UCX_GAUDI_DRIVER, else in XDG_RUNTIME_DIR)';

/** Makes the command with its subcommands. */
export function nodeCommand(): Command {
  const node = new Command('node')
    .description('run an emulated node for several processes')
    .allowExcessArguments()
    .action((_options: object, { args: [name] }: Command) => {
      node.error(name === undefined ? 'no command given' : `unknown command '${name}'`);
    });
  addNodeOptions(node.command('up').description('start the node server'))
    .option(SOCKET, SOCKET_HELP)
    .option('--devices <folder>', 'mount device nodes for programs in this folder, as dev and sys (root only)')
    .option('--trace <file>', 'record every ioctl in this file as JSON lines; with --foreground, - prints them as text')
    .option('--web [port]', `also serve the page of gaudi-ucx web, on 127.0.0.1 (${WEB_PORT})`)
    .option('--foreground', 'serve in this process until a signal or node down')
    .action(up);
  node
    .command('status')
    .description('show the node server, its cards and its clients')
    .option('--json', 'as JSON')
    .option(SOCKET, SOCKET_HELP)
    .action((options: SocketOption & { readonly json?: boolean }) => {
      const print = (value: object, text: string): void => {
        process.stdout.write(`${options.json === true ? JSON.stringify(value, undefined, 2) : text}\n`);
      };
      const identity = identifyServer(socketOf(options));
      if (identity.usable !== true) {
        print(identity, describeOther(identity));
        return;
      }
      const status = withServer(options, (server) => withoutSelf(server.status()));
      print(status, describe(status));
    });
  node
    .command('down')
    .description('end the node server; its clients lose their cards')
    .option(SOCKET, SOCKET_HELP)
    .action((options: SocketOption) => {
      const socket = socketOf(options);
      const pid = endServer(socket);
      const left = `the node server at ${socket} was killed earlier: its socket was removed`;
      process.stdout.write(`${pid === undefined ? left : `node server ${pid} has ended`}\n`);
    });
  node
    .command('fault')
    .description('inject a fault into a card')
    .argument('<card>', 'card by index, device node (accel2) or bus id')
    .argument(
      '<kind>',
      'ioctl, open, completion, hang, exhausted, status, hard-reset, unplug, malfunction, recover, engine-failure, link-down, link-up',
    )
    .option('--nth <number>', 'ioctl, open, completion, hang, exhausted: the nth from now (default: 1)')
    .option('--errno <errno>', 'ioctl, open: error by name or number')
    .option('--ioctl <name>', 'ioctl: INFO, CB, CS, WAIT_CS, MEMORY or DEBUG')
    .option('--resource <name>', 'exhausted: hbm, va or fd')
    .option('--delay <time>', 'completion, hang: duration such as 10ms; default: forever')
    .option('--status <name>', 'status: by name, such as NEEDS_RESET')
    .option('--port <number>', 'link-down, link-up: this NIC port of the card')
    .option('--peer <card>', 'link-down, link-up: all links to that card')
    .option('--json', 'as JSON')
    .option(SOCKET, SOCKET_HELP)
    .action((card: string, kind: string, options: FaultOptions, command: Command) => {
      const checked = readArguments(command, () => faultOf(kind, { ...options, ...(options.peer && { peer: '0' }) }));
      const { fault, sentence } = readArguments(command, () =>
        withServer(options, (server) => {
          const cards = cardsOf(server, startProgram());
          const minorOf = (argument: string, text: string): number => cardNamed(cards, argument, text).minor!;
          const minor = minorOf('card', card);
          const named = options.peer === undefined ? checked : { ...checked, peer: minorOf('peer', options.peer) };
          server.inject(minor, named);
          return { fault: named, sentence: faultSentence(server, cards, minor, named) };
        }),
      );
      process.stdout.write(options.json === true ? `${JSON.stringify(fault)}\n` : `${sentence}\n`);
    });
  return node;
}

/** Folder of the device nodes, which must exist. The realpath of the C library, unlike that of Node.js, does not access a mount whose server was killed. */
function devicesOf({ devices }: UpOptions): string | undefined {
  return devices === undefined ? undefined : realpathSync.native(devices);
}

function socketOf({ socket }: SocketOption): string {
  return socket === undefined ? nodeSocketPath(startProgram()) : resolve(socket);
}

function withServer<T>(options: SocketOption, use: (server: RemoteNode) => T): T {
  const server = connectNodeServer(socketOf(options));
  try {
    return use(server);
  } finally {
    server.close();
  }
}

async function up(options: UpOptions, command: Command): Promise<void> {
  if (options.foreground !== true && options.trace === '-') command.error('--trace - requires --foreground');
  if (options.foreground === true) await serve(options, command);
  else await startDetached(options, command);
}

/** Serves in this process, until a signal or a client ends it. */
async function serve(options: UpOptions, command: Command): Promise<void> {
  const socket = socketOf(options);
  const program = startProgram();
  const port = readArguments(command, () => portOf(options));
  const server = readArguments(command, () => {
    const files = { devices: devicesOf(options), trace: options.trace };
    return startNodeServer(program, socket, describeNode(options), files);
  });
  for (const signal of ['SIGINT', 'SIGTERM', 'SIGHUP'] as const) process.on(signal, () => server.close());
  const ended = new AbortController();
  void server.closed.then(() => ended.abort());
  try {
    const page = port === undefined ? undefined : await WebSession.open(program, webNodeOf(server, socket), port);
    // The package may be replaced while the server runs.
    await server.node.prepare();
    announce(server, page?.server.url);
    notifySystemd(program);
    await page?.run(WEB_INTERVAL_NS, ended.signal);
    await server.closed;
    page?.close();
  } catch (error) {
    // A server that cannot announce its start must end: otherwise its starter would wait forever.
    server.close();
    await server.closed;
    throw error;
  }
  // Signal handlers do not keep the process alive, but the channel to a parent does.
  if (process.connected) process.disconnect();
}

function portOf({ web }: UpOptions): number | undefined {
  return web === undefined ? undefined : webPortOf('--web', web === true ? WEB_PORT : web);
}

function announce(server: NodeServer, url: string | undefined): void {
  const line = [upLine(server.status()), ...(url === undefined ? [] : [url])].join('\n');
  if (process.send === undefined) process.stdout.write(`${line}\n`);
  else {
    process.send(line);
    process.disconnect();
  }
}

/** Notifies systemd that the server is ready, as sd_notify(3) does: for units with Type=notify. */
function notifySystemd({ env, log }: Program): void {
  const path = env['NOTIFY_SOCKET'];
  if (path === undefined || !/^[/@]/.test(path)) return;
  try {
    const socket = connectUnix(path.replace(/^@/, '\0'), SocketType.DGRAM);
    const sent = socket.sendmsg(Buffer.from('READY=1'));
    socket.close();
    if (sent < 0) throw new SyscallError('sendmsg', -sent, path);
  } catch (error) {
    if (!isUcxError(error)) throw error;
    log.warn(`cannot notify systemd that the node server is ready: NOTIFY_SOCKET: ${error.message}`);
  }
}

function upLine(status: NodeStatus): string {
  return `node server up: ${hardwareText(status)}, socket ${status.socket}, pid ${status.pid}`;
}

function hardwareText({ asic, cards, links, nics }: NodeStatus): string {
  return `${cards.length} x ${asic}, links ${links}${nics === 0 ? '' : `, RDMA devices ${nics}`}`;
}

/** Starts a server that outlives this process, and waits until it serves. Its log is beside the socket. */
async function startDetached(options: UpOptions, command: Command): Promise<void> {
  const socket = socketOf(options);
  const args = ['node', 'up', '--foreground', '--socket', socket];
  if (options.config !== undefined) args.push('--config', resolve(options.config));
  for (const name of NODE_FIELDS) {
    const value = options[name];
    if (value !== undefined) args.push(`--${name.replaceAll(/[A-Z]/g, (letter) => `-${letter.toLowerCase()}`)}`, value);
  }
  const devices = devicesOf(options);
  if (devices !== undefined) args.push('--devices', devices);
  if (options.trace !== undefined) args.push('--trace', resolve(options.trace));
  if (options.web !== undefined) args.push('--web', String(portOf(options)));
  prepareNodeFolder(socket);
  const logPath = `${socket}.log`;
  const isNew = !existsSync(logPath);
  const log = openSync(logPath, 'a', 0o600);
  const written = fstatSync(log).size;
  const child = spawnProgram(process.argv[1]!, args, { detached: true, stdio: ['ignore', log, log, 'ipc'] });
  closeSync(log);
  const answer = await new Promise<string | number | null>((settle, fail) => {
    child.once('message', (message) => settle(String(message)));
    child.once('exit', settle);
    child.once('error', fail);
  });
  if (typeof answer !== 'string') {
    const [reason = ''] = readFileSync(logPath).subarray(written).toString().trim().split('\n').slice(-1);
    const text = reason.replace(/^gaudi-ucx: /, '');
    // The log is kept if another server has started meanwhile, which has a socket.
    if (isNew && !existsSync(socket)) rmSync(logPath, { force: true });
    if (answer === EXIT_USAGE) command.error(text);
    // The code with which the server has ended.
    const [ending = '', code = 'ERR_NODE_START'] = / \((ERR_\w+)\)$/.exec(text) ?? [];
    throw new UcxError({
      code,
      status: Status.IO_ERROR,
      message: `the server did not start: ${text.slice(0, text.length - ending.length)}`,
    });
  }
  child.unref();
  if (child.connected) child.disconnect();
  process.stdout.write(`${answer}\n`);
}

/** Removes this process from the clients. */
function withoutSelf(status: NodeStatus): NodeStatus {
  return { ...status, clients: status.clients.filter(({ pid }) => pid !== process.pid) };
}

/** A server of another version. */
function describeOther({ pid, socket, package: other, protocol }: ServerIdentity): string {
  const version = other === undefined ? 'an older gaudi-ucx' : `gaudi-ucx ${other}, protocol ${protocol}`;
  return `node server ${pid} at ${socket} is ${version}; this is gaudi-ucx ${packageVersion()}, which can only end it: gaudi-ucx node down`;
}

function describe(status: NodeStatus): string {
  const { pid, socket, upSeconds, cards, clients } = status;
  const sorted = [...cards].sort((left, right) => (left.busId < right.busId ? -1 : 1));
  const indices = new Map(sorted.map(({ busId }, index) => [busId, index]));
  const rows = sorted.map((card) => [
    String(indices.get(card.busId) ?? '-'),
    `accel${card.minor}`,
    card.busId,
    String(card.moduleId),
    card.status,
    card.owner === null ? '-' : String(card.owner),
    `${formatBytes(card.dramUsedBytes)} of ${formatBytes(card.dramBytes)}`,
    String(card.hardResets),
    `${card.faultsWaiting}/${card.faultsFired}${card.faultKinds.length === 0 ? '' : ` (${card.faultKinds.join(', ')})`}`,
    card.portsDown.join(',') || '-',
  ]);
  const header = [
    'card',
    'device',
    'bus id',
    'module',
    'status',
    'pid',
    'HBM in use',
    'hard resets',
    'faults waiting/fired',
    'ports down',
  ];
  const parts = [
    `node server ${pid} at ${socket}, up ${upSeconds.toFixed(0)} s: ${hardwareText(status)}`,
    formatTable([header, ...rows]),
  ];
  if (clients.length > 0) {
    const lines = clients.map((client) => [client.pid, client.files, client.ioctls].map(String));
    parts.push(formatTable([['client', 'files', 'ioctls'], ...lines]));
  }
  return parts.join('\n');
}
