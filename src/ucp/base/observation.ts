/**
 * What a worker tells to those who look on: its ended operations, through the diagnostics channels. While somebody looks on, every operation
 * has a request, also one that could end without.
 */

import { type OperationEnd, operationEnd } from '../../ucs/debug/diagnostics.ts';
import type { Log } from '../../ucs/debug/log.ts';
import type { Clock } from '../../ucs/sys/clock.ts';
import { ProtocolInfo, type ProtocolInfoMode } from '../proto/protocol-info.ts';
import { type Request, RequestKind } from './request.ts';

/** Workers of this process so far: their numbers tell them apart. */
let workers = 0;

/** Whether somebody looks on. */
export function isObserved(): boolean {
  return operationEnd.hasSubscribers;
}

/** What a worker is observed with. */
export interface ObservationOptions {
  readonly clock: Clock;
  readonly log: Log;
  /** See UCX_PROTO_INFO. */
  readonly protocolInfoMode: ProtocolInfoMode;
}

/** The operations of one worker. */
export class Observation {
  /** Prints what is chosen; undefined where nobody wants to see it. */
  readonly info: ProtocolInfo | undefined;
  readonly #clock: Clock;
  readonly #worker: number;

  /** Where the protocols that are used shall be printed, somebody looks on from now on until {@link close}. */
  constructor({ clock, log, protocolInfoMode }: ObservationOptions) {
    this.#clock = clock;
    workers += 1;
    this.#worker = workers;
    this.info = ProtocolInfo.create(protocolInfoMode, log);
    if (this.info?.countsUses === true) operationEnd.subscribe(this.#onEnd);
  }

  /** The worker closes. */
  close(): void {
    operationEnd.unsubscribe(this.#onEnd);
    this.info?.close();
  }

  readonly #onEnd = (event: OperationEnd): void => {
    if (event.worker === this.#worker) this.info!.used(event);
  };

  /** A request of the application starts. */
  started(request: Request): void {
    if (isObserved()) request.startNs = this.#clock.nowNs();
  }

  /** A request that {@link started} has marked has ended. */
  ended(request: Request): void {
    const { protocol, transport, device, status, startNs } = request;
    operationEnd.publish({
      protocol,
      transport,
      device,
      byteLength: bytesOf(request),
      status,
      startNs,
      endNs: this.#clock.nowNs(),
      worker: this.#worker,
    });
  }
}

/** The bytes that a request has moved. */
function bytesOf({ kind, receivedBytes, byteLength }: Request): number {
  if (kind === RequestKind.FLUSH) return 0;
  return kind === RequestKind.RECEIVE ? receivedBytes : byteLength;
}
