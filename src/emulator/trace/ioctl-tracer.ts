/** Recorder of ioctls: writes one line per ioctl to a file or a stream, without waiting for the disk. */

import { constants, createWriteStream, openSync } from 'node:fs';
import type { Writable } from 'node:stream';
import { errnoOf, processOfThread, SyscallError } from '../../sys/index.ts';
import type { LimitedLog } from '../../ucs/debug/limited-log.ts';
import type { Clock } from '../../ucs/sys/clock.ts';
import { decodeIoctl, formatRecord } from './ioctl-record.ts';

/** Limit of bytes that wait for a slow disk; beyond it the trace ends with a warning. */
const PENDING_BYTES_MAX: number = 16 * 2 ** 20;
const FILE_MODE = 0o600;

/** An ioctl that has begun. */
export interface TracedCall {
  readonly startNs: number;
  readonly request: number;
  /** Process or thread that called. */
  readonly caller: number;
  readonly card: number;
  readonly control: boolean;
  readonly before: Uint32Array;
}

/** A recorder. */
export class IoctlTracer {
  readonly #clock: Clock;
  readonly #log: LimitedLog;
  readonly #output: Writable;
  readonly #isLive: boolean;
  readonly #startNs: number;
  readonly #onError: (error: Error) => void;
  #stopped = false;

  /**
   * @param path file to replace, or `-` for readable lines on standard output
   * @throws the error of node:fs if the file cannot be opened
   */
  constructor(path: string, clock: Clock, log: LimitedLog) {
    this.#clock = clock;
    this.#log = log;
    this.#isLive = path === '-';
    this.#startNs = clock.nowNs();
    this.#output = this.#isLive ? process.stdout : openOutput(path);
    this.#onError = (error) => this.#stop(error.message);
    this.#output.on('error', this.#onError);
  }

  /** Stores the arguments and the start time of an ioctl before it runs. */
  begin(call: Omit<TracedCall, 'startNs' | 'before'>, words: Uint32Array): TracedCall {
    return { ...call, before: words.slice(), startNs: this.#clock.nowNs() };
  }

  /** Records an ioctl that has ended, with its result or negative errno. */
  end(call: TracedCall, words: Uint32Array, result: number): void {
    if (this.#stopped) return;
    const { startNs, request, caller, card, control, before } = call;
    const timeNs = startNs - this.#startNs;
    const durationNs = this.#clock.nowNs() - startNs;
    const pid = processOfThread(caller) ?? caller;
    const who = { timeNs, durationNs, pid, tid: caller, card, control };
    const record = decodeIoctl(who, request, { before, after: words }, result);
    this.#output.write(`${this.#isLive ? formatRecord(record) : JSON.stringify(record)}\n`);
    if (this.#output.writableLength > PENDING_BYTES_MAX)
      this.#stop(`the output is too slow: more than ${PENDING_BYTES_MAX} bytes wait to be written`);
  }

  /** Ends the trace; pending lines are written before the process ends. Idempotent. */
  close(): void {
    this.#stopped = true;
    if (!this.#isLive) this.#output.end();
  }

  #stop(reason: string): void {
    if (this.#stopped) return;
    this.#stopped = true;
    this.#log.warn(`the ioctl trace has ended: ${reason}`);
    if (!this.#isLive) this.#output.destroy();
  }
}

/** Opens the output nonblocking: a pipe without a reader is rejected, and a full pipe ends the trace instead of blocking. */
function openOutput(path: string): Writable {
  const flags = constants.O_WRONLY | constants.O_CREAT | constants.O_TRUNC | constants.O_NONBLOCK;
  let fd: number;
  try {
    fd = openSync(path, flags, FILE_MODE);
  } catch (error) {
    throw new SyscallError('open', errnoOf(error), path, { cause: error });
  }
  return createWriteStream(path, { fd });
}
