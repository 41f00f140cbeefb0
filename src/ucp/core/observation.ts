/**
 * What a worker tells to those who look on: its ended operations, through the diagnostics channels. While somebody looks on, every operation
 * has a request, also one that could end without.
 */

import type { Clock } from '../../ucs/clock.ts';
import { operationEnd } from '../../ucs/diagnostics.ts';
import { type Request, RequestKind } from './request.ts';

/** Workers of this process so far: their numbers tell them apart. */
let workers = 0;

/** Whether somebody looks on. */
export function isObserved(): boolean {
  return operationEnd.hasSubscribers;
}

/** The operations of one worker. */
export class Observation {
  readonly #clock: Clock;
  readonly #worker: number;

  constructor(clock: Clock) {
    this.#clock = clock;
    workers += 1;
    this.#worker = workers;
  }

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
