/**
 * An emulated RDMA device: a port on the wire, its queue pairs and memory regions, and its faults. Programs use it through contexts. The timers of an
 * emulated RDMA device. A real device counts time by itself; therefore timers also end when the program polls: it may never return to the event loop.
 */

import type { Clock, Timer } from '../../ucs/sys/clock.ts';
import { systemRandomBytes } from '../../ucs/sys/random.ts';
import { AsyncEventType, GID_BYTES, LinkLayer, PortState } from '../../verbs/abi.ts';
import type { AsyncEvent, DeviceAttributes, PortAttributes } from '../../verbs/port.ts';
import { RegionTable } from './memory/dma-memory.ts';
import { Packet } from './queue/packet.ts';
import type { EmulatedQp, QpOwner } from './queue/queue-pair.ts';
import { IS_LOST, PASSES, PacketFaults, type RdmaFault } from './rdma-faults.ts';
import type { RdmaWire, WirePort } from './wire.ts';

/** Limits, in the order of magnitude of a ConnectX-6. */
const DEVICE_LIMITS: DeviceAttributes = {
  maxMrSize: 2 ** 46,
  maxQp: 4096,
  maxQpWr: 8192,
  maxSge: 30,
  maxCq: 4096,
  maxCqe: 65_536,
  maxMr: 2 ** 20,
  maxPd: 1024,
  maxQpRdAtom: 16,
  maxQpInitRdAtom: 16,
  maxSrq: 1024,
  maxSrqWr: 8192,
  maxSrqSge: 31,
  hasAtomics: true,
  physPortCount: 1,
  firmware: 'emulated',
};
/** Longest inline data of a queue pair. */
const INLINE_BYTES_MAX = 828;

/** A port of 100 GbE. */
const PORT: Omit<PortAttributes, 'state'> = {
  activeMtu: 5,
  gidTableLength: 1,
  pkeyTableLength: 1,
  maxMessageBytes: 2 ** 30,
  lid: 0,
  linkLayer: LinkLayer.ETHERNET,
  bytesPerSecond: 12.5e9,
};
const FIRST_QP_NUM = 0x11;
const QP_NUM_END: number = 2 ** 24;

/** Packets that are delayed. */
interface Delayed {
  readonly packet: Packet;
  readonly gid: Uint8Array;
}

/** Receiver of asynchronous events: a context of the device. */
export interface EventSink {
  onEvent(event: AsyncEvent): void;
}

/** The device. */
export class RdmaDevice implements QpOwner, WirePort {
  readonly name: string;
  readonly clock: Clock;
  readonly timers: DeviceTimers;
  readonly gid: Uint8Array;
  readonly regions: RegionTable = new RegionTable();
  readonly packet: Packet = new Packet();
  /** Limits of the device. A test may lower them before the device is opened. */
  limits: DeviceAttributes = DEVICE_LIMITS;
  /** Longest inline data; a test may lower it too. It is not in `limits` because libibverbs has no query for it. */
  inlineBytesMax: number = INLINE_BYTES_MAX;
  isUp = true;
  isRemoved = false;
  readonly contexts: Set<EventSink> = new Set();
  readonly #wire: RdmaWire;
  readonly #faults: PacketFaults = new PacketFaults();
  readonly #qps: Map<number, EmulatedQp> = new Map();
  readonly #handles: Map<number, Uint8Array> = new Map();
  /** All objects that are not destroyed. */
  readonly #objects: Set<object> = new Set();
  readonly #delayed: Set<Delayed> = new Set();
  /** Time before which no packet leaves: the send time of the last delayed packet, so that packets stay in order. */
  #delayedUntilNs = 0;
  #nextQpNum = FIRST_QP_NUM;
  #nextHandle = 1;

  /** @param gid the address of its port; a random one of a private prefix (RFC 4193) if undefined */
  constructor(name: string, clock: Clock, wire: RdmaWire, gid?: Uint8Array) {
    this.name = name;
    this.clock = clock;
    this.timers = new DeviceTimers(clock);
    this.#wire = wire;
    this.gid = gid ?? randomGid();
    wire.join(this);
  }

  /** The state of its port. */
  get port(): PortAttributes {
    return { ...PORT, state: this.isUp ? PortState.ACTIVE : PortState.DOWN };
  }

  /** Objects that are not destroyed, for tests of leaks. */
  get objectCount(): number {
    return this.#objects.size + this.regions.size + this.#handles.size;
  }

  /** Registers an object. */
  created<T extends object>(object: T): T {
    this.#objects.add(object);
    return object;
  }

