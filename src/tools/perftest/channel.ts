/**
 * Out-of-band channel of a test: lines of JSON over a socket for addresses, keys, parameters and barriers. The peer is not trusted: line lengths are bounded,
 * and readers check the contents.
 */

import { once } from 'node:events';
import { connect, createServer, type Server, type Socket } from 'node:net';
import { asError, invalidParam, statusError, UcxError } from '../../ucs/type/error.ts';
import { Status } from '../../ucs/type/status.ts';
import { boundAddress } from '../base/bound-address.ts';

/** Limit of a line, in characters; a longer line ends the channel. Keys have hundreds of bytes. */
const LINE_LENGTH_MAX = 2 ** 20;
const PORT_MAX = 65_535;
/** Default time limit for a server to reply to a hello. */
const HELLO_TIMEOUT_MS = 5000;
/** Names of the address on which a server listens by default. */
const DEFAULT_HOSTS: ReadonlySet<string> = new Set(['localhost', '127.0.0.1']);
/** Loopback addresses. */
const LOOPBACK = /^(127\.|::1$|localhost$)/;

/** Address of a server: a TCP port, or the path of a socket. */
export type Place = { readonly port: number; readonly host: string } | { readonly path: string };

/** One message. */
export interface ChannelMessage {
  readonly type: string;
  readonly [field: string]: unknown;
}

/** A connection to the other side. */
export class Channel {
  readonly #socket: Socket;
  readonly #received: ChannelMessage[] = [];
  readonly #listeners: Set<() => void> = new Set();
  #text = '';
  #hasHeard = false;
  #lost: UcxError | undefined;
  #waiting: { readonly resolve: (message: ChannelMessage) => void; readonly reject: (error: UcxError) => void }[] = [];

