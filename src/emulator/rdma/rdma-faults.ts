/** Faults of an emulated RDMA device as data, and the choice of the packets that they affect. A corrupted packet is treated as lost: its checksum is wrong. */

import { checkOptions } from '../../ucs/type/check-options.ts';
import { invalidParam } from '../../ucs/type/error.ts';
import { PacketKind } from './queue/packet.ts';

/** The kinds of packets that a fault can name. */
export type PacketName =
  | 'any'
  | 'send'
  | 'write'
  | 'read-request'
  | 'read-response'
  | 'atomic-ack'
  | 'ack'
  | 'datagram';

const ANY = 0;
const PACKET_NAMES: Readonly<Record<PacketName, number>> = {
  any: ANY,
  send: PacketKind.SEND,
  write: PacketKind.WRITE,
  'read-request': PacketKind.READ_REQUEST,
  'read-response': PacketKind.READ_RESPONSE,
  'atomic-ack': PacketKind.ATOMIC_ACK,
  ack: PacketKind.ACK,
  datagram: PacketKind.DATAGRAM,
};

/** Loses packets that the device sends. */
export interface DropFault {
  readonly kind: 'drop';
  /** Default: `any`. */
  readonly packet?: PacketName;
  /** Number of packets that pass before the first lost one. Default: 0. */
  readonly after?: number;
  /** Number of packets that are lost; Infinity for all. Default: 1. */
  readonly count?: number;
}

/** Delays packets that the device sends; their order stays. */
export interface DelayFault {
  readonly kind: 'delay';
  readonly delayNs: number;
  /** Number of packets that are delayed. Default: Infinity. */
  readonly count?: number;
}

/** The link of the port goes down or up. */
export interface PortFault {
  readonly kind: 'link-down' | 'link-up';
}

/** The device is removed: surprise unplug. It does not come back. */
export interface RemoveFault {
  readonly kind: 'remove';
}

/** A fault. */
export type RdmaFault = DropFault | DelayFault | PortFault | RemoveFault;

/** Results of {@link PacketFaults.next}: the packet passes, or is lost; a positive number is its delay in nanoseconds. */
export const PASSES = 0;
export const IS_LOST: number = -1;

interface Plan {
  readonly packet: number;
  readonly delayNs: number;
  after: number;
  count: number;
}

/** The faults of the packets of one device. */
export class PacketFaults {
  readonly #plans: Plan[] = [];

  /** Whether there are any. */
  get isEmpty(): boolean {
    return this.#plans.length === 0;
  }

  /**
   * Plans a fault.
   * @throws UcxError ERR_INVALID_PARAM
   */
  add(fault: DropFault | DelayFault): void {
    if (fault.kind === 'drop') {
      checkOptions(fault, 'fault', ['kind', 'packet', 'after', 'count']);
      const { packet = 'any', after = 0, count = 1 } = fault;
      if (!Object.hasOwn(PACKET_NAMES, packet)) {
        throw invalidParam('packet', `must be one of ${Object.keys(PACKET_NAMES).join(', ')}`, packet);
      }
      checkCount('after', after, 0);
      checkCount('count', count, 1);
      this.#plans.push({ packet: PACKET_NAMES[packet], delayNs: IS_LOST, after, count });
      return;
    }
    checkOptions(fault, 'fault', ['kind', 'delayNs', 'count']);
    const { delayNs, count = Number.POSITIVE_INFINITY } = fault;
    if (!Number.isFinite(delayNs) || delayNs < 0)
      throw invalidParam('delayNs', 'must be finite and not negative', delayNs);
    checkCount('count', count, 1);
    this.#plans.push({ packet: ANY, delayNs, after: 0, count });
  }

  /** Removes all. */
  clear(): void {
    this.#plans.length = 0;
  }

  /** Applies the faults to the next packet of a kind: returns {@link PASSES}, {@link IS_LOST} or its delay in nanoseconds. */
  next(kind: PacketKind): number {
    const found = this.#plans.find(({ packet }) => packet === ANY || packet === kind);
    if (found === undefined) return PASSES;
    if (found.after > 0) {
      found.after -= 1;
      return PASSES;
    }
    found.count -= 1;
    if (found.count === 0) this.#plans.splice(this.#plans.indexOf(found), 1);
    return found.delayNs;
  }
}

function checkCount(name: string, value: number, min: number): void {
  const isGood = value === Number.POSITIVE_INFINITY || (Number.isSafeInteger(value) && value >= min);
  if (!isGood) throw invalidParam(name, `must be an integer of at least ${min}, or Infinity`, value);
}
