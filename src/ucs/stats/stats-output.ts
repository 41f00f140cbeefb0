/**
 * Output of statistics: the tree of counters as text and as datagrams, the destinations, which write whole reports, and the triggers of reports (signals and
 * timers).
 */

import { createSocket } from 'node:dgram';
import { lookup } from 'node:dns';
import { closeSync, writeSync } from 'node:fs';
import { constants, hostname } from 'node:os';
import type { Log } from '../debug/log.ts';
import type { Clock, Timer } from '../sys/clock.ts';
import { expandFileName, openOutputFile } from '../sys/file-name.ts';
import { atSignal } from '../sys/process-events.ts';
import { asError } from '../type/error.ts';
import { keysOf } from '../type/keys.ts';
import { type Counters, type StatsNode, sumByClass } from './stats-node.ts';

/** A destination of statistics. */
export type StatsDestination =
  | { readonly kind: 'none' | 'stdout' | 'stderr' }
  /** `isBinary`: machine-readable. */
  | { readonly kind: 'file'; readonly template: string; readonly isBinary: boolean }
  | { readonly kind: 'udp'; readonly host: string; readonly port: number };

/** Number of EAGAIN results of a pipe after which its reader counts as stopped. */
const BLOCKED_WRITES_MAX = 1000;
const BLOCKED_WAIT_MS = 1;
const NEVER_WOKEN = new Int32Array(new SharedArrayBuffer(4));
/** Maximum number of datagrams that wait for the receiver's address to be resolved; the oldest are dropped. */
const WAITING_MAX = 256;
const USE = { variable: 'UCX_STATS_DEST', code: 'ERR_STATS_FILE' } as const;

/** Writes reports. */
export interface StatsOutput {
  /** Never throws: a failure is a warning in the log. When the call returns, the kernel has the report. */
  write(root: StatsNode): void;
  close(): void;
}

/**
 * Opens a destination; undefined for none.
 * @throws UcxError ERR_STATS_FILE for a file that cannot be written
 */
export function openStatsOutput(destination: StatsDestination, format: StatsFormat, log: Log): StatsOutput | undefined {
  switch (destination.kind) {
    case 'none':
      return undefined;
    case 'file': {
      const fd = openOutputFile(expandFileName(destination.template), false, USE);
      return new FileOutput(fd, destination.isBinary ? 'bin' : format, log, true);
    }
    case 'udp':
      return new UdpOutput(destination.host, destination.port, log);
    default:
      return new FileOutput(destination.kind === 'stdout' ? 1 : 2, format, log, false);
  }
}

function heading(): StatsHeading {
  return { host: hostname(), pid: process.pid, time: new Date() };
}

class FileOutput implements StatsOutput {
  readonly #fd: number;
  readonly #format: StatsFormat | 'bin';
  readonly #log: Log;
  readonly #isOwn: boolean;
  /** The failure of the last write. */
  #failure: string | undefined = undefined;

  constructor(fd: number, format: StatsFormat | 'bin', log: Log, isOwn: boolean) {
    this.#fd = fd;
    this.#format = format;
    this.#log = log;
    this.#isOwn = isOwn;
  }

