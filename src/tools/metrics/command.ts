/** Command `gaudi-ucx metrics`: serves the metrics of all processes of the user and of the cards to Prometheus, on loopback by default. */

import { once } from 'node:events';
import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http';
import { Command } from 'commander';
import { type Program, startProgram } from '../../assembly/program/program.ts';
import { timeType } from '../../ucs/config/value.ts';
import { invalidParam, type UcxError } from '../../ucs/type/error.ts';
import { boundAddress } from '../base/bound-address.ts';
import { readArguments } from '../base/command-line.ts';
import {
  isLoopback,
  LOOPBACK_NAMES,
  type MetricsFormat,
  namesLoopback,
  OPENMETRICS,
  PROMETHEUS,
  type Scraped,
  scrape,
} from './scrape.ts';

const PORT = '9400';
const PORT_MAX = 65_535;
const PATH = '/metrics';
/** Base of the paths of requests. */
const BASE = 'http://127.0.0.1';
const TIMEOUT_NS_MIN = 10e6;
const TIMEOUT_NS_MAX = 60e9;
/** Maximum number of connections; Prometheus uses one. */
const CONNECTIONS_MAX = 32;
/** Time limit for a client to send its request. */
const REQUEST_TIMEOUT_MS = 10_000;

interface Options {
  readonly port: string;
  readonly address: string;
  readonly timeout: string;
  readonly once?: boolean;
  readonly openmetrics?: boolean;
}

/** The command. */
export function metricsCommand(): Command {
  return new Command('metrics')
    .description('serve metrics of the cards and of the processes of this user, for Prometheus')
    .option('--port <port>', 'TCP port; 0 for a free one', PORT)
    .option(
      '--address <address>',
      'listen address; with an address other than loopback, other hosts can read the metrics',
      '127.0.0.1',
    )
    .option('--timeout <time>', 'timeout for the reply of a process to a scrape', '1s')
    .option('--once', 'print the metrics once in the text format of Prometheus, instead of serving them')
    .option('--openmetrics', 'with --once: print the OpenMetrics format')
    .action(run);
}

async function run(options: Options, command: Command): Promise<void> {
  const { port, timeoutNs } = readArguments(command, () => {
    if (options.openmetrics === true && options.once !== true) {
      throw invalidParam('--openmetrics', 'must be used with --once: clients of the server select their format', true);
    }
    return { port: portOf(options.port), timeoutNs: timeoutOf(options.timeout) };
  });
  const program = startProgram();
  const read = (format: MetricsFormat): Promise<Scraped> => {
    const { env, clock } = program;
    return scrape(program, { runtimeDirectory: env['XDG_RUNTIME_DIR'], clock, timeoutNs }, format);
  };
  if (options.once === true) {
    const { text, cardsError, folderError } = await read(options.openmetrics === true ? OPENMETRICS : PROMETHEUS);
    process.stdout.write(text);
    const error = folderError ?? cardsError;
    if (error !== undefined) throw error;
    return;
  }
  await serve(program, read, port, options.address);
}

/** Serves until a signal. */
async function serve(
  { log }: Program,
  read: (format: MetricsFormat) => Promise<Scraped>,
  port: number,
  address: string,
): Promise<void> {
  /** Scrapes in progress, shared by all clients that connect meanwhile. */
  const running = new Map<MetricsFormat, Promise<Scraped>>();
  /** The last logged reasons, so that each is logged once. */
  const told = new Map<string, string | undefined>();
  const tell = (what: string, error: UcxError | undefined): void => {
    const reason = error?.message;
    if (reason !== undefined && reason !== told.get(what)) log.warn(`${what} cannot be read: ${reason}`);
    told.set(what, reason);
  };
  const readAndTell = async (format: MetricsFormat): Promise<Scraped> => {
    const scraped = await read(format);
    const { cardsError, folderError } = scraped;
    tell('the processes of this user', folderError);
    tell('the cards', cardsError);
    return scraped;
  };
  const shared = (format: MetricsFormat): Promise<Scraped> => {
    const known = running.get(format);
    if (known !== undefined) return known;
    const started = readAndTell(format).finally(() => running.delete(format));
    running.set(format, started);
    return started;
  };
  const server = createServer((request, response) => {
    const refusal = refusalOf(request, boundAddress(server).address);
    if (refusal !== undefined) {
      refuse(response, refusal);
      return;
    }
    answer(request, response, shared).catch((error: Error) => {
      log.error(`a scrape failed: ${error.message}`);
      response.writeHead(500).end();
    });
  });
  server.maxConnections = CONNECTIONS_MAX;
  server.requestTimeout = REQUEST_TIMEOUT_MS;
  server.timeout = REQUEST_TIMEOUT_MS;
  server.listen(port, address);
  await once(server, 'listening');
  process.stdout.write(`${urlOf(server)}\n`);
  await new Promise<void>((resolve) => {
    for (const signal of ['SIGINT', 'SIGTERM', 'SIGHUP'] as const) process.once(signal, () => resolve());
  });
  server.close();
  server.closeAllConnections();
}

