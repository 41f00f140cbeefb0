/**
 * HTTP server of the page, on loopback only: files, a stream of models as server-sent events, and actions. Each client receives the newest model; models are
 * not queued for a slow client, and a client that never reads is disconnected. A request must name a loopback host, come from the page itself, and have the
 * token of the URL.
 */

import { createHash, timingSafeEqual } from 'node:crypto';
import { once } from 'node:events';
import { readdirSync, readFileSync } from 'node:fs';
import {
  createServer,
  type IncomingHttpHeaders,
  type IncomingMessage,
  type Server,
  type ServerResponse,
} from 'node:http';
import { extname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import type { Clock } from '../../ucs/sys/clock.ts';
import { isUcxError, UcxError } from '../../ucs/type/error.ts';
import { Status } from '../../ucs/type/status.ts';
import { boundAddress } from '../base/bound-address.ts';
import type { WebModel } from '../model/web-model.ts';

const CONNECTIONS_MAX = 64;
const REQUEST_TIMEOUT_MS = 10_000;
/** Longest body of a request in bytes. */
const BODY_BYTES_MAX = 4096;
/** Base of the paths of requests. */
const BASE = 'http://127.0.0.1';
/** Header with the token, for requests that change state. */
export const TOKEN_HEADER = 'x-gaudi-ucx-token';

/** Actions of the page. They throw UcxError if a request is rejected. */
export interface WebActions {
  /** Injects a fault. @param request the card, and the fields of the fault @returns a sentence that describes it */
  injectFault(request: unknown): string;
  /** Starts the demo's exchange. @returns a sentence */
  startExchange(): string;
}

/** Options of a server. */
export interface WebServerOptions {
  readonly files: ReadonlyMap<string, PageFile>;
  readonly token: string;
  readonly clock: Clock;
  readonly actions: WebActions;
}

/** The server. */
export class WebServer {
  readonly #options: WebServerOptions;
  readonly #server: Server;
  readonly #events: EventStream;

  private constructor(options: WebServerOptions) {
    this.#options = options;
    this.#events = new EventStream(options.clock);
    this.#server = createServer((request, response) => {
      this.#answer(request, response).catch((error: Error) => refuse(response, 500, error.message));
    });
    this.#server.maxConnections = CONNECTIONS_MAX;
    this.#server.requestTimeout = REQUEST_TIMEOUT_MS;
    this.#server.headersTimeout = REQUEST_TIMEOUT_MS;
  }

  /** Listens on 127.0.0.1. @param port 0 for any free port. @throws Error of the system call */
  static async listen(options: WebServerOptions, port: number): Promise<WebServer> {
    const web = new WebServer(options);
    web.#server.listen(port, '127.0.0.1');
    await once(web.#server, 'listening');
    return web;
  }

  get port(): number {
    return boundAddress(this.#server).port;
  }

  /** The address with the token. */
  get url(): string {
    return `http://127.0.0.1:${this.port}/?token=${this.#options.token}`;
  }

  /** Number of open pages. */
  get viewers(): number {
    return this.#events.size;
  }

  /** Shows a model on all pages. */
  show(model: WebModel): void {
    this.#events.send(model);
  }

  close(): void {
    this.#events.close();
    this.#server.close();
    this.#server.closeAllConnections();
  }

  async #answer(request: IncomingMessage, response: ServerResponse): Promise<void> {
    for (const [name, value] of Object.entries(SECURITY_HEADERS)) response.setHeader(name, value);
    const { token, files } = this.#options;
    const source = checkSource(request.headers, this.port);
    if (source !== undefined) return refuse(response, source.status, source.reason);
    const { url = '/', method } = request;
    if (!URL.canParse(url, BASE)) return refuse(response, 400, 'the request has no valid path');
    const { pathname, searchParams } = new URL(url, BASE);
    const isAction = pathname === '/fault' || pathname === '/exchange';
    if (method !== (isAction ? 'POST' : 'GET')) {
      response.setHeader('allow', isAction ? 'POST' : 'GET');
      return refuse(response, 405, `method ${method} is not supported for ${pathname}`);
    }
    const file = files.get(pathname);
    // Scripts and styles are files of the package and need no token.
    if (file !== undefined && pathname !== '/') return send(response, file);
    const given = isAction ? request.headers[TOKEN_HEADER] : searchParams.get('token');
    const refusal = checkToken(typeof given === 'string' ? given : undefined, token);
    if (refusal !== undefined) return refuse(response, refusal.status, refusal.reason);
    if (file !== undefined) return send(response, file);
    if (pathname === '/events') return this.#stream(response);
    if (isAction) return this.#act(pathname, request, response);
    return refuse(response, 404, `${pathname} does not exist`);
  }

  #stream(response: ServerResponse): void {
    response.setHeader('content-type', 'text/event-stream');
    if (!this.#events.add(response)) {
      response.removeHeader('content-type');
      refuse(response, 503, 'too many pages are open: close one');
      return;
    }
    response.flushHeaders();
  }

  async #act(pathname: string, request: IncomingMessage, response: ServerResponse): Promise<void> {
    const { actions } = this.#options;
    const text = await bodyOf(request);
    if (text === undefined) return refuse(response, 413, `the request is longer than ${BODY_BYTES_MAX} bytes`);
    try {
      const done = pathname === '/fault' ? actions.injectFault(JSON.parse(text)) : actions.startExchange();
      response.writeHead(200, { 'content-type': 'text/plain; charset=utf-8' }).end(done);
    } catch (error) {
      if (!isUcxError(error) && !(error instanceof SyntaxError)) throw error;
      refuse(response, 400, error.message);
    }
  }
}

