/**
 * Reports the ended operations of a worker to observers, through the diagnostics channels. While a channel has subscribers, every operation has a
 * request, even one that could end without it.
 */

import { MessageTrace } from '../../api/layout/message.ts';
import { nextWorkerNumber, type OperationEnd, operationEnd } from '../../ucs/debug/diagnostics.ts';
import type { Log } from '../../ucs/debug/log.ts';
import type { Clock } from '../../ucs/sys/clock.ts';
import { ProtocolInfo, type ProtocolInfoMode } from '../proto/protocol-info.ts';
import type { Request } from './request/request.ts';

/** Whether ended operations have subscribers. */
export function isObserved(): boolean {
  return operationEnd.hasSubscribers;
}

/** Parameters of observing a worker. */
export interface ObservationOptions {
  readonly clock: Clock;
  readonly log: Log;
  /** See UCX_PROTO_INFO. */
  readonly protocolInfoMode: ProtocolInfoMode;
}

/** The operations of one worker. */
export class Observation {
  /** Protocol printer (UCX_PROTO_INFO); undefined when disabled. */
  readonly info: ProtocolInfo | undefined;
  /** Trace of messages (UCX_LOG_LEVEL=data); undefined when disabled. */
  readonly trace: MessageTrace | undefined;
  /** False for a worker whose operations are parts of those of another: neither they nor its connections are reported. */
  isTold = true;
  readonly #clock: Clock;
  readonly #worker: number;

  /** Subscribes until {@link close}, if the printer counts uses. */
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

  /** A request of the application starts. */
  started(request: Request): void {
    if (isObserved() && this.isTold) request.startNs = this.#clock.nowNs();
  }

  /** A request that {@link started} has marked has ended. */
  ended(request: Request): void {
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
