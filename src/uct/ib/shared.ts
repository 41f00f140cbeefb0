/**
 * The state that the connections and endpoints of one ib interface share: its queues, and the work requests in flight on them. The queues are opened together
 * or not at all.
 */

import { OPEN } from '../../ucs/debug/diagnostics.ts';
import { LimitedLog } from '../../ucs/debug/limited-log.ts';
import type { Log } from '../../ucs/debug/log.ts';
import { DEVICE_MEMORY_TYPES, MemoryType, memoryTypeBit } from '../../ucs/memory/memory-type.ts';
import type { Clock } from '../../ucs/sys/clock.ts';
import { Sleeper } from '../../ucs/sys/sleeper.ts';
import type { Status } from '../../ucs/type/status.ts';
import type { CompletionChannel, CompletionQueue, SharedReceiveQueue } from '../../verbs/port.ts';
import { type Completion, type IfaceAttributes, IfaceFlag, type QueueLimits, ZCOPY_TRACKING_NS } from '../api/iface.ts';
import type { ComponentServices } from '../api/memory-domain.ts';
import { completeOne } from '../base/checks.ts';
import { TransferCounters } from '../base/counters.ts';
import { IB_CONFIG_TABLE, type IbConfig, RC_CONFIG_TABLE, type RcConfig } from './base/config.ts';
import type { IbPort } from './base/device.ts';
import { CqReader, IB_IOV_MAX, inlineBytesOf, Opened, SlotMemory } from './base/queues.ts';
import { IB_ADDRESS_BYTES } from './connection/address.ts';

/** Slots for bytes that are copied before they are sent, for all connections. */
const TX_SLOTS = 512;
/** Length of the send completion queue: bounds the work requests in flight of all connections. */
const SEND_CQE = 16_384;
/** Fraction of the bandwidth of a link for payload; packet headers use the rest. */
const PAYLOAD_SHARE = 0.95;
/** Estimates of UCX for rc_verbs. */
const LATENCY_NS = 1000;
const OVERHEAD_NS = 75;

export class IbShared {
  readonly port: IbPort;
  readonly ib: IbConfig;
  readonly rc: RcConfig;
  readonly attributes: IfaceAttributes;
  readonly clock: Clock;
  readonly log: Log;
  /** Log for events that peers can cause. */
  readonly warnings: LimitedLog;
  readonly counters: TransferCounters = new TransferCounters();
  readonly sleeper: Sleeper;
  /** Reports completions of both queues. */
  readonly channel: CompletionChannel;
  readonly sendCq: CompletionQueue;
  readonly sends: CqReader;
  readonly receiveCq: CompletionQueue;
  readonly receives: CqReader;
  readonly srq: SharedReceiveQueue;
  /** Length of {@link srq}. */
  readonly receiveLength: number;
  /** Memory of received messages, and of bytes that are copied before they are sent. */
  readonly rx: SlotMemory;
  readonly tx: SlotMemory;
  readonly inlineBytes: number;
  /** Maximum number of work requests in flight of all connections: the completion queue must never overrun. */
  readonly sendDepth: number;
  /** Work requests that can be posted now. */
  sendSlots: number;
  /** Operations with completions that have not ended. */
  outstanding = 0;
  readonly #opened: Opened = new Opened();