function send(response: ServerResponse, { type, bytes }: PageFile): void {
  response.writeHead(200, { 'content-type': type, 'content-length': bytes.byteLength }).end(bytes);
}

function refuse(response: ServerResponse, status: number, reason: string): void {
  if (response.headersSent) response.destroy();
  else response.writeHead(status, { 'content-type': 'text/plain; charset=utf-8' }).end(`${reason}\n`);
}

/** The body of a request; undefined if it is too long. */
async function bodyOf(request: IncomingMessage): Promise<string | undefined> {
  const parts: Buffer[] = [];
  let byteLength = 0;
  for await (const part of request as AsyncIterable<Buffer>) {
    byteLength += part.byteLength;
    if (byteLength > BODY_BYTES_MAX) return undefined;
    parts.push(part);
  }
  return Buffer.concat(parts).toString('utf8');
}

/** Maximum number of clients. */
export const CLIENTS_MAX = 16;
/** Limit of unsent bytes per client, beyond which it misses models. */
const BACKLOG_BYTES_MAX = 1 << 20;
/** Time after which a client that does not read is disconnected. */
const STALLED_NS_MAX = 30e9;

interface Client {
  readonly response: ServerResponse;
  /** Time since which the client has not read; undefined if it reads. */
  stalledNs: number | undefined;
}

/** The clients. */
export class EventStream {
  readonly #clients: Set<Client> = new Set();
  readonly #clock: Clock;
  #last: string | undefined;

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  /** Number of clients. */
  get size(): number {
    return this.#clients.size;
  }

