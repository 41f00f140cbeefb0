/**
 * The profile of a thread: subscribes to the diagnostics channels and writes the recorded events to one file at the end. Without a profile the channels
 * have no subscriber, and events cost nothing.
 */

import { closeSync, ftruncateSync, writeSync } from 'node:fs';
import { hostname } from 'node:os';
import { resolve } from 'node:path';
import {
  type CommandSubmissionEnd,
  commandSubmissionEnd,
  type OperationEnd,
  operationEnd,
  type TransferEnd,
  transferEnd,
} from '../debug/diagnostics.ts';
import type { Log } from '../debug/log.ts';
import { expandFileName, openOutputFile } from '../sys/file-name.ts';
import { atExit } from '../sys/process-events.ts';
import { asError } from '../type/error.ts';
import { statusName } from '../type/status.ts';
import type { ProfileConfig } from './profile-config.ts';
import { type AccumulatedSpans, chromeTrace, type TraceSpan } from './trace.ts';

/** Approximate memory of one event. */
const EVENT_BYTES = 256;

/** Profiles of this thread by file. Contexts of the thread share the profile of a file, because they share the channels. */
const profiles = new Map<string, Profile>();

/** A profile of one thread. */
export class Profile {
  readonly #path: string;
  readonly #log: Log;
  readonly #tid: number;
  #fd = -1;
  #logs = false;
  #accumulates = false;
  #eventsMax = 0;
  /** Becomes a ring when it is full: the next event then replaces the one at `#next`. */
  #events: TraceSpan[] = [];
  #next = 0;
  #lost = 0;
  readonly #sums: Map<string, AccumulatedSpans> = new Map();
  #stopAtExit: () => void = () => {};
  #users = 0;

  private constructor(path: string, log: Log, tid: number) {
    this.#path = path;
    this.#log = log;
    this.#tid = tid;
  }

  /**
   * Joins the profile of this thread, which starts at the first call; undefined without a mode. {@link release} leaves it. The settings of all members are
   * combined: all their modes apply, and the largest size.
   * @param tid Linux id of this thread, for the trace
   * @throws UcxError ERR_PROFILE_FILE for a file that cannot be written
   */
  static acquire(config: ProfileConfig, log: Log, tid: number): Profile | undefined {
    if (config.PROFILE_MODE.length === 0) return undefined;
    const path = resolve(expandFileName(config.PROFILE_FILE));
    const profile = profiles.get(path) ?? new Profile(path, log, tid);
    profile.#join(config);
    profiles.set(path, profile);
    return profile;
  }

  /** Leaves the profile; the last member writes it. Recorded events are kept for later members. */
  release(): void {
    this.#users -= 1;
    if (this.#users > 0) return;
    operationEnd.unsubscribe(this.#onOperation);
    commandSubmissionEnd.unsubscribe(this.#onSubmission);
    transferEnd.unsubscribe(this.#onTransfer);
    this.#stopAtExit();
    this.#write();
    closeSync(this.#fd);
    this.#fd = -1;
  }

  #join({ PROFILE_MODE, PROFILE_LOG_SIZE }: ProfileConfig): void {
    if (this.#users === 0) this.#begin();
    this.#users += 1;
    this.#logs ||= PROFILE_MODE.includes('log');
    this.#accumulates ||= PROFILE_MODE.includes('accum');
    const eventsMax = Math.max(1, Math.floor(PROFILE_LOG_SIZE / EVENT_BYTES));
    if (eventsMax <= this.#eventsMax) return;
    this.#events = this.#inOrder();
    this.#next = this.#events.length;
    this.#eventsMax = eventsMax;
  }

  #begin(): void {
    this.#fd = openOutputFile(this.#path, false, { variable: 'UCX_PROFILE_FILE', code: 'ERR_PROFILE_FILE' });
    operationEnd.subscribe(this.#onOperation);
    commandSubmissionEnd.subscribe(this.#onSubmission);
    transferEnd.subscribe(this.#onTransfer);
    // A context that is never closed is written when the process ends.
    this.#stopAtExit = atExit(() => this.#write());
  }

  /** The events, oldest first. */
  #inOrder(): TraceSpan[] {
    if (this.#events.length < this.#eventsMax) return [...this.#events];
    return [...this.#events.slice(this.#next), ...this.#events.slice(0, this.#next)];
  }

  readonly #onOperation = (event: OperationEnd): void => {
    const { protocol, transport, device, byteLength, status, startNs, endNs, worker } = event;
    const details = { transport, device, bytes: byteLength, status: statusName(status) };
    this.#add({
      timeline: `worker ${worker}`,
      isCard: false,
      category: 'request',
      name: protocol,
      startNs,
      endNs,
      details,
    });
  };

  readonly #onSubmission = ({ card, queue, sequence, startNs, endNs }: CommandSubmissionEnd): void => {
    const details = { queue, sequence };
    this.#add({ timeline: card, isCard: true, category: 'cs', name: `CS on queue ${queue}`, startNs, endNs, details });
  };

  readonly #onTransfer = ({ card, queue, byteLength, status, startNs, endNs }: TransferEnd): void => {
    const details = { queue, bytes: byteLength, status: statusName(status) };
    this.#add({
      timeline: card,
      isCard: true,
      category: 'dma',
      name: `DMA on queue ${queue}`,
      startNs,
      endNs,
      details,
    });
  };

  #add(span: TraceSpan): void {
    if (this.#logs) this.#keep(span);
    if (this.#accumulates) this.#accumulate(span);
  }

  #keep(span: TraceSpan): void {
    if (this.#events.length === this.#eventsMax) this.#lost += 1;
    if (this.#next === this.#eventsMax) this.#next = 0;
    this.#events[this.#next] = span;
    this.#next += 1;
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
    const title = `${process.argv.slice(1).join(' ') || process.execPath} on ${hostname()}`;
    const by = { pid: process.pid, tid: this.#tid, title };
    let left = Buffer.from(chromeTrace(this.#inOrder(), [...this.#sums.values()], this.#lost, by));
    try {
      ftruncateSync(this.#fd);
      while (left.byteLength > 0) left = left.subarray(writeSync(this.#fd, left));
    } catch (error) {
      this.#log.warn(`cannot write the profile to ${this.#path}: ${asError(error).message}`);
    }
  }
}
