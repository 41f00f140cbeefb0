/**
 * The simulated network: when messages arrive, and which are lost. It has hosts, interfaces and an order, and does not interpret
 * messages.
 */

import type { ManualClock } from '../../src/ucs/sys/clock.ts';
import type { Random } from '../../src/ucs/sys/random.ts';
import { Status } from '../../src/ucs/type/status.ts';

/** Delay and unreliability of the network. */
export interface NetworkOptions {
  /** Shortest delay between two hosts, and its random part. */
  readonly delayNs: number;
  readonly jitterNs: number;
  /** Longest time until transports detect a loss. */
  readonly detectionNsMax: number;
}

/** An event that a host handles at its interface, one by one, in its progress. */
export type Arrival = () => void;

/** An interface in the network. */
export interface Port {
  readonly id: number;
  readonly host: number;
  readonly isClosed: boolean;
  /** Something has arrived: kept until progress handles it. */
  arrive(arrival: Arrival): void;
  /** The host dies. */
  halt(): void;
  /** The connections that lead to a port, or to any port of a host. */
  linesTo(host: number, port: number | undefined): readonly Line[];
  /** Time of the last arrival from each host. */
  readonly lastFrom: Map<number, number>;
}

/** One end of a connection, which can lose the other. */
export interface Line {
  lose(status: Status): void;
}

/** One direction of a connection, which delivers in order unless told otherwise. */
export class Stream {
  readonly from: number;
  readonly to: number;
  lastNs = 0;
  sent = 0;
  arrived = 0;
  /** Messages from this number on are lost. */
  lostFrom: number = Number.POSITIVE_INFINITY;

  constructor(from: number, to: number) {
    this.from = from;
    this.to = to;
  }
}

/** How a message is sent. */
export interface Sending {
  /** After all earlier messages of this stream. */
  readonly isOrdered: boolean;
  /** Called when it arrives, without the receiver. */
  readonly atOnce?: (() => void) | undefined;
  /** Called when the receiver handles it; undefined if the receiver is not involved. */
  readonly arrival?: Arrival | undefined;
}

/** The network. */
export class Network {
  readonly clock: ManualClock;
  readonly random: Random;
  readonly #options: NetworkOptions;
  readonly #ports: Map<number, Port> = new Map();
  readonly #streams: Stream[] = [];
  readonly #dead: Set<number> = new Set();
  /** Pairs of separated hosts, and those that will be connected again at a later time. */
  readonly #severed: Set<string> = new Set();
  readonly #pausedUntil: Map<string, number> = new Map();
  #nextPort = 1;
  /** Contract violations of the code under test. */
  readonly complaints: string[] = [];
  /** Number of operations so far. */
  operations = 0;
  /** Called when a port tells a caller without a completion that an operation to another one has failed: it tells that once. */
  onFailureTaken: ((port: number, peerPort: number, operation: number) => void) | undefined = undefined;

  constructor(clock: ManualClock, random: Random, options: NetworkOptions) {
    this.clock = clock;
    this.random = random;
    this.#options = options;
  }

  /** Allocates the number of a new port. */
  newPort(): number {
    return this.#nextPort++;
  }

  attach(port: Port): void {
    this.#ports.set(port.id, port);
  }

  port(id: number): Port | undefined {
    return this.#ports.get(id);
  }

  isDead(host: number): boolean {
    return this.#dead.has(host);
  }

  stream(from: number, to: number): Stream {
    const stream = new Stream(from, to);
    if (this.isSevered(from, to)) stream.lostFrom = 0;
    this.#streams.push(stream);
    return stream;
  }

