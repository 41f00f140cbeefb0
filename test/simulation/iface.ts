/**
 * The interface of a simulated transport: arrivals wait here until progress handles a part of them. The operations are in
 * endpoint.ts.
 */

import { type StatsNode, statsNode } from '../../src/ucs/stats/stats-node.ts';
import type { Timer } from '../../src/ucs/sys/clock.ts';
import type { AmHandler, Iface, IfaceAttributes, UctEndpoint } from '../../src/uct/api/iface.ts';
import { unreachable } from '../../src/uct/base/iface.ts';
import { SimulatedEndpoint } from './endpoint.ts';
import { ADDRESS_BYTES, attributesOf, type LaneOptions } from './lane.ts';
import type { MemoryOwner } from './memory.ts';
import type { Arrival, Network, Port } from './network.ts';

const MAGIC = 0x51ed_0001;

/** A sleep on an interface. */
interface Waiter {
  readonly timer: Timer;
  resolve(): void;
}

/** The interface. */
export class SimulatedIface implements Iface, Port {
  readonly attributes: IfaceAttributes;
  readonly address: Uint8Array = new Uint8Array(ADDRESS_BYTES);
  readonly id: number;
  readonly host: number;
  readonly md: MemoryOwner;
  readonly lane: LaneOptions;
  readonly network: Network;
  readonly lastFrom: Map<number, number> = new Map();
  readonly endpoints: Set<SimulatedEndpoint> = new Set();
  handler: AmHandler | undefined = undefined;
  /** Operations that have not ended. */
  operations = 0;
  /** Those of them whose end is awaited. */
  awaited = 0;
  /** Messages that have not been handled by their receivers, as far as this end knows, and permanent refusals. */
  messages = 0;
  isClosed = false;
  readonly #arrivals: Arrival[] = [];
  readonly #waiters: Set<Waiter> = new Set();

  constructor(network: Network, host: number, md: MemoryOwner, lane: LaneOptions) {
    this.network = network;
    this.host = host;
    this.md = md;
    this.lane = lane;
    this.attributes = attributesOf(lane);
    this.id = network.newPort();
    new Int32Array(this.address.buffer).set([MAGIC, this.id, this.host]);
    this.address.set(Buffer.from(lane.device.slice(-4)), 12);
    network.attach(this);
  }

  get outstanding(): number {
    return this.operations + this.messages + this.#arrivals.length;
  }

  unreachableReason(address: Uint8Array): string | undefined {
    if (address.byteLength !== ADDRESS_BYTES) return 'is not an address';
    const [magic, id] = new Int32Array(address.slice().buffer);
    if (magic !== MAGIC || address.some((byte, i) => i >= 12 && byte !== this.address[i])) return 'is another network';
    const isItself = id === this.id;
    if (this.lane.reach === 'itself' && !isItself) return 'connects only to the worker itself';
    if (this.lane.reach === 'others' && isItself) return 'is for other workers only';
    return undefined;
  }

  identityOf(address: Uint8Array): string | undefined {
    if (address.byteLength !== ADDRESS_BYTES) return undefined;
    return `port ${new Int32Array(address.slice().buffer)[1]}`;
  }

  connect(address: Uint8Array): UctEndpoint {
    const reason = this.unreachableReason(address);
    if (reason !== undefined) throw unreachable(this.lane.transport, reason);
    const [, id, host] = new Int32Array(address.slice().buffer);
    const endpoint = new SimulatedEndpoint(this, id!, host!);
    this.endpoints.add(endpoint);
    return endpoint;
  }

  setAmHandler(handler: AmHandler): void {
    this.handler = handler;
  }

  progress(): number {
    let count = 0;
    // New arrivals are handled at the next call, and sometimes some of the present ones.
    const { random } = this.network;
    const ready = this.#arrivals.length;
    const limit = ready > 1 && random.below(4) === 0 ? 1 + random.below(ready) : ready;
    while (count < limit && this.#arrivals.length > 0) {
      count += 1;
      this.#arrivals.shift()!();
    }
    return count;
  }

  errorOf(): undefined {
    return undefined;
  }

  stats(): StatsNode {
    return statsNode('uct_iface', `${this.lane.transport}/${this.lane.device}`, {});
  }

  wait(timeoutNs: number): Promise<void> {
    // A sleep on a dead host never ends.
    if (this.network.isDead(this.host)) return new Promise(() => {});
    if (this.#arrivals.length > 0 || this.isClosed) return Promise.resolve();
    return new Promise((resolve) => {
      const timer = this.network.clock.setTimer(timeoutNs, () => this.#wake(waiter));
      const waiter: Waiter = { timer, resolve };
      this.#waiters.add(waiter);
    });
  }

  /** The host is dead: its sleeps never end. */
  halt(): void {
    for (const { timer } of this.#waiters) timer.cancel();
    this.#waiters.clear();
  }

  close(): void {
    if (this.isClosed) return;
    if (this.awaited > 0 && !this.network.isDead(this.host)) {
      this.network.complaints.push(`${this.lane.device} of host ${this.host} closed with ${this.awaited} operations`);
    }
    this.isClosed = true;
    this.wake();
    this.network.closed(this);
  }

  arrive(arrival: Arrival): void {
    this.#arrivals.push(arrival);
    this.wake();
  }

  linesTo(host: number, port: number | undefined): readonly SimulatedEndpoint[] {
    return [...this.endpoints].filter((end) => end.peerHost === host && (port === undefined || end.peerPort === port));
  }

  /** Ends the sleeps on this interface: there is room, or something has arrived. */
  wake(): void {
    for (const waiter of [...this.#waiters]) this.#wake(waiter);
  }

  #wake(waiter: Waiter): void {
    waiter.timer.cancel();
    this.#waiters.delete(waiter);
    waiter.resolve();
  }
}
