/**
 * The frames on one connected socket of the connection manager: sends them in order, reads them one by one, and detects closing and protocol violations. Also
 * the state that the clients and attempts of a connection manager share: its event set with deadlines, and its counters.
 */

import {
  allocateScratch,
  Errno,
  EventAlarm,
  EventSet,
  errnoText,
  ReadyFor,
  type ScratchBlock,
} from '../../../sys/index.ts';
import { LimitedLog } from '../../../ucs/debug/limited-log.ts';
import { namedCounters, type StatsNode, statsNode } from '../../../ucs/stats/stats-node.ts';
import type { Clock } from '../../../ucs/sys/clock.ts';
import { createRandom, type Random, systemRandomBytes } from '../../../ucs/sys/random.ts';
import { Sleeper } from '../../../ucs/sys/sleeper.ts';
import { Status } from '../../../ucs/type/status.ts';
import type { ComponentServices } from '../../api/memory-domain.ts';
import { TCP_CM_CONFIG_TABLE, type TcpCmConfig } from '../config.ts';
import type { Security } from '../secure/security.ts';
import type { Channel, ChannelOwner } from './channel.ts';
import { FRAME_BYTES_MAX, type Frame, FrameReader } from './layout.ts';

/** Bytes that are read from a peer that must not send any more: enough to detect a violation. */
const PROBE_BYTES = 1;

/** Reason for the absence of a frame. */
export type Silence =
  /** No complete frame has arrived. */
  | 'waiting'
  /** The peer has closed the connection regularly. */
  | 'ended';

/** The peer has violated the protocol, or the connection has failed. */
export interface Fault {
  readonly status: Status;
  /** Description of what the peer or the kernel did. */
  readonly reason: string;
}

/** The frames on one connected socket. */
export class Conversation {
  readonly #watch: Watch;
  readonly #channel: Channel;
  readonly #token: number;
  readonly #output: Uint8Array[] = [];
  #sent = 0;
  #reader: FrameReader = new FrameReader();
  #isOpen = false;
  #events: number = ReadyFor.READ;
  /** Error number of a failed send. Data that the peer sent earlier can still be read. */
  #brokenBy = 0;
  #closed = false;

  /**
   * Watches the channel for `watched`, and owns it.
   * @throws SyscallError ENOSPC; the channel is closed then
   */
  constructor(watch: Watch, channel: Channel, watched: CmTarget) {
    this.#watch = watch;
    this.#channel = channel;
    try {
      this.#token = watch.add(channel.fd, this.#events, watched);
    } catch (error) {
      channel.close();
      throw error;
    }
  }

  /** Whether frames can be exchanged. */
  get isOpen(): boolean {
    return this.#isOpen;
  }

  /** Whether anything was received. */
  get hasReceived(): boolean {
    return this.#channel.hasReceived;
  }

  /** True if all frames were sent. */
  get isFlushed(): boolean {
    return this.#brokenBy !== 0 || (this.#isOpen && this.#output.length === 0 && !this.#channel.hasOutput);
  }

  /** Sends a frame, now or when the socket is writable. */
  send(packed: Uint8Array): void {
    this.#output.push(packed);
    this.flush();
  }