/** Rejection of a request: HTTP status and reason. */
interface Refusal {
  readonly status: 400 | 403 | 404 | 405;
  readonly reason: string;
}

/** Why a request is rejected; undefined for a request of the metrics. @param address of the server */
function refusalOf({ url = '', method, headers }: IncomingMessage, address: string): Refusal | undefined {
  if (isLoopback(address) && !namesLoopback(headers.host, address)) {
    return {
      status: 403,
      reason: `this server accepts requests only for the hosts ${LOOPBACK_NAMES.join(', ')}; to accept other names, start it with --address`,
    };
  }
  if (method !== 'GET' && method !== 'HEAD')
    return { status: 405, reason: `method ${method} is not supported: use GET` };
  if (!URL.canParse(url, BASE)) return { status: 400, reason: 'the request has no valid path' };
  const { pathname } = new URL(url, BASE);
  return pathname === PATH
    ? undefined
    : { status: 404, reason: `${pathname} does not exist: the metrics are at ${PATH}` };
}

function refuse(response: ServerResponse, { status, reason }: Refusal): void {
  if (status === 405) response.setHeader('allow', 'GET, HEAD');
  response.writeHead(status, { 'content-type': 'text/plain; charset=utf-8' }).end(`${reason}\n`);
}

async function answer(
  { method, headers }: IncomingMessage,
  response: ServerResponse,
  read: (format: MetricsFormat) => Promise<Scraped>,
): Promise<void> {
  const format = formatFor(headers.accept ?? '');
  const { text } = await read(format);
  response.writeHead(200, { 'content-type': format }).end(method === 'HEAD' ? undefined : text);
}

/** The format that a client prefers by the header Accept; OpenMetrics only if it is listed, as clients of Prometheus expect. */
export function formatFor(accept: string): MetricsFormat {
  const quality = { 'application/openmetrics-text': 0, 'text/plain': 0 };
  for (const range of accept.toLowerCase().split(',')) {
    const [type = '', ...parameters] = range.split(';').map((part) => part.trim());
    if (!Object.hasOwn(quality, type)) continue;
    const q = parameters.find((parameter) => parameter.startsWith('q='));
    quality[type as keyof typeof quality] = q === undefined ? 1 : Number(q.slice(2)) || 0;
  }
  const open = quality['application/openmetrics-text'];
  return open > 0 && open >= quality['text/plain'] ? OPENMETRICS : PROMETHEUS;
}

function urlOf(server: Server): string {
  const { address, port, family } = boundAddress(server);
  return `http://${family === 'IPv6' ? `[${address}]` : address}:${port}/metrics`;
}

function portOf(text: string): number {
  const port = Number(text);
  if (!/^\d{1,5}$/.test(text) || port > PORT_MAX) throw invalidParam('port', `must be 0 to ${PORT_MAX}`, text);
  return port;
}

function timeoutOf(text: string): number {
  const ns = timeType.parse(text);
  if (ns === undefined || !(ns >= TIMEOUT_NS_MIN && ns <= TIMEOUT_NS_MAX)) {
    throw invalidParam('timeout', 'must be a time from 10ms to 60s', text);
  }
  return ns;
}