  /** @throws SyscallError */
  constructor(port: IbPort, { config, log, clock }: ComponentServices) {
    const { device } = port;
    const { maxCqe, maxSrqWr, maxSge, maxMr, maxQpWr } = device.attributes;
    const opened = this.#opened;
    this.port = port;
    this.ib = config.get(IB_CONFIG_TABLE);
    this.rc = config.get(RC_CONFIG_TABLE);
    this.clock = clock;
    this.log = log;
    this.warnings = new LimitedLog(log, clock);
    this.sleeper = new Sleeper(clock);
    this.sendDepth = Math.min(SEND_CQE, maxCqe);
    this.sendSlots = this.sendDepth;
    this.receiveLength = Math.min(this.rc.RX_QUEUE_LEN, maxSrqWr, maxCqe);
    try {
      this.channel = opened.keep(device.context.createCompletionChannel());
      this.sendCq = device.context.createCq(this.sendDepth, this.channel);
      this.sends = opened.keep(new CqReader(this.sendCq));
      this.receiveCq = device.context.createCq(Math.min(this.receiveLength * 2, maxCqe), this.channel);
      this.receives = opened.keep(new CqReader(this.receiveCq));
      this.tx = opened.keep(new SlotMemory(device, TX_SLOTS, this.ib.SEG_SIZE));
      this.rx = opened.keep(new SlotMemory(device, this.receiveLength, this.ib.SEG_SIZE));
      this.srq = opened.keep(device.pd.createSrq(this.receiveLength, 1));
      const { sendCq, receiveCq, srq } = this;
      const maxSendWr = Math.min(this.rc.TX_QUEUE_LEN, maxQpWr);
      this.inlineBytes = inlineBytesOf(device, { sendCq, receiveCq, srq, maxSendWr }, this.rc.TX_MIN_INLINE);
      this.attributes = attributesOf(port, this.ib, {
        sendLength: maxSendWr,
        receiveLength: this.receiveLength,
        inlineBytes: this.inlineBytes,
        sgeMax: maxSge,
        regionsMax: maxMr,
      });
    } catch (error) {
      opened.close();
      throw error;
    }
  }

  /** Ends an operation. */
  complete(completion: Completion, status: Status): void {
    this.outstanding -= 1;
    completeOne(completion, status);
  }

  close(): void {
    OPEN.sendSlots += this.tx.count - this.tx.numFree + this.sendDepth - this.sendSlots;
    this.#opened.close();
  }
}

/** Attributes of the interface on a port, for the cost model. */
function attributesOf(
  { resource, attributes, device }: IbPort,
  { SEG_SIZE }: IbConfig,
  queues: QueueLimits,
): IfaceAttributes {
  const memoryTypes = memoryTypeBit(MemoryType.HOST) | DEVICE_MEMORY_TYPES;
  const limits = {
    shortBytesMax: SEG_SIZE,
    zcopyBytesMin: 0,
    zcopyBytesMax: attributes.maxMessageBytes,
    iovMax: Math.min(IB_IOV_MAX, device.attributes.maxSge - 1),
  };
  const speed = attributes.bytesPerSecond * PAYLOAD_SHARE;
  return {
    resource,
    flags:
      IfaceFlag.PUT_SHORT |
      IfaceFlag.PUT_ZCOPY |
      IfaceFlag.GET_SHORT |
      IfaceFlag.GET_ZCOPY |
      IfaceFlag.AM_SHORT |
      IfaceFlag.AM_BCOPY |
      IfaceFlag.AM_ZCOPY |
      (device.attributes.hasAtomics ? IfaceFlag.ATOMIC64 : 0) |
      IfaceFlag.EP_CHECK |
      IfaceFlag.EVENT |
      IfaceFlag.CONNECT_TO_IFACE |
      IfaceFlag.ERRHANDLE_REMOTE_MEM,
    put: limits,
    get: limits,
    am: { shortBytesMax: SEG_SIZE, bcopyBytesMax: SEG_SIZE, zcopyBytesMax: SEG_SIZE },
    localMemoryTypes: memoryTypes,
    remoteMemoryTypes: memoryTypes,
    requiredMemoryTypes: 0,
    reachesOtherDevices: true,
    performance: {
      latencyNs: LATENCY_NS,
      overheadNs: OVERHEAD_NS,
      zcopyOverheadNs: ZCOPY_TRACKING_NS,
      hostToDevice: speed,
      deviceToHost: speed,
      deviceToDevice: speed,
      hostToHost: speed,
    },
    priority: 0,
    queues,
    deviceAddressBytes: 0,
    ifaceAddressBytes: IB_ADDRESS_BYTES,
    endpointAddressBytes: 0,
    errorHandling: ['remote access', 'peer failure'],
  };
}