  destroyed(object: object): void {
    this.#objects.delete(object);
    for (const [qpNum, qp] of this.#qps) if (qp === object) this.#qps.delete(qpNum);
  }

  get qpCount(): number {
    return this.#qps.size;
  }

  /** Returns an unused queue pair number. */
  newQpNum(): number {
    do this.#nextQpNum = this.#nextQpNum + 1 === QP_NUM_END ? FIRST_QP_NUM : this.#nextQpNum + 1;
    while (this.#qps.has(this.#nextQpNum));
    return this.#nextQpNum;
  }

  addQp(qp: EmulatedQp): void {
    this.#qps.set(qp.qpNum, qp);
    this.created(qp);
  }

  addHandle(gid: Uint8Array): number {
    const handle = this.#nextHandle++;
    this.#handles.set(handle, gid);
    return handle;
  }

  removeHandle(handle: number): void {
    this.#handles.delete(handle);
  }

  destinationOf(handle: number): Uint8Array | undefined {
    return this.#handles.get(handle);
  }

  /** Receives the packets that have arrived, and ends the timers that are due. */
  progress(): void {
    this.timers.progress();
    this.#wire.progress();
  }

  canSend(gid: Uint8Array): boolean {
    return this.#wire.canSend(gid);
  }

  send(gid: Uint8Array): void {
    const { packet } = this;
    if (!this.isUp) return;
    if (!this.#faults.isEmpty || this.#delayed.size > 0) {
      const fate = this.#faults.next(packet.kind);
      if (fate === IS_LOST) return;
      if (fate !== PASSES || this.#delayed.size > 0) {
        this.#delay(fate, gid);
        return;
      }
    }
    this.#wire.send(packet, this, gid);
  }

  deliver(packet: Packet, sourceGid: Uint8Array): void {
    if (this.isUp) this.#qps.get(packet.destQpNum)?.receive(packet, sourceGid);
  }

  onRoom(): void {
    for (const qp of this.#qps.values()) qp.pump();
  }

  raise(type: number, element: number): void {
    for (const context of this.contexts) context.onEvent({ type, element });
  }

  /**
   * Injects a fault.
   * @throws UcxError ERR_INVALID_PARAM
   */
  inject(fault: RdmaFault): void {
    switch (fault.kind) {
      case 'link-down':
      case 'link-up':
        this.#setLink(fault.kind === 'link-up');
        return;
      case 'remove':
        this.remove();
        return;
      default:
        this.#faults.add(fault);
    }
  }

  /** Removes the planned faults of packets. */
  clearFaults(): void {
    this.#faults.clear();
  }

  /** Surprise removal: every queue pair is in error, and nothing can be opened or created any more. */
  remove(): void {
    if (this.isRemoved) return;
    this.isRemoved = true;
    this.isUp = false;
    this.#wire.leave(this);
    for (const qp of this.#qps.values()) qp.fail();
    this.raise(AsyncEventType.DEVICE_FATAL, 0);
  }

  /** Releases everything: the end of the node. */
  close(): void {
    this.remove();
    for (const delayed of this.#delayed) delayed.packet.close();
    this.#delayed.clear();
    this.packet.close();
  }

  #setLink(isUp: boolean): void {
    if (this.isRemoved || this.isUp === isUp) return;
    this.isUp = isUp;
    this.raise(isUp ? AsyncEventType.PORT_ACTIVE : AsyncEventType.PORT_ERR, 1);
  }

  #delay(delayNs: number, gid: Uint8Array): void {
    const now = this.clock.nowNs();
    this.#delayedUntilNs = Math.max(this.#delayedUntilNs, now + delayNs);
    const delayed: Delayed = { packet: new Packet(), gid: gid.slice() };
    delayed.packet.copyFrom(this.packet);
    this.#delayed.add(delayed);
    this.timers.set(this.#delayedUntilNs - now, () => {
      if (!this.#delayed.delete(delayed)) return;
      if (this.isUp) this.#wire.send(delayed.packet, this, delayed.gid);
      delayed.packet.close();
    });
  }
}

function randomGid(): Uint8Array {
  const gid = systemRandomBytes(GID_BYTES);
  gid[0] = 0xfd;
  return gid;
}

/** A timer that has not ended. */
interface Pending {
  readonly dueNs: number;
  readonly timer: Timer;
  readonly onDue: () => void;
}

/** The timers. */
class DeviceTimers {
  readonly #clock: Clock;
  readonly #pending: Set<Pending> = new Set();
  /** No timer ends before this time. */
  #nextNs = Number.POSITIVE_INFINITY;

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  /** Calls `onDue` once, after this time. */
  set(delayNs: number, onDue: () => void): Pick<Timer, 'cancel'> {
    const dueNs = this.#clock.nowNs() + delayNs;
    const timer = this.#clock.setTimer(delayNs, () => this.#end(pending));
    const pending: Pending = { dueNs, timer, onDue };
    this.#pending.add(pending);
    this.#nextNs = Math.min(this.#nextNs, dueNs);
    return {
      cancel: () => {
        if (this.#pending.delete(pending)) timer.cancel();
      },
    };
  }

  /** Ends the timers whose time has come. */
  progress(): void {
    if (this.#pending.size === 0) return;
    const nowNs = this.#clock.nowNs();
    if (nowNs < this.#nextNs) return;
    for (const pending of [...this.#pending].filter(({ dueNs }) => dueNs <= nowNs)) this.#end(pending);
    this.#nextNs = Number.POSITIVE_INFINITY;
    for (const { dueNs } of this.#pending) this.#nextNs = Math.min(this.#nextNs, dueNs);
  }

  #end(pending: Pending): void {
    if (!this.#pending.delete(pending)) return;
    pending.timer.cancel();
    pending.onDue();
  }
}