  /** Sends as much as the socket accepts. */
  flush(): void {
    while (this.#isOpen && this.#output.length > 0 && this.#brokenBy === 0) {
      const head = this.#output[0]!;
      const sent = this.#channel.write(this.#sent === 0 ? head : head.subarray(this.#sent));
      if (sent === -Errno.EAGAIN) break;
      if (sent < 0) this.#brokenBy = -sent;
      else this.#sent += sent;
      if (this.#sent < head.byteLength) continue;
      this.#output.shift();
      this.#sent = 0;
    }
    this.#rearm();
  }

  /** Continues the handshake of the channel; returns its failure. */
  open(): Fault | undefined {
    if (this.#isOpen) return undefined;
    const status = this.#channel.handshake();
    if (status < 0) return { status, reason: this.#channel.failure };
    this.#isOpen = status === Status.OK;
    this.flush();
    return undefined;
  }

  /** Returns the next frame of the peer, or the reason for its absence. */
  receive(staging: Uint8Array): Frame | Silence | Fault {
    if (!this.#isOpen) return 'waiting';
    for (;;) {
      const received = this.#channel.read(staging.subarray(0, this.#reader.missing));
      if (received <= 0) return this.#nothing(received);
      this.#reader.take(staging.subarray(0, received));
      const { frame, fault } = this.#reader;
      if (fault !== undefined) return { status: Status.INVALID_PARAM, reason: `a frame ${fault}` };
      if (frame === undefined) continue;
      this.#reader = new FrameReader();
      return frame;
    }
  }

  /** Checks a peer that must not send any more. */
  silence(staging: Uint8Array): Silence | Fault {
    const received = this.#channel.read(staging.subarray(0, PROBE_BYTES));
    if (received <= 0) return this.#nothing(received);
    return { status: Status.INVALID_PARAM, reason: 'sent data after its last frame' };
  }

  /** Reads and discards data of the peer; returns the number of bytes, or the reason for their absence. */
  discard(staging: Uint8Array): number | Silence | Fault {
    const received = this.#channel.read(staging);
    return received > 0 ? received : this.#nothing(received);
  }

  /** Idempotent. */
  close(): void {
    if (this.#closed) return;
    this.#closed = true;
    this.#watch.remove(this.#channel.fd, this.#token);
    this.#channel.close();
  }

  #nothing(received: number): Silence | Fault {
    if (received === 0) return 'ended';
    if (received !== -Errno.EAGAIN) return { status: Status.CONNECTION_RESET, reason: errnoText(-received) };
    if (this.#brokenBy === 0) return 'waiting';
    return { status: Status.CONNECTION_RESET, reason: errnoText(this.#brokenBy) };
  }

  #rearm(): void {
    if (this.#closed) return;
    const hasFrames = this.#isOpen && this.#brokenBy === 0 && this.#output.length > 0;
    const events = hasFrames || this.#channel.hasOutput ? ReadyFor.READ | ReadyFor.WRITE : ReadyFor.READ;
    if (events === this.#events) return;
    this.#events = events;
    this.#watch.modify(this.#channel.fd, events, this.#token);
  }
}

/** Handler of one descriptor. */
export interface CmTarget {
  /** Time at which {@link onDeadline} is called; Infinity for never. */
  readonly deadlineNs: number;
  /** Called when the descriptor may be ready. Returns how many callbacks of the manager's owner ran. */
  onReady(): number;
  /** Called when the deadline has expired. Returns like {@link onReady}. */
  onDeadline(): number;
}

/** The event set of one connection manager: calls the handler of each ready descriptor or expired deadline, and sleeps until the next. */
export class Watch {
  readonly #clock: Clock;
  readonly #set: EventSet = new EventSet();
  readonly #sleeper: Sleeper;
  readonly #watched: (CmTarget | undefined)[] = [];
  readonly #freeTokens: number[] = [];
  /** Tokens that were released since the last poll: its events may still name them. */
  readonly #retired: number[] = [];
  /** Lower bound of all deadlines. */
  #earliestNs = Number.POSITIVE_INFINITY;
  readonly #alarm: EventAlarm;
  #closed = false;

  /** @throws SyscallError EMFILE */
  constructor(clock: Clock) {
    this.#clock = clock;
    this.#sleeper = new Sleeper(clock);
    try {
      this.#alarm = new EventAlarm(this.#set.fd, () => this.#sleeper.wake());
    } catch (error) {
      this.#set.close();
      throw error;
    }
  }

  /**
   * Watches a descriptor.
   * @param events bits of ReadyFor
   * @returns the token of the descriptor in this set
   * @throws SyscallError ENOSPC
   */
  add(fd: number, events: number, watched: CmTarget): number {
    const token = this.#freeTokens.pop() ?? this.#watched.length;
    this.#watched[token] = watched;
    try {
      this.#set.add(fd, events, token);
    } catch (error) {
      this.#release(token);
      throw error;
    }
    this.due(watched.deadlineNs);
    return token;
  }

  /** Changes the watched events of a descriptor. */
  modify(fd: number, events: number, token: number): void {
    this.#set.modify(fd, events, token);
  }

  /** Removes a descriptor, before it is closed. */
  remove(fd: number, token: number): void {
    if (this.#closed) return;
    this.#set.remove(fd);
    this.#release(token);
  }

  /** Adds a deadline. */
  due(deadlineNs: number): void {
    if (deadlineNs >= this.#earliestNs) return;
    this.#earliestNs = deadlineNs;
    // A sleep that has begun may end too late for it.
    this.#sleeper.wake();
  }

  /** Calls the handlers of ready descriptors, then those of expired deadlines. Returns how many callbacks of the manager's owner ran. */
  poll(): number {
    for (let token = this.#retired.pop(); token !== undefined; token = this.#retired.pop())
      this.#freeTokens.push(token);
    let count = 0;
    const ready = this.#set.poll();
    // Callbacks may drive or close the manager, so the tokens are read before any of them runs.
    const tokens: number[] = [];
    for (let i = 0; i < ready; i++) tokens.push(this.#set.token(i));
    for (const token of tokens) count += this.#watched[token]?.onReady() ?? 0;
    if (!this.#closed && this.#clock.nowNs() >= this.#earliestNs) count += this.#expire();
    return count;
  }

  /** Sleeps until a descriptor may be ready, a deadline expires, or `timeoutNs` has passed. */
  wait(timeoutNs: number): Promise<void> {
    if (this.#closed) return Promise.resolve();
    this.#alarm.arm();
    return this.#sleeper.sleep(Math.min(timeoutNs, Math.max(0, this.#earliestNs - this.#clock.nowNs())));
  }

  /** Idempotent. The descriptors stay open. */
  close(): void {
    if (this.#closed) return;
    this.#closed = true;
    this.#sleeper.wake();
    this.#alarm.close();
    this.#set.close();
    this.#watched.length = 0;
  }

  #release(token: number): void {
    this.#watched[token] = undefined;
    this.#retired.push(token);
  }

  #expire(): number {
    const nowNs = this.#clock.nowNs();
    this.#earliestNs = Number.POSITIVE_INFINITY;
    let count = 0;
    try {
      for (const watched of [...this.#watched]) {
        if (watched !== undefined && watched.deadlineNs <= nowNs) count += watched.onDeadline();
      }
    } finally {
      // Also if a callback of the application has thrown: every handler must be called.
      for (const watched of this.#watched)
        this.#earliestNs = Math.min(this.#earliestNs, watched?.deadlineNs ?? Infinity);
    }
    return count;
  }
}

const NAMES = [
  'clients',
  'clients_dropped',
  'clients_sent_away',
  'requests',
  'requests_busy',
  'accepted',
  'rejected',
  'connects',
  'connected',
] as const;

/** Names of the counters. */
export const CmCounter = {
  /** Clients that were accepted at the socket. */
  CLIENTS: 0,
  /** Clients among them that disconnected, were too slow or violated the protocol. */
  CLIENTS_DROPPED: 1,
  /** Clients that were disconnected because the limits of clients or descriptors were reached. */
  CLIENTS_SENT_AWAY: 2,
  /** Requests that were passed to the program. */
  REQUESTS: 3,
  /** Requests that were rejected because too many were pending. */
  REQUESTS_BUSY: 4,
  /** Decisions of the program on requests. */
  ACCEPTED: 5,
  REJECTED: 6,
  /** Attempts of this process to connect, and those that succeeded. */
  CONNECTS: 7,
  CONNECTED: 8,
} as const;
export type CmCounter = (typeof CmCounter)[keyof typeof CmCounter];

/** Counters of one manager: totals since its creation. */
export class CmCounters {
  readonly #values: number[] = NAMES.map(() => 0);

  count(counter: CmCounter): void {
    this.#values[counter]! += 1;
  }

  /** Returns the counters as a node of the statistics. */
  node(name: string): StatsNode {
    return statsNode('uct_cm', name, namedCounters(NAMES, this.#values));
  }
}

/** What the listeners, clients and attempts of one manager share. */
export class CmShared implements ChannelOwner {
  readonly clock: Clock;
  readonly log: LimitedLog;
  readonly config: TcpCmConfig;
  readonly counters: CmCounters = new CmCounters();
  readonly watch: Watch;
  readonly staging: ScratchBlock;
  readonly security: Security | undefined;
  readonly random: Random = createRandom(new DataView(systemRandomBytes(4).buffer).getUint32(0));
  /** Memory to receive into. Its contents are valid during a call only. */
  readonly received: Uint8Array = new Uint8Array(FRAME_BYTES_MAX);

  /** @throws SyscallError EMFILE */
  constructor({ clock, log, config }: ComponentServices, security: Security | undefined) {
    this.security = security;
    this.clock = clock;
    this.log = new LimitedLog(log, clock);
    this.config = config.get(TCP_CM_CONFIG_TABLE);
    this.watch = new Watch(clock);
    this.staging = allocateScratch(FRAME_BYTES_MAX);
  }

  close(): void {
    this.log.reportOmitted();
    this.watch.close();
    this.staging.free();
  }
}
