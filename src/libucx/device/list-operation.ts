/** A list of puts or gets over libucp, one operation for each block, and the notification of its end. */

import { entryError } from '../../ucp/api/list/check-list.ts';
import type { FlushedList, ListStart } from '../../ucp/api/list/notify-order.ts';
import type { Request, RequestParams } from '../../ucp/api/request.ts';
import { isUcxError, statusError } from '../../ucs/type/error.ts';
import { Status } from '../../ucs/type/status.ts';
import type { EngineEndpoint, ListPlan } from '../engine/engine.ts';
import type { UcpRequest } from '../request/request.ts';
import { FlushParts, partsOf } from './flush.ts';
import { DeviceOperation, type OperationTracker } from './operation.ts';

/** Blocks of one list in flight: more do not make libucp faster, but take requests from other operations. */
const BLOCKS_IN_FLIGHT_MAX = 256;

/** Its phases: see base/list-request.ts of the native engine. */
const Phase = { MOVE: 0, FLUSH: 1, NOTIFY: 2, SENT: 3 } as const;

/** The operation. */
export class ListOperation extends DeviceOperation implements FlushedList {
  isDue = false;
  listStart: ListStart | undefined = undefined;
  readonly #plan: ListPlan;
  readonly #count: number;
  readonly #flush: FlushParts;
  #phase: (typeof Phase)[keyof typeof Phase] = Phase.MOVE;
  #next = 0;
  #inFlight = 0;

  constructor(tracker: OperationTracker, [endpoint, request]: readonly [EngineEndpoint, UcpRequest], plan: ListPlan) {
    super(tracker, endpoint, request);
    this.#plan = plan;
    this.#count = plan.selected?.length ?? plan.list.blockCount;
    this.#flush = new FlushParts([], partsOf(endpoint), () => this.wake());
    if (plan.notification !== undefined) plan.order.add(this, true);
  }

  onTurn(): void {
    this.isDue = false;
    this.wake();
  }

  protected override advance(): void {
    if (this.#phase === Phase.MOVE && this.#move()) this.#phase = this.#plan.flushes ? Phase.FLUSH : Phase.SENT;
    if (this.#phase === Phase.FLUSH) {
      if (this.failure !== Status.OK) this.#flush.giveUp();
      if (!this.#flush.advance()) return;
      this.#fail(this.#flush.failure);
      this.#phase = this.#plan.notification === undefined ? Phase.SENT : Phase.NOTIFY;
    }
    if (this.#phase === Phase.NOTIFY) this.#notify(this.#plan.notification!);
    if (this.#phase === Phase.SENT && this.#inFlight === 0) this.end();
  }

  protected override end(): void {
    const { order } = this.#plan;
    // The callback may throw, or start a list again.
    const start = order.remove(this);
    try {
      super.end();
    } finally {
      if (start !== undefined) order.release(start);
    }
  }

  /** Starts blocks; true if all have ended. */
  #move(): boolean {
    const { list, selected } = this.#plan;
    while (this.#next < this.#count && this.#inFlight < BLOCKS_IN_FLIGHT_MAX && this.failure === Status.OK) {
      const { local, localOffset, byteLength, rkey, remoteOffset, entry } =
        list.blocks[selected === undefined ? this.#next : selected[this.#next]!]!;
      const ended = (status: Status, error?: unknown): void => this.#fail(status, entry, error);
      const started = this.#start(ended, (params) =>
        list.operation === 'put'
          ? this.endpoint.putNbx(local, localOffset, byteLength, rkey, remoteOffset, params)
          : this.endpoint.getNbx(local, localOffset, byteLength, rkey, remoteOffset, params),
      );
      if (!started) {
        // Operations of others hold all requests.
        if (this.#inFlight === 0) this.wake();
        return false;
      }
      this.#next += 1;
    }
    return this.#inFlight === 0 && (this.#next === this.#count || this.failure !== Status.OK);
  }

  #notify(bytes: Uint8Array): void {
    const { order } = this.#plan;
    if (this.failure === Status.OK && !order.isFirst(this)) {
      this.isDue = true;
      return;
    }
    const isSent =
      this.failure !== Status.OK ||
      this.#start(
        (status, error) => this.#fail(status, undefined, error),
        (params) => this.#plan.notify(bytes, params),
      );
    if (isSent) this.#phase = Phase.SENT;
    else this.wake();
  }

  /** Starts a part and counts it; false if there is no request for it. */
  #start(
    ended: (status: Status, error?: unknown) => void,
    begin: (params: RequestParams) => Status | Request,
  ): boolean {
    const { endpoint } = this;
    const { isFenced } = endpoint;
    // It began before the barriers of later fences: those wait for it.
    endpoint.isFenced = false;
    try {
      const started = begin({
        callback: (part, status) => {
          this.#inFlight -= 1;
          ended(status, part.error);
          part.free();
          this.wake();
        },
      });
      if (started === Status.NO_RESOURCE) return false;
      if (typeof started === 'number') ended(started);
      else this.#inFlight += 1;
    } catch (error) {
      ended(isUcxError(error) ? error.status : Status.IO_ERROR, error);
    } finally {
      endpoint.isFenced = isFenced;
    }
    return true;
  }

  /** Records the first failure. */
  #fail(status: Status, entry?: number, error?: unknown): void {
    if (status >= 0 || this.failure !== Status.OK) return;
    this.failure = status;
    const cause = error ?? statusError(status, this.#plan.list.operation);
    this.request!.error ??= entry === undefined ? cause : entryError(entry, cause);
  }
}