  /** Adds a client, which gets the last event at once. @returns false if there are too many */
  add(response: ServerResponse): boolean {
    if (this.#clients.size >= CLIENTS_MAX) return false;
    const client: Client = { response, stalledNs: undefined };
    this.#clients.add(client);
    response.on('close', () => this.#clients.delete(client));
    if (this.#last !== undefined) response.write(this.#last);
    return true;
  }

  /** Sends a model to all clients that read. */
  send(model: object): void {
    const event = `data: ${JSON.stringify(model)}\n\n`;
    this.#last = event;
    for (const client of this.#clients) this.#sendTo(client, event);
  }

  /** Disconnects all clients. */
  close(): void {
    for (const { response } of this.#clients) response.destroy();
    this.#clients.clear();
  }

  #sendTo(client: Client, event: string): void {
    const { response } = client;
    if (response.writableLength <= BACKLOG_BYTES_MAX) {
      client.stalledNs = undefined;
      response.write(event);
      return;
    }
    client.stalledNs ??= this.#clock.nowNs();
    if (this.#clock.nowNs() - client.stalledNs < STALLED_NS_MAX) return;
    this.#clients.delete(client);
    response.destroy();
  }
}

/** Headers of every response: the page loads nothing from other hosts, and no other page can embed or read it. */
export const SECURITY_HEADERS: Readonly<Record<string, string>> = {
  'content-security-policy':
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
  'cross-origin-opener-policy': 'same-origin',
  'cross-origin-resource-policy': 'same-origin',
  'referrer-policy': 'no-referrer',
  'x-content-type-options': 'nosniff',
  'cache-control': 'no-store',
};

/** The host names of this server for browsers on this host. */
const HOSTS = ['127.0.0.1', 'localhost'];

/** Rejection of a request: HTTP status and reason. */
export interface Refusal {
  readonly status: 401 | 403;
  readonly reason: string;
}

/**
 * Checks the origin of a request. Prevents DNS rebinding: a web page whose host name resolves to this host sends that name as Host.
 * @param port of the server
 */
export function checkSource({ host, origin }: IncomingHttpHeaders, port: number): Refusal | undefined {
  if (host === undefined || !HOSTS.some((name) => host === `${name}:${port}`)) {
    return { status: 403, reason: `this server accepts requests only for http://127.0.0.1:${port}` };
  }
  if (origin !== undefined && origin !== `http://${host}`) {
    return { status: 403, reason: 'requests from other pages are rejected' };
  }
  return undefined;
}

/** Checks the token of a request. */
export function checkToken(given: string | null | undefined, token: string): Refusal | undefined {
  // Digests have equal lengths, so that the comparison takes the same time for every token.
  const digest = (text: string): Buffer => createHash('sha256').update(text).digest();
  if (typeof given === 'string' && timingSafeEqual(digest(given), digest(token))) return undefined;
  return {
    status: 401,
    reason: 'the token is missing or wrong: use the complete address that gaudi-ucx web has printed',
  };
}

/** A file of the page, ready to be sent. */
interface PageFile {
  readonly type: string;
  readonly bytes: Buffer;
}

const TYPES: Readonly<Record<string, string>> = {
  '.html': 'text/html; charset=utf-8',
  '.js': 'text/javascript; charset=utf-8',
  '.css': 'text/css; charset=utf-8',
};

/** Folder of the files, relative to a bundle of the package. */
const FOLDER = fileURLToPath(new URL('../web', import.meta.url));

/**
 * The files by their paths in URLs, such as `/assets/page.js`; `/` is the page.
 * @throws UcxError ERR_WEB_PAGE if the page is not built
 */
export function readPageFiles(folder: string = FOLDER): ReadonlyMap<string, PageFile> {
  const files = new Map<string, PageFile>();
  try {
    for (const name of readdirSync(folder, { recursive: true, encoding: 'utf8' })) {
      const type = TYPES[extname(name)];
      if (type === undefined) continue;
      files.set(name === 'index.html' ? '/' : `/${name}`, { type, bytes: readFileSync(join(folder, name)) });
    }
  } catch (error) {
    throw notBuilt(folder, error);
  }
  if (!files.has('/')) throw notBuilt(folder, undefined);
  return files;
}

function notBuilt(folder: string, cause: unknown): UcxError {
  return new UcxError({
    code: 'ERR_WEB_PAGE',
    status: Status.NO_ELEM,
    message: `the page is not in ${folder}: install the package again, or run npm run build in a clone`,
    cause,
  });
}
