/**
 * Flush of an endpoint or a worker: the operations on memory of cards in flight, then libucp and the transports of the node. Also the barrier for operations
 * after a fence.
 */

import type { Request, RequestParams } from '../../ucp/api/request.ts';
import { Status } from '../../ucs/type/status.ts';
import type { EngineEndpoint } from '../engine/engine.ts';
import type { UcpRequest } from '../request/request.ts';
import { DeviceOperation, type OperationTracker, type OperationWaiter } from './operation.ts';
import type { Staging } from './staged/staging.ts';

/** Flushes one part, such as the operations given to libucp. */
type FlushPart = (params: RequestParams) => Status | Request;

/** Waits for the operations in flight, then runs several flushes at once. */
export class FlushParts implements OperationWaiter {
  /** Status of the first flush that failed. */
  failure: Status = Status.OK;
  readonly #unstarted: Set<FlushPart>;
  readonly #wake: () => void;
  #awaited: number;
  #inFlight = 0;

  /**
   * @param before operations to wait for first
   * @param wake schedules {@link advance}
   */
  constructor(before: readonly DeviceOperation[], parts: readonly FlushPart[], wake: () => void) {
    this.#unstarted = new Set(parts);
    this.#wake = wake;
    this.#awaited = before.length;
    for (const operation of before) operation.addWaiter(this);
  }

  operationEnded(): void {
    this.#awaited -= 1;
    if (this.#awaited === 0) this.#wake();
  }

  /** Starts pending flushes; returns true if all have ended. */
  advance(): boolean {
    if (this.#awaited > 0) return false;
    for (const part of this.#unstarted) this.#start(part);
    return this.#unstarted.size === 0 && this.#inFlight === 0;
  }

  /** Starts no more flushes, and waits for no other operation. */
  giveUp(): void {
    this.#unstarted.clear();
    this.#awaited = 0;
  }

  #start(part: FlushPart): void {
    const status = part({
      callback: (ended, final) => {
        ended.free();
        this.#inFlight -= 1;
        this.#take(final);
        this.#wake();
      },
    });
    if (status === Status.NO_RESOURCE) {
      this.#wake();
      return;
    }
    this.#unstarted.delete(part);
    if (typeof status === 'number') this.#take(status);
    else this.#inFlight += 1;
  }

  #take(status: Status): void {
    if (status < 0 && this.failure === Status.OK) this.failure = status;
  }
}

/** The flushes of what an endpoint has given to libucp and to the transports of the node. */
export function partsOf(endpoint: EngineEndpoint): readonly FlushPart[] {
  return [
    (params) => endpoint.flushUcp(params),
    (params) => (endpoint.hasNodeEndpoint ? endpoint.nodeEndpoint!.flushNbx(params) : Status.OK),
  ];
}

/** A flush of an endpoint. */
export class DeviceFlush extends DeviceOperation {
  readonly #parts: FlushParts;

  /** @param request undefined for a barrier */
  constructor(tracker: OperationTracker, endpoint: EngineEndpoint, request: UcpRequest | undefined) {
    const before = tracker.of(endpoint);
    super(tracker, endpoint, request);
    this.#parts = new FlushParts(before, partsOf(endpoint), () => this.wake());
  }

  protected override advance(): void {
    if (this.failure !== Status.OK) this.#parts.giveUp();
    if (!this.#parts.advance()) return;
    if (this.failure === Status.OK) this.failure = this.#parts.failure;
    this.end();
  }
}

/** A flush of a worker. */
export class WorkerFlush {
  readonly #request: UcpRequest;
  readonly #staging: Staging;
  readonly #parts: FlushParts;
  readonly #onEnd: () => void;
  #hasEnded = false;

  constructor(tracker: OperationTracker, request: UcpRequest, parts: readonly FlushPart[], onEnd: () => void) {
    this.#request = request;
    this.#staging = tracker.staging;
    this.#onEnd = onEnd;
    const before = tracker.endpoints().flatMap((endpoint) => tracker.of(endpoint));
    this.#parts = new FlushParts(before, parts, () => this.#wake());
    this.#wake();
  }

  #wake(): void {
    this.#staging.schedule(() => this.#advance());
  }

  #advance(): void {
    if (this.#hasEnded || !this.#parts.advance()) return;
    this.#hasEnded = true;
    this.#onEnd();
    this.#request.end(this.#parts.failure);
  }
}
