/**
 * Reports ended operations of a worker to observers through the diagnostics channels, and counts the protocols of one worker for statistics. While a
 * diagnostics channel has subscribers, every operation has a request, even one that could end without it. The interfaces count the bytes that they move.
 */

import { MessageTrace } from '../../api/layout/message.ts';
import { nextWorkerNumber, type OperationEnd, operationEnd } from '../../ucs/debug/diagnostics.ts';
import type { Log } from '../../ucs/debug/log.ts';
import { type Counters, namedCounters, type StatsNode, statsNode } from '../../ucs/stats/stats-node.ts';
import type { Clock } from '../../ucs/sys/clock.ts';
import type { Status } from '../../ucs/type/status.ts';
import { ProtocolInfo, type ProtocolInfoMode } from '../proto/protocol-info.ts';

/** Whether ended operations have subscribers. */
export function isObserved(): boolean {
  return operationEnd.hasSubscribers;
}

export interface ObservationOptions {
  readonly clock: Clock;
  readonly log: Log;
  /** See UCX_PROTO_INFO. */
  readonly protocolInfoMode: ProtocolInfoMode;
}

/** An operation that is observed. */
export interface ObservedOperation {
  readonly protocol: string;
  readonly transport: string | undefined;
  readonly device: string | undefined;
  readonly movedBytes: number;
  readonly status: Status;
  /** Time of its start; -1 if it is not observed. */
  startNs: number;
}

export class Observation {
  /** Protocol printer (UCX_PROTO_INFO); undefined when disabled. */
  readonly info: ProtocolInfo | undefined;
  /** Trace of messages (UCX_LOG_LEVEL=data); undefined when disabled. */
  readonly trace: MessageTrace | undefined;
  /** False for an internal worker, whose operations are parts of those of another worker: neither they nor its connections are reported. */
  isTold = true;
  readonly #clock: Clock;
  readonly #worker: number;

  /** Subscribes until {@link close} if the printer counts uses. */
  constructor({ clock, log, protocolInfoMode }: ObservationOptions) {
    this.#clock = clock;
    this.#worker = nextWorkerNumber();
    this.info = ProtocolInfo.create(protocolInfoMode, log);
    this.trace = MessageTrace.create(log);
    if (this.info?.countsUses === true) operationEnd.subscribe(this.#onEnd);
  }

  /** Called when the worker closes. */
  close(): void {
    operationEnd.unsubscribe(this.#onEnd);
    this.info?.close();
  }

  readonly #onEnd = (event: OperationEnd): void => {
    if (event.worker === this.#worker) this.info?.used(event);
  };

  /** Called when a request of the application starts. */
  started(request: ObservedOperation): void {
    if (isObserved() && this.isTold) request.startNs = this.#clock.nowNs();
  }

  /** Called when a request has ended that {@link started} has marked. */
  ended(request: ObservedOperation): void {
    const { protocol, transport, device, status, startNs } = request;
    operationEnd.publish({
      protocol,
      transport,
      device,
      byteLength: request.movedBytes,
      status,
      startNs,
      endNs: this.#clock.nowNs(),
      worker: this.#worker,
    });
  }
}

/** Names by index; those of UCX (ucp_ep, ucp_worker) where UCX has the same counter. */
const NAMES = [
  'tx_eager',
  'tx_eager_sync',
  'tx_rndv',
  'tag_rx_eager_exp',
  'tag_rx_eager_unexp',
  'tag_rx_rndv_exp',
  'tag_rx_rndv_unexp',
  'rndv_get_zcopy',
  'rndv_put_zcopy',
  'rndv_put_mtype_zcopy',
  'rndv_am',
  'rndv_rtr',
  'rndv_rtr_mtype',
  'am_tx',
  'am_tx_rndv',
  'am_rx',
  'am_rx_rndv',
  'stream_tx',
  'stream_rx',
  'atomic_sw',
  'requests',
  'tx_no_credit',
  'tx_no_credit_rndv',
  'tag_rx',
] as const;

/** Indices of the counters. */
export const WorkerCounter = {
  /** Tagged messages sent eagerly; synchronous ones, which wait for their match; and those sent by rendezvous. */
  TX_EAGER: 0,
  TX_EAGER_SYNC: 1,
  TX_RNDV: 2,
  /** Tagged messages that matched a posted receive, and unexpected ones. */
  TAG_RX_EAGER_EXP: 3,
  TAG_RX_EAGER_UNEXP: 4,
  TAG_RX_RNDV_EXP: 5,
  TAG_RX_RNDV_UNEXP: 6,
  /**
   * Rendezvous whose data this worker has read from the sender, written to the receiver at once, written in windows (as between fragments), or received in
   * messages.
   */
  RNDV_GET_ZCOPY: 7,
  RNDV_PUT_ZCOPY: 8,
  RNDV_PUT_MTYPE_ZCOPY: 9,
  RNDV_AM: 10,
  /** Windows requested from senders: into local memory, and into fragments for device memory. */
  RNDV_RTR: 11,
  RNDV_RTR_MTYPE: 12,
  /** Active messages: sent, sent by rendezvous, received, received by rendezvous. Notifications are not counted. */
  AM_TX: 13,
  AM_TX_RNDV: 14,
  AM_RX: 15,
  AM_RX_RNDV: 16,
  STREAM_TX: 17,
  STREAM_RX: 18,
  /** Atomic operations executed for peers. */
  ATOMIC_SW: 19,
  /** Requests started: operations that did not end in their call, or whose request was wanted. */
  REQUESTS: 20,
  /** How often the credit of a peer was used up, and how many messages were offered for lack of credit. */
  TX_NO_CREDIT: 21,
  TX_NO_CREDIT_RNDV: 22,
  /** Tagged messages that the program has received, or that were too long for its receive. */
  TAG_RX: 23,
} as const;
export type WorkerCounter = (typeof WorkerCounter)[keyof typeof WorkerCounter];

/** Counters in an array of Numbers, so that counting never allocates. */
export class WorkerCounters {
  readonly #values: Float64Array = new Float64Array(NAMES.length);

  count(counter: WorkerCounter): void {
    this.#values[counter]! += 1;
  }

  /**
   * The counters as a statistics node, above those of the interfaces.
   * @param levels current values of the worker
   */
  node(levels: Counters, ifaces: readonly { stats(): StatsNode }[]): StatsNode {
    const counters = { ...namedCounters(NAMES, this.#values), ...levels };
    const sum = (...summands: readonly WorkerCounter[]): number =>
      summands.reduce<number>((total, counter) => total + this.#values[counter]!, 0);
    const { TX_EAGER, TX_EAGER_SYNC, TX_RNDV } = WorkerCounter;
    counters['tag_tx'] = sum(TX_EAGER, TX_EAGER_SYNC, TX_RNDV);
    counters['am_tx'] = sum(WorkerCounter.AM_TX, WorkerCounter.AM_TX_RNDV);
    counters['am_rx'] = sum(WorkerCounter.AM_RX, WorkerCounter.AM_RX_RNDV);
    return statsNode(
      'ucp_worker',
      '',
      counters,
      ifaces.map((iface) => iface.stats()),
    );
  }
}