  constructor(socket: Socket) {
    this.#socket = socket;
    socket.setEncoding('utf8');
    socket.setNoDelay(true);
    socket.on('data', (text: string) => this.#onText(text));
    socket.on('error', (error) => this.fail(lostPeer(error.message)));
    socket.on('close', () => this.fail(lostPeer('it has closed the connection')));
  }

  /** Name of the other side in messages. */
  get peerName(): string {
    return this.#socket.remoteAddress ?? 'a socket';
  }

  /** @throws UcxError CONNECTION_RESET if the other side has ended, or the error that the other side has sent */
  check(): void {
    if (this.#lost !== undefined) throw this.#lost;
  }

  /** Calls a listener when the channel ends. @returns a function that removes it */
  onEnd(listener: () => void): () => void {
    if (this.#lost !== undefined) listener();
    this.#listeners.add(listener);
    return () => this.#listeners.delete(listener);
  }

  /** True if a message is available. */
  get hasMessage(): boolean {
    return this.#received.length > 0;
  }

  send(message: ChannelMessage): void {
    if (!this.#socket.destroyed) this.#socket.write(`${JSON.stringify(message)}\n`);
  }

  /**
   * The next message.
   * @param types accepted types
   * @throws UcxError: see {@link check}; ERR_INVALID_PARAM for a message of another type
   */
  async receive(...types: string[]): Promise<ChannelMessage> {
    const message = await this.#next();
    if (types.includes(message.type)) return message;
    throw invalidParam('message of the peer', `must be ${types.join(' or ')}`, message.type);
  }

  /**
   * Sends the hello of a client, and waits for that of the server.
   * @param timeoutMs time limit for the reply of the server, in milliseconds
   * @throws UcxError: see {@link receive}; ERR_PERFTEST_PROTOCOL without a reply in time
   */
  async hello(protocol: number, timeoutMs: number = HELLO_TIMEOUT_MS): Promise<void> {
    const timeout = setTimeout(() => this.fail(silentPeer(timeoutMs)), timeoutMs);
    try {
      this.send({ type: 'hello', protocol });
      await this.receive('hello');
    } finally {
      clearTimeout(timeout);
    }
  }

  /** Barrier: resolves when both sides have called it. @throws UcxError: see {@link receive} */
  async barrier(): Promise<void> {
    this.send({ type: 'barrier' });
    await this.receive('barrier');
  }

  /** Sends an error to the other side, before the channel closes. */
  sendError(error: unknown): void {
    const message = error instanceof Error ? error.message : String(error);
    this.send({ type: 'error', message });
  }

  /** Sends all pending lines and closes the channel. */
  async close(): Promise<void> {
    if (this.#socket.destroyed) return;
    await new Promise<void>((resolve) => this.#socket.end(resolve));
    this.#socket.destroy();
  }

  #next(): Promise<ChannelMessage> {
    const message = this.#received.shift();
    if (message !== undefined) return Promise.resolve(message);
    if (this.#lost !== undefined) return Promise.reject(this.#lost);
    return new Promise((resolve, reject) => this.#waiting.push({ resolve, reject }));
  }

  #onText(text: string): void {
    if (!this.#hasHeard && text !== '') {
      this.#hasHeard = true;
      // Messages are objects; ucx_perftest begins with a binary record.
      if (text[0] !== '{') this.fail(foreignPeer('its first byte does not begin a message'));
    }
    if (this.#lost !== undefined) return;
    const lines = (this.#text + text).split('\n');
    this.#text = lines.pop() ?? '';
    for (const line of lines) this.#onLine(line);
    if (this.#text.length > LINE_LENGTH_MAX)
      this.fail(invalidParam('line of the peer', `must have at most ${LINE_LENGTH_MAX} characters`, ''));
  }

  #onLine(line: string): void {
    const message = parseMessage(line);
    if (message === undefined) {
      this.fail(invalidParam('line of the peer', 'must be a message of perftest', line.slice(0, 80)));
    } else if (message.type === 'error') {
      this.fail(
        new UcxError({
          code: 'ERR_PERFTEST_PEER',
          status: Status.CONNECTION_RESET,
          message: `the peer failed: ${message['message']}`,
        }),
      );
    } else {
      const waiting = this.#waiting.shift();
      if (waiting === undefined) this.#received.push(message);
      else waiting.resolve(message);
    }
  }

  /** Ends the channel: all pending and later calls fail with this error. */
  fail(error: UcxError): void {
    if (this.#lost !== undefined) return;
    this.#lost = error;
    for (const { reject } of this.#waiting.splice(0)) reject(error);
    for (const listener of this.#listeners) listener();
  }
}

/**
 * The address from options: for a client `host` is the server, for a server the address to listen on.
 * @throws UcxError ERR_INVALID_PARAM for an invalid port
 */
export function placeOf(host: string | undefined, port: string | undefined, isIpv6: boolean): Place {
  if (host?.includes('/') === true) return { path: host };
  if (port?.includes('/') === true) return { path: port };
  const number = Number(port);
  if (!Number.isInteger(number) || number < 1 || number > PORT_MAX) {
    throw invalidParam('-p', `must be a port from 1 to ${PORT_MAX}, or the path of a socket`, port);
  }
  // A server prints IPv6 addresses in brackets.
  return { port: number, host: host?.replace(/^\[(.*)\]$/, '$1') ?? (isIpv6 ? '::1' : '127.0.0.1') };
}

/** Message with the address of a server, and how to make it reachable for other hosts. */
export function placeText(place: Place): string {
  if ('path' in place) return place.path;
  const { host, port } = place;
  const address = `${host.includes(':') ? `[${host}]` : host}:${port}`;
  return LOOPBACK.test(host)
    ? `${address}, reachable only from this host (use --bind ADDRESS for other hosts)`
    : address;
}

/** Connects to a server. @throws Error of the system call; UcxError ERR_PERFTEST_REFUSED if no server listens */
export async function connectChannel(place: Place): Promise<Channel> {
  const socket = connect({ ...place, family: 'host' in place && place.host === 'localhost' ? 4 : 0 });
  try {
    await once(socket, 'connect');
  } catch (error) {
    if (!('host' in place) || asError(error).code !== 'ECONNREFUSED') throw error;
    const advice = LOOPBACK.test(place.host)
      ? `start the server first: gaudi-ucx perftest -p ${place.port}${DEFAULT_HOSTS.has(place.host) ? '' : ` --bind ${place.host}`}`
      : 'start gaudi-ucx perftest there with --bind ADDRESS, because by default a server listens on loopback only';
    throw new UcxError({
      code: 'ERR_PERFTEST_REFUSED',
      status: Status.UNREACHABLE,
      message: `${asError(error).message}: ${advice}`,
      cause: error,
    });
  }
  return new Channel(socket);
}

/**
 * Waits for one client.
 * @param place with port 0 for any free port
 * @param onListening called when clients can connect, with the address to connect to
 * @throws Error of the system call
 */
export async function acceptChannel(
  place: Place,
  signal: AbortSignal,
  onListening: (place: Place) => void,
): Promise<Channel> {
  const server: Server = createServer();
  try {
    server.listen(place);
    await once(server, 'listening', { signal });
    onListening('host' in place ? { ...place, port: boundAddress(server).port } : place);
    const [socket] = (await once(server, 'connection', { signal })) as [Socket];
    return new Channel(socket);
  } finally {
    server.close();
  }
}

function parseMessage(line: string): ChannelMessage | undefined {
  try {
    const value: unknown = JSON.parse(line);
    if (typeof value !== 'object' || value === null || !('type' in value)) return undefined;
    return typeof value.type === 'string' ? { ...value, type: value.type } : undefined;
  } catch {
    return undefined;
  }
}

function silentPeer(timeoutMs: number): UcxError {
  return protocolError(
    `no reply of the peer within ${timeoutMs / 1000} s: it is stopped or busy with another client, ` +
      'or it is not gaudi-ucx perftest (ucx_perftest of UCX has a different protocol)',
  );
}

function foreignPeer(symptom: string): UcxError {
  return protocolError(`the peer is not gaudi-ucx perftest (${symptom}): ucx_perftest of UCX has a different protocol`);
}

function protocolError(message: string): UcxError {
  return new UcxError({ code: 'ERR_PERFTEST_PROTOCOL', status: Status.UNSUPPORTED, message });
}

function lostPeer(reason: string): UcxError {
  return statusError(Status.CONNECTION_RESET, `the peer has left: ${reason}`);
}
