/** An emulated RDMA device: its limits, its objects, and its faults. Programs use it through contexts. */

import type { Clock } from '../../ucs/sys/clock.ts';
import { AsyncEventType, LinkLayer, PortState } from '../../verbs/abi.ts';
import type { DeviceAttributes, PortAttributes } from '../../verbs/port.ts';
import type { Packet } from './queue/packet.ts';
import type { EmulatedQp } from './queue/queue-pair.ts';
import { RdmaShared } from './queue/shared.ts';
import type { RdmaFault } from './rdma-faults.ts';
import { type RdmaWire, WirePort } from './wire.ts';

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

/** The device. */
export class RdmaDevice extends RdmaShared {
  readonly name: string;
  /** Limits of the device. A test may lower them before the device is opened. */
  limits: DeviceAttributes = DEVICE_LIMITS;
  /** Longest inline data; a test may lower it too. It is not in `limits` because libibverbs has no query for it. */
  inlineBytesMax: number = INLINE_BYTES_MAX;
  readonly #port: WirePort;
  readonly #qps: Map<number, EmulatedQp> = new Map();
  /** All objects that are not destroyed. */
  readonly #objects: Set<object> = new Set();
  #nextQpNum = FIRST_QP_NUM;
  #nextHandle = 1;

  /** @param gid the address of its port; a random one of a private prefix (RFC 4193) if undefined */
  constructor(name: string, clock: Clock, wire: RdmaWire, gid?: Uint8Array) {
    super(clock, wire, gid);
    this.name = name;
    const deliver = (packet: Packet, sourceGid: Uint8Array): void => this.#deliver(packet, sourceGid);
    this.#port = new WirePort(this.gid, deliver, () => this.#resume());
    wire.join(this.#port);
  }

  /** The state of its port. */
  get port(): PortAttributes {
    return { ...PORT, state: this.isUp ? PortState.ACTIVE : PortState.DOWN };
  }

  /** Objects that are not destroyed, for tests of leaks. */
  get objectCount(): number {
    return this.#objects.size + this.regions.size + this.handles.size;
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
    this.handles.set(handle, gid);
    return handle;
  }

  removeHandle(handle: number): void {
    this.handles.delete(handle);
  }

  /** Receives the packets that have arrived, and ends the timers that are due. */
  progress(): void {
    this.timers.progress();
    this.wire.progress();
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
        this.faults.add(fault);
    }
  }

  /** Removes the planned faults of packets. */
  clearFaults(): void {
    this.faults.clear();
  }

  /** Surprise removal: every queue pair is in error, and nothing can be opened or created any more. */
  remove(): void {
    if (this.isRemoved) return;
    this.isRemoved = true;
    this.isUp = false;
    this.wire.leave(this.#port);
    for (const qp of this.#qps.values()) qp.fail();
    this.raise(AsyncEventType.DEVICE_FATAL, 0);
  }

  /** Releases everything: the end of the node. */
  close(): void {
    this.remove();
    this.closePackets();
  }

  #setLink(isUp: boolean): void {
    if (this.isRemoved || this.isUp === isUp) return;
    this.isUp = isUp;
    this.raise(isUp ? AsyncEventType.PORT_ACTIVE : AsyncEventType.PORT_ERR, 1);
  }

  /** A packet has arrived. */
  #deliver(packet: Packet, sourceGid: Uint8Array): void {
    if (this.isUp) this.#qps.get(packet.destQpNum)?.receive(packet, sourceGid);
  }

  /** The wire accepts packets again. */
  #resume(): void {
    for (const qp of this.#qps.values()) qp.pump();
  }
}
