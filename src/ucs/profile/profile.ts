/**
 * The profile of a process: listens to the diagnostics channels and writes what it has heard to one file at the end. Nothing in the library knows
 * of it; where no profile is wanted there is no listener, and nobody publishes.
 */

import { closeSync, ftruncateSync, writeSync } from 'node:fs';
import { hostname } from 'node:os';
import { atExit } from '../at-exit.ts';
import {
  type CommandSubmissionEnd,
  commandSubmissionEnd,
  type OperationEnd,
  operationEnd,
  type TransferEnd,
  transferEnd,
} from '../diagnostics.ts';
import { expandFileName } from '../file-name.ts';
import type { Log } from '../log.ts';
import { openOutputFile } from '../output-file.ts';
import { type Status, statusName } from '../status.ts';
import type { ProfileConfig } from './profile-config.ts';
import { type AccumulatedSpans, chromeTrace, type TraceSpan } from './trace.ts';

/** What one event takes, about. */
const EVENT_BYTES = 256;

/** The profiles of this process by file: the contexts of a process share one, as its channels do. */
const profiles = new Map<string, Profile>();

/** A profile. */
export class Profile {
  readonly #path: string;
  readonly #fd: number;
  readonly #logs: boolean;
  readonly #accumulates: boolean;
  readonly #eventsMax: number;
  readonly #log: Log;
  readonly #events: TraceSpan[] = [];
  #recorded = 0;
  readonly #sums: Map<string, AccumulatedSpans> = new Map();
  readonly #stopAtExit: () => void;
  #users = 0;

  private constructor(path: string, config: ProfileConfig, log: Log) {
    this.#path = path;
    this.#fd = openOutputFile(path, 'w', { variable: 'UCX_PROFILE_FILE', code: 'ERR_PROFILE_FILE' });
    this.#log = log;
    this.#logs = config.PROFILE_MODE.includes('log');
    this.#accumulates = config.PROFILE_MODE.includes('accum');
    this.#eventsMax = Math.max(1, Math.floor(config.PROFILE_LOG_SIZE / EVENT_BYTES));
    operationEnd.subscribe(this.#onOperation);
    commandSubmissionEnd.subscribe(this.#onSubmission);
    transferEnd.subscribe(this.#onTransfer);
    // A context that nobody closes is told about when the process ends.
    this.#stopAtExit = atExit(() => this.#write());
  }

  /**
   * Joins the profile of this process, which begins now unless it has begun; undefined where none is wanted. {@link release} leaves it.
   * @throws UcxError ERR_PROFILE_FILE for a file that cannot be written
   */
  static acquire(config: ProfileConfig, log: Log): Profile | undefined {
    if (config.PROFILE_MODE.length === 0) return undefined;
    const path = expandFileName(config.PROFILE_FILE);
    let profile = profiles.get(path);
    if (profile === undefined) {
      profile = new Profile(path, config, log);
      profiles.set(path, profile);
    }
    profile.#users += 1;
    return profile;
  }

  /** Leaves the profile; the last one to do so writes it. */
  release(): void {
    this.#users -= 1;
    if (this.#users > 0) return;
    operationEnd.unsubscribe(this.#onOperation);
    commandSubmissionEnd.unsubscribe(this.#onSubmission);
    transferEnd.unsubscribe(this.#onTransfer);
    this.#stopAtExit();
    profiles.delete(this.#path);
    this.#write();
    closeSync(this.#fd);
  }

  readonly #onOperation = (event: OperationEnd): void => {
    const { protocol, transport, device, byteLength, status, startNs, endNs, worker } = event;
    const details = { transport, device, bytes: byteLength, status: statusName(status as Status) };
    this.#add({ timeline: `worker ${worker}`, category: 'request', name: protocol, startNs, endNs, details });
  };

  readonly #onSubmission = ({ card, queue, sequence, startNs, endNs }: CommandSubmissionEnd): void => {
    const details = { queue, sequence };
    this.#add({ timeline: card, category: 'cs', name: `CS on queue ${queue}`, startNs, endNs, details });
  };

  readonly #onTransfer = ({ card, queue, byteLength, status, startNs, endNs }: TransferEnd): void => {
    const details = { queue, bytes: byteLength, status: statusName(status as Status) };
    this.#add({ timeline: card, category: 'dma', name: `DMA on queue ${queue}`, startNs, endNs, details });
  };

  #add(span: TraceSpan): void {
    if (this.#logs) this.#events[this.#recorded % this.#eventsMax] = span;
    this.#recorded += 1;
    if (this.#accumulates) this.#accumulate(span);
  }

  #accumulate({ timeline, name, startNs, endNs, details }: TraceSpan): void {
    const key = `${timeline}\n${name}`;
    let sum = this.#sums.get(key);
    if (sum === undefined) {
      sum = { timeline, name, count: 0, totalNs: 0, minNs: Infinity, maxNs: 0, bytes: 0 };
      this.#sums.set(key, sum);
    }
    const ns = endNs - startNs;
    sum.count += 1;
    sum.totalNs += ns;
    sum.minNs = Math.min(sum.minNs, ns);
    sum.maxNs = Math.max(sum.maxNs, ns);
    sum.bytes += Number(details['bytes'] ?? 0);
  }

  #write(): void {
    const lost = this.#logs ? this.#recorded - this.#events.length : 0;
    const title = `${process.argv.slice(1).join(' ') || process.execPath} on ${hostname()}, process ${process.pid}`;
    let left = Buffer.from(chromeTrace(this.#events, [...this.#sums.values()], lost, title));
    try {
      ftruncateSync(this.#fd);
      for (let at = 0; left.byteLength > 0; ) {
        const written = writeSync(this.#fd, left, 0, left.byteLength, at);
        left = left.subarray(written);
        at += written;
      }
    } catch (error) {
      this.#log.warn(`the profile could not be written to ${this.#path}: ${(error as Error).message}`);
    }
  }
}
