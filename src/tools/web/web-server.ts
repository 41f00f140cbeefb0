/** HTTP server of the page, on loopback only: files, stream of models, actions. */

import { once } from 'node:events';
import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http';
import type { Clock } from '../../ucs/sys/clock.ts';
import { isUcxError } from '../../ucs/type/error.ts';
import { boundAddress } from '../base/bound-address.ts';
import type { WebModel } from '../model/web-model.ts';
import { EventStream } from './event-stream.ts';
import { checkSource, checkToken, SECURITY_HEADERS } from './guard.ts';
import type { PageFile } from './page-files.ts';

const CONNECTIONS_MAX = 64;
const REQUEST_TIMEOUT_MS = 10_000;
/** Longest body of a request in bytes. */
const BODY_BYTES_MAX = 4096;
/** Base of the paths of requests. */
const BASE = 'http://127.0.0.1';
/** Header with the token, of requests that change something. */
export const TOKEN_HEADER = 'x-gaudi-ucx-token';

/** Actions of the page. They throw UcxError if they refuse a request. */
export interface WebActions {
  /** Injects a fault: the fields `card` and those of the fault. @returns a sentence that describes it */
  injectFault(request: unknown): string;
  /** Starts the demo's exchange. @returns a sentence */
  startExchange(): string;
}

/** Parts of a server. */
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

  /** Listens on 127.0.0.1. @param port 0 for a free one. @throws Error of the system call */
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
      return refuse(response, 405, `${pathname} has no method ${method}`);
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
    return refuse(response, 404, `there is no ${pathname}`);
  }

  #stream(response: ServerResponse): void {
    response.setHeader('content-type', 'text/event-stream');
    if (!this.#events.add(response)) {
      response.removeHeader('content-type');
      refuse(response, 503, 'too many pages are open');
      return;
    }
    response.flushHeaders();
  }

  async #act(pathname: string, request: IncomingMessage, response: ServerResponse): Promise<void> {
    const { actions } = this.#options;
    const text = await bodyOf(request);
    if (text === undefined) return refuse(response, 413, `a request has at most ${BODY_BYTES_MAX} bytes`);
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