  /** Sends a message to a port, where it arrives later, or never. */
  send(stream: Stream, to: Port, { isOrdered, atOnce, arrival }: Sending): void {
    const number = stream.sent++;
    let atNs = this.clock.nowNs() + this.#travelNs(stream);
    if (isOrdered) {
      atNs = Math.max(atNs, stream.lastNs);
      stream.lastNs = atNs;
    }
    to.lastFrom.set(stream.from, Math.max(atNs, to.lastFrom.get(stream.from) ?? 0));
    this.clock.setTimer(atNs - this.clock.nowNs(), () => {
      stream.arrived += 1;
      if (number >= stream.lostFrom || to.isClosed || this.#dead.has(to.host)) return;
      atOnce?.();
      if (arrival !== undefined) to.arrive(arrival);
    });
  }

  /** Runs something between now and the next arrival: actions of a network card. */
  soon(host: number, run: () => void): void {
    this.clock.setTimer(this.random.below(this.#options.delayNs), () => {
      if (!this.#dead.has(host)) run();
    });
  }

  /** A host dies, and a part of its sent messages is lost. Others detect it later. */
  kill(host: number): void {
    this.#dead.add(host);
    for (const stream of this.#streams) {
      if (stream.from === host || stream.to === host) this.#cut(stream);
    }
    for (const port of this.#ports.values()) {
      if (port.host === host) port.halt();
      else this.#tell(port, host, undefined);
    }
  }

  /** Two hosts are separated from now on, and detect it later. */
  sever(one: number, other: number): void {
    this.#severed.add(pairOf(one, other));
    for (const stream of this.#streams) {
      if (pairOf(stream.from, stream.to) === pairOf(one, other)) this.#cut(stream);
    }
    for (const port of this.#ports.values()) {
      if (port.host === one) this.#tell(port, other, undefined);
      if (port.host === other) this.#tell(port, one, undefined);
    }
  }

  /** Messages between two hosts from now on arrive only after this time. */
  pause(one: number, other: number, ns: number): void {
    this.#pausedUntil.set(pairOf(one, other), this.clock.nowNs() + ns);
  }

  /** A port is closed in order: its sent messages arrive, and then the others detect it. */
  closed(port: Port): void {
    this.#ports.delete(port.id);
    for (const other of this.#ports.values()) this.#tell(other, port.host, port.id);
  }

  /** A connection to a closed port detects it like all others. */
  noticeLoss(port: Port, line: Line, host: number): void {
    this.#later(port, host, () => line.lose(this.#lossStatus()));
  }

  /** True if nothing arrives from one host at the other any more. */
  isLost(from: number, to: number): boolean {
    return this.#dead.has(to) || this.isSevered(from, to);
  }

  /** True if two hosts were separated. */
  isSevered(from: number, to: number): boolean {
    return this.#severed.size > 0 && this.#severed.has(pairOf(from, to));
  }

  #tell(port: Port, host: number, lost: number | undefined): void {
    for (const line of port.linesTo(host, lost)) this.noticeLoss(port, line, host);
  }

  /** After all messages that the host has sent. */
  #later(port: Port, host: number, arrival: Arrival): void {
    const last = Math.max(0, (port.lastFrom.get(host) ?? 0) - this.clock.nowNs());
    this.clock.setTimer(last + 1 + this.random.below(this.#options.detectionNsMax), () => {
      if (!port.isClosed && !this.#dead.has(port.host)) port.arrive(arrival);
    });
  }

  #lossStatus(): Status {
    return this.random.below(2) === 0 ? Status.CONNECTION_RESET : Status.ENDPOINT_TIMEOUT;
  }

  #cut(stream: Stream): void {
    const lost = this.random.below(stream.sent - stream.arrived + 1);
    stream.lostFrom = Math.min(stream.lostFrom, stream.sent - lost);
  }

  #travelNs({ from, to }: Stream): number {
    const { delayNs, jitterNs } = this.#options;
    const isFar = this.random.below(16) === 0;
    // Paths have different delays, also the two directions of one.
    const wayNs = (((from * 7 + to * 13) % 5) * delayNs) >> 1;
    const travelNs = delayNs + wayNs + this.random.below(jitterNs) * (isFar ? 8 : 1);
    const pausedNs = (this.#pausedUntil.get(pairOf(from, to)) ?? 0) - this.clock.nowNs();
    return travelNs + Math.max(0, pausedNs);
  }
}

function pairOf(one: number, other: number): string {
  return one < other ? `${one}-${other}` : `${other}-${one}`;
}
