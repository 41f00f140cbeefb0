/** The destinations of statistics. Each writes whole reports; formatting is in stats-text.ts. */

import { createSocket } from 'node:dgram';
import { lookup } from 'node:dns';
import { closeSync, writeSync } from 'node:fs';
import { hostname } from 'node:os';
import type { Log } from '../debug/log.ts';
import { expandFileName } from '../sys/file-name.ts';
import { openOutputFile } from '../sys/output-file.ts';
import { asError } from '../type/error.ts';
import type { StatsNode } from './stats-node.ts';
import { type StatsFormat, type StatsHeading, statsDatagrams, statsText } from './stats-text.ts';

/** A destination of statistics. */
export type StatsDestination =
  | { readonly kind: 'none' | 'stdout' | 'stderr' }
  /** `isBinary`: machine-readable. */
  | { readonly kind: 'file'; readonly template: string; readonly isBinary: boolean }
  | { readonly kind: 'udp'; readonly host: string; readonly port: number };

/** Refused writes of a pipe after which its reader counts as stopped. */
const REFUSALS_MAX = 1000;
const REFUSAL_WAIT_MS = 1;
const NEVER_WOKEN = new Int32Array(new SharedArrayBuffer(4));
/** The most datagrams that wait for the address of their receiver; the oldest are dropped. */
const WAITING_MAX = 256;
const USE = { variable: 'UCX_STATS_DEST', code: 'ERR_STATS_FILE' } as const;

/** Writes reports. */
export interface StatsOutput {
  /** Never throws: a failure is a warning in the log. When the call returns, the report has been passed to the kernel. */
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

/** Writes text to a descriptor. */
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
      // Synchronous, also into a pipe: the process may be about to end.
      writeFully(
        this.#fd,
        this.#format === 'bin' ? jsonLines(root) : Buffer.from(statsText(root, this.#format, heading())),
      );
      this.#failure = undefined;
    } catch (error) {
      const { message } = asError(error);
      // A full disk is reported once, and not at every tick of a timer.
      if (message !== this.#failure) this.#log.warn(`statistics could not be written: ${message}`);
      this.#failure = message;
    }
  }

  close(): void {
    if (this.#isOwn) closeSync(this.#fd);
  }
}

/** The datagrams of udp, as lines. */
function jsonLines(root: StatsNode): Buffer {
  return Buffer.concat(statsDatagrams(root, heading()).flatMap((datagram) => [datagram, Buffer.from('\n')]));
}

/** Writes all bytes, and waits for a slow reader: pipes of Node may refuse temporarily (EAGAIN). */
function writeFully(fd: number, bytes: Buffer): void {
  let left = bytes;
  for (let refusals = 0; left.byteLength > 0; ) {
    try {
      left = left.subarray(writeSync(fd, left));
      refusals = 0;
    } catch (error) {
      refusals += 1;
      if (asError(error).code !== 'EAGAIN' || refusals > REFUSALS_MAX) throw error;
      Atomics.wait(NEVER_WOKEN, 0, 0, REFUSAL_WAIT_MS);
    }
  }
}

/** Sends JSON datagrams. The address is resolved at the start; earlier reports are sent when it is known. */
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
          // A connected socket sends within the call, also while the process ends.
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
    if (!this.#failed) this.#log.warn(`statistics could not be sent: ${error.message}`);
    this.#failed = true;
  }
}
