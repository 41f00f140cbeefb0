/** The completion queues and buffers of an interface of ib: opened together or not at all. What goes through them is in iface.ts. */

import type { CompletionChannel, CompletionQueue } from '../../verbs/port.ts';
import type { QueueLimits } from '../api/iface.ts';
import type { RcConfig } from './base/config.ts';
import type { IbPort } from './base/device.ts';
import { CqReader, Opened, SlotMemory } from './base/queues.ts';
import { inlineBytesOf } from './connection/connection.ts';
import { ReceiveQueue } from './connection/receiver.ts';

/** Slots for bytes that are copied before they are sent, for all connections. */
const TX_SLOTS = 512;
/** Completions of sends that the queue can hold: work requests in flight of all connections. */
const SEND_CQE = 16_384;

/** The queues of one interface. */
export class IfaceQueues {
  /** Reports completions of both queues. */
  readonly channel: CompletionChannel;
  readonly sendDepth: number;
  readonly sendCq: CompletionQueue;
  readonly sends: CqReader;
  readonly receiveCq: CompletionQueue;
  readonly receives: CqReader;
  readonly tx: SlotMemory;
  readonly receiver: ReceiveQueue;
  readonly inlineBytes: number;
  readonly limits: QueueLimits;
  readonly #opened: Opened = new Opened();

  /** @throws SyscallError */
  constructor(port: IbPort, rc: RcConfig, segBytes: number) {
    const { device } = port;
    const { maxCqe, maxSrqWr, maxSge, maxMr, maxQpWr } = device.attributes;
    const opened = this.#opened;
    try {
      this.channel = opened.keep(device.context.createCompletionChannel());
      this.sendDepth = Math.min(SEND_CQE, maxCqe);
      this.sendCq = device.context.createCq(this.sendDepth, this.channel);
      this.sends = opened.keep(new CqReader(this.sendCq));
      const receives = Math.min(rc.RX_QUEUE_LEN, maxSrqWr, maxCqe);
      this.receiveCq = device.context.createCq(Math.min(receives * 2, maxCqe), this.channel);
      this.receives = opened.keep(new CqReader(this.receiveCq));
      this.tx = opened.keep(new SlotMemory(device, TX_SLOTS, segBytes));
      this.receiver = opened.keep(new ReceiveQueue(device, receives, segBytes));
      const { sendCq, receiveCq, receiver } = this;
      this.inlineBytes = inlineBytesOf({ port, rc, sendCq, receiveCq, srq: receiver.srq });
      this.limits = {
        sendLength: Math.min(rc.TX_QUEUE_LEN, maxQpWr),
        receiveLength: receives,
        inlineBytes: this.inlineBytes,
        sgeMax: maxSge,
        regionsMax: maxMr,
      };
    } catch (error) {
      opened.close();
      throw error;
    }
  }

  close(): void {
    this.#opened.close();
  }
}