  write(root: StatsNode): void {
    try {
      // Synchronous even for a pipe: the process may be about to end.
      writeFully(
        this.#fd,
        this.#format === 'bin' ? jsonLines(root) : Buffer.from(statsText(root, this.#format, heading())),
      );
      this.#failure = undefined;
    } catch (error) {
      const { message } = asError(error);
      // Logged once per failure: a full disk would otherwise be reported at every tick of a timer.
      if (message !== this.#failure) this.#log.warn(`cannot write statistics: ${message}`);
      this.#failure = message;
    }
  }

  close(): void {
    if (this.#isOwn) closeSync(this.#fd);
  }
}

/** The datagrams of {@link UdpOutput}, one per line. */
function jsonLines(root: StatsNode): Buffer {
  return Buffer.concat(statsDatagrams(root, heading()).flatMap((datagram) => [datagram, Buffer.from('\n')]));
}

/** Writes all bytes, and waits for a slow reader: a nonblocking pipe may fail with EAGAIN. */
function writeFully(fd: number, bytes: Buffer): void {
  let left = bytes;
  for (let blockedWrites = 0; left.byteLength > 0; ) {
    try {
      left = left.subarray(writeSync(fd, left));
      blockedWrites = 0;
    } catch (error) {
      blockedWrites += 1;
      if (asError(error).code !== 'EAGAIN' || blockedWrites > BLOCKED_WRITES_MAX) throw error;
      Atomics.wait(NEVER_WOKEN, 0, 0, BLOCKED_WAIT_MS);
    }
  }
}

/** Sends JSON datagrams. The host name is resolved at the start; reports before that are sent when the address is known. */
class UdpOutput implements StatsOutput {
  readonly #log: Log;
  readonly #waiting: Buffer[] = [];
  #send: ((datagram: Buffer) => void) | undefined = undefined;
  #closeSocket: () => void = () => {};
  #closed = false;
  #failed = false;

  constructor(host: string, port: number, log: Log) {
    this.#log = log;
    lookup(host, (error, address, family) => {
      if (error === null) this.#connect(address, family === 6 ? 'udp6' : 'udp4', port);
      else this.#fail(error);
    });
  }

  write(root: StatsNode): void {
    if (this.#failed || this.#closed) return;
    for (const datagram of statsDatagrams(root, heading())) {
      if (this.#send === undefined) this.#waiting.push(datagram);
      else this.#send(datagram);
    }
    if (this.#waiting.length > WAITING_MAX) this.#waiting.splice(0, this.#waiting.length - WAITING_MAX);
  }

  close(): void {
    this.#closed = true;
    if (this.#send !== undefined) this.#closeSocket();
  }

  #connect(address: string, type: 'udp4' | 'udp6', port: number): void {
    const socket = createSocket(type);
    let unsent = 0;
    this.#closeSocket = () => {
      if (unsent === 0) socket.close();
    };
    socket.on('error', (error) => this.#fail(error));
    socket.connect(port, address, (error?: Error) => {
      socket.unref();
      if (error instanceof Error) {
        this.#fail(error);
        socket.close();
        return;
      }
      this.#send = (datagram) => {
        unsent += 1;
        const onSent = (error: Error | null): void => {
          unsent -= 1;
          if (error !== null) this.#fail(error);
          if (this.#closed) this.#closeSocket();
        };
        try {
          // A connected socket sends within the call, even while the process ends.
          socket.send(datagram, onSent);
        } catch (error) {
          onSent(asError(error));
        }
      };
      for (const datagram of this.#waiting.splice(0)) this.#send(datagram);
      if (this.#closed) this.#closeSocket();
    });
  }

  #fail(error: Error): void {
    this.#waiting.length = 0;
    if (!this.#failed) this.#log.warn(`cannot send statistics: ${error.message}`);
    this.#failed = true;
  }
}

/** When statistics are written. */
export type StatsTrigger =
  | { readonly kind: 'exit' }
  | { readonly kind: 'signal'; readonly signal: NodeJS.Signals }
  | { readonly kind: 'timer'; readonly intervalNs: number };

/** The signal with a name (`SIGUSR1`, `usr1`) or number that a program can handle; undefined if there is none. */
export function signalNumber(text: string): NodeJS.Signals | undefined {
  const word = text.trim().toUpperCase();
  const { signals } = constants;
  const found = keysOf(signals).find((name) => [name, name.slice(3), String(signals[name])].includes(word));
  // A process cannot handle SIGKILL and SIGSTOP.
  return found === 'SIGKILL' || found === 'SIGSTOP' ? undefined : found;
}

/**
 * Runs `write` at every trigger except the end of the process. Neither signal nor timer keeps the process alive.
 * @returns a function that stops it
 */
export function onTrigger(trigger: StatsTrigger, clock: Clock, write: () => void): () => void {
  if (trigger.kind === 'signal') return atSignal(trigger.signal, write);
  if (trigger.kind === 'exit') return () => {};
  let timer: Timer | undefined;
  const again = (): void => {
    timer = clock.setTimer(trigger.intervalNs, () => {
      write();
      again();
    });
  };
  again();
  return () => timer?.cancel();
}

/** Level of detail: see UCX_STATS_FORMAT. */
export type StatsFormat = 'full' | 'agg' | 'summary';

/** Host, process and time at the beginning of every report. */
interface StatsHeading {
  readonly host: string;
  readonly pid: number;
  readonly time: Date;
}

/** Longest datagram: the payload of a UDP packet over IPv4. */
const DATAGRAM_BYTES_MAX = 65_507;
const INDENT = '  ';

/** A report, ending in a newline. */
export function statsText(root: StatsNode, format: StatsFormat, { host, pid, time }: StatsHeading): string {
  const lines = [`# ${host}:${pid} ${time.toISOString()}`];
  if (format === 'full') addFull(lines, root, 0);
  else for (const sum of sumByClass(root)) addSum(lines, sum, format);
  return `${lines.join('\n')}\n`;
}

/**
 * A report as JSON, in as few datagrams as possible. Each is `{ host, pid, time, path, counters }` of a node, with its `children` if they fit. `path` names the
 * nodes above it.
 */
export function statsDatagrams(root: StatsNode, { host, pid, time }: StatsHeading): Buffer[] {
  const datagrams: Buffer[] = [];
  const add = (node: StatsNode, path: readonly string[]): void => {
    const heading = { host, pid, time: time.toISOString(), path };
    const whole = Buffer.from(JSON.stringify({ ...heading, ...node }));
    if (whole.byteLength <= DATAGRAM_BYTES_MAX) {
      datagrams.push(whole);
      return;
    }
    datagrams.push(Buffer.from(JSON.stringify({ ...heading, ...node, children: [] })));
    for (const child of node.children) add(child, [...path, titleOf(node)]);
  };
  add(root, []);
  return datagrams;
}

function addFull(lines: string[], node: StatsNode, depth: number): void {
  lines.push(`${INDENT.repeat(depth)}${titleOf(node)}:`);
  for (const [name, value] of Object.entries(node.counters)) lines.push(`${INDENT.repeat(depth + 1)}${name}: ${value}`);
  for (const child of node.children) addFull(lines, child, depth + 1);
}

function addSum(lines: string[], { className, counters }: StatsNode, format: StatsFormat): void {
  if (format === 'agg') {
    lines.push(`${className}:`);
    for (const [name, value] of Object.entries(counters)) lines.push(`${INDENT}${name}: ${value}`);
    return;
  }
  const shown = nonZero(counters);
  if (shown.length > 0) lines.push(`${className}: {${shown.map(([name, value]) => `${name}:${value}`).join(' ')}}`);
}

function nonZero(counters: Counters): [string, number][] {
  return Object.entries(counters).filter(([, value]) => value !== 0);
}

function titleOf({ className, name }: StatsNode): string {
  return name === '' ? className : `${className} ${name}`;
}
