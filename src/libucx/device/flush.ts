/**
 * Flush of an endpoint or a worker: the operations on memory of cards in flight, then libucp and the transports of the node. Also the barrier that operations
 * wait for after a fence.
 */

import type { Request, RequestParams } from '../../ucp/api/request.ts';
import { Status } from '../../ucs/type/status.ts';
import type { EngineEndpoint } from '../engine/engine.ts';
import type { UcpRequest } from '../request/request.ts';
import { DeviceOperation, type OperationTracker, type OperationWaiter } from './operation.ts';
import type { Staging } from './staging.ts';

/** Flushes something, such as what libucp has been given. */
type FlushPart = (params: RequestParams) => Status | Request;

/** Several flushes at once. */
class FlushParts {
  /** Of the first one that failed. */
  failure: Status = Status.OK;
  readonly #unstarted: Set<FlushPart>;
  readonly #wake: () => void;
  #inFlight = 0;

  /** @param wake asks for {@link advance} */
  constructor(parts: readonly FlushPart[], wake: () => void) {
    this.#unstarted = new Set(parts);
    this.#wake = wake;
  }

  /** Starts what is not started; true when all have ended. */
  advance(): boolean {
    for (const part of this.#unstarted) this.#start(part);
    return this.#unstarted.size === 0 && this.#inFlight === 0;
  }

  /** Starts no more. */
  giveUp(): void {
    this.#unstarted.clear();
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

/** A flush of an endpoint. */
export class DeviceFlush extends DeviceOperation implements OperationWaiter {
  readonly #parts: FlushParts;
  #awaited: number;

  /** @param request undefined for a barrier */
  constructor(tracker: OperationTracker, endpoint: EngineEndpoint, request: UcpRequest | undefined) {
    const before = tracker.of(endpoint);
    super(tracker, endpoint, request);
    const ofNode: FlushPart = (params) => endpoint.nodeEndpoint?.flushNbx(params) ?? Status.OK;
    this.#parts = new FlushParts([(params) => endpoint.flushUcp(params), ofNode], () => this.wake());
    this.#awaited = before.length;
    for (const operation of before) operation.addWaiter(this);
  }

  operationEnded(): void {
    this.#awaited -= 1;
    if (this.#awaited === 0) this.wake();
  }

  protected override advance(): void {
    if (this.failure !== Status.OK) this.#parts.giveUp();
    else if (this.#awaited > 0) return;
    if (!this.#parts.advance()) return;
    if (this.failure === Status.OK) this.failure = this.#parts.failure;
    this.end();
  }
}

/** A flush of a worker. */
export class WorkerFlush implements OperationWaiter {
  readonly #request: UcpRequest;
  readonly #staging: Staging;
  readonly #parts: FlushParts;
  readonly #onEnd: () => void;
  #awaited = 0;
  #hasEnded = false;

  constructor(tracker: OperationTracker, request: UcpRequest, parts: readonly FlushPart[], onEnd: () => void) {
    this.#request = request;
    this.#staging = tracker.staging;
    this.#onEnd = onEnd;
    this.#parts = new FlushParts(parts, () => this.#wake());
    for (const operation of tracker.endpoints().flatMap((endpoint) => tracker.of(endpoint))) {
      operation.addWaiter(this);
      this.#awaited += 1;
    }
    this.#wake();
  }

  operationEnded(): void {
    this.#awaited -= 1;
    if (this.#awaited === 0) this.#wake();
  }

  #wake(): void {
    this.#staging.schedule(() => this.#advance());
  }

  #advance(): void {
    if (this.#hasEnded || this.#awaited > 0 || !this.#parts.advance()) return;
    this.#hasEnded = true;
    this.#onEnd();
    this.#request.end(this.#parts.failure);
  }
}
