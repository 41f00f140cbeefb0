/**
 * State shared by queue pairs. With their emulated RDMA device: the port on the wire with its faults and delays, memory, address handles and timers. With
 * their requester and responder: the queues and the attributes of the connection.
 */

import type { Clock, Timer } from '../../../ucs/sys/clock.ts';
import { systemRandomBytes } from '../../../ucs/sys/random.ts';
import { AsyncEventType, GID_BYTES, mtuBytes, QpState, type QpType, type WcStatus } from '../../../verbs/abi.ts';
import type { AsyncEvent, QpInit } from '../../../verbs/port.ts';
import { RegionTable } from '../memory/dma-memory.ts';
import { IS_LOST, PASSES, PacketFaults } from '../rdma-faults.ts';
import type { RdmaWire } from '../wire.ts';
import type { EmulatedCq } from './completion-queue.ts';
import { Packet } from './packet.ts';
import { EmulatedSrq, ReceiveRing } from './receive-queue.ts';

interface Delayed {
  readonly packet: Packet;
  readonly gid: Uint8Array;
}

/** The members of a device that its queue pairs use. */
export class RdmaShared {
  readonly clock: Clock;
  readonly timers: DeviceTimers;
  /** The GID of the port. */
  readonly gid: Uint8Array;
  readonly regions: RegionTable = new RegionTable();
  /** The packet that {@link send} sends. */
  readonly packet: Packet = new Packet();
  /** False while the port is down, and after the removal of the device. */
  isUp = true;
  isRemoved = false;
  protected readonly wire: RdmaWire;
  protected readonly faults: PacketFaults = new PacketFaults();
  protected readonly handles: Map<number, Uint8Array> = new Map();
  /** The receivers of asynchronous events: one for each context. */
  readonly #listeners: Set<(event: AsyncEvent) => void> = new Set();
  readonly #delayed: Set<Delayed> = new Set();
  /** Time before which no packet leaves: the send time of the last delayed packet, so that packets stay in order. */
  #delayedUntilNs = 0;

  /** @param gid the address of its port; a random one of a private prefix (RFC 4193) if undefined */
  constructor(clock: Clock, wire: RdmaWire, gid?: Uint8Array) {
    this.clock = clock;
    this.timers = new DeviceTimers(clock);
    this.wire = wire;
    this.gid = gid ?? randomGid();
  }

  /** The destination GID of an address handle; undefined for an unknown handle. */
  destinationOf(handle: number): Uint8Array | undefined {
    return this.handles.get(handle);
  }

  /** Whether the wire to a port accepts another packet now. If not, the device pumps the queue pairs again once it does. */
  canSend(gid: Uint8Array): boolean {
    return this.wire.canSend(gid);
  }

  /** Sends {@link packet}; it may be lost. */
  send(gid: Uint8Array): void {
    const { packet } = this;
    if (!this.isUp) return;
    if (!this.faults.isEmpty || this.#delayed.size > 0) {
      const fate = this.faults.next(packet.kind);
      if (fate === IS_LOST) return;
      if (fate !== PASSES || this.#delayed.size > 0) {
        this.#delay(fate, gid);
        return;
      }
    }
    this.wire.send(packet, this.gid, gid);
  }

  /** Raises an asynchronous event. */
  raise(type: number, element: number): void {
    for (const listener of this.#listeners) listener({ type, element });
  }

  /** Calls `listener` for every asynchronous event from now on. */
  listen(listener: (event: AsyncEvent) => void): void {
    this.#listeners.add(listener);
  }

  /** Reverts {@link listen}. */
  unlisten(listener: (event: AsyncEvent) => void): void {
    this.#listeners.delete(listener);
  }

  /** Drops the packets that are delayed. */
  protected closePackets(): void {
    for (const delayed of this.#delayed) delayed.packet.close();
    this.#delayed.clear();
    this.packet.close();
  }

  #delay(delayNs: number, gid: Uint8Array): void {
    const now = this.clock.nowNs();
    this.#delayedUntilNs = Math.max(this.#delayedUntilNs, now + delayNs);
    const delayed: Delayed = { packet: new Packet(), gid: gid.slice() };
    delayed.packet.copyFrom(this.packet);
    this.#delayed.add(delayed);
    this.timers.set(this.#delayedUntilNs - now, () => {
      if (!this.#delayed.delete(delayed)) return;
      if (this.isUp) this.wire.send(delayed.packet, this.gid, delayed.gid);
      delayed.packet.close();
    });
  }
}

function randomGid(): Uint8Array {
  const gid = systemRandomBytes(GID_BYTES);
  gid[0] = 0xfd;
  return gid;
}

const NO_GID: Uint8Array = new Uint8Array(GID_BYTES);

/** State that the requester and responder of a queue pair share. */
export abstract class QpShared {
  readonly device: RdmaShared;
  readonly qpNum: number;
  readonly pd: object;
  readonly type: QpType;
  readonly sendCq: EmulatedCq;
  readonly receiveCq: EmulatedCq;
  readonly receives: ReceiveRing;
  /** Protection domain of the receives: that of the shared queue, if it uses one. */
  readonly receivePd: object;
  state: QpState = QpState.RESET;
  /** Attributes of the current connection. */
  mtu: number = mtuBytes(5);
  destGid: Uint8Array = NO_GID;
  destQpNum = 0;
  accessFlags = 0;
  maxRdAtomic = 0;
  maxDestRdAtomic = 0;
  timeout = 0;
  retryCount = 0;
  rnrRetry = 0;
  minRnrTimer = 0;
  protected closed = false;

  constructor(device: RdmaShared, pd: object, qpNum: number, init: QpInit) {
    const { type, sendCq, receiveCq, srq, maxReceiveWr, maxReceiveSge } = init;
    this.device = device;
    this.pd = pd;
    this.qpNum = qpNum;
    this.type = type;
    this.sendCq = sendCq as EmulatedCq;
    this.receiveCq = receiveCq as EmulatedCq;
    this.receives = srq instanceof EmulatedSrq ? srq.ring : new ReceiveRing(maxReceiveWr, maxReceiveSge);
    this.receivePd = srq instanceof EmulatedSrq ? srq.pd : pd;
  }

  /** Whether the queue pair may send requests (state RTS). */
  get canRequest(): boolean {
    return this.state === QpState.RTS && !this.closed;
  }

  /** Moves it to the error state: everything posted is flushed. */
  abstract fail(): void;

  /** Completes a receive. */
  received({ idLow, idHigh }: { readonly idLow: number; readonly idHigh: number }, result: ReceiveResult): void {
    if (this.receiveCq.push({ ...result, idLow, idHigh, qpNum: this.qpNum })) return;
    this.device.raise(AsyncEventType.CQ_ERR, this.qpNum);
    this.fail();
  }
}

export interface ReceiveResult {
  readonly status: WcStatus;
  readonly opcode: number;
  readonly byteLength: number;
  readonly sourceQp: number;
  readonly flags: number;
  readonly immediate: number;
}

/** A timer that has not ended. */
interface Pending {
  readonly dueNs: number;
  readonly timer: Timer;
  readonly onDue: () => void;
}

/** The timers. A real device counts time without the host; therefore timers also end when the program polls: it may never return to the event loop. */
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

  /** Ends the timers that are due. */
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
