/**
 * A list of puts or gets over libucp: one operation for each block, then a flush, then the notification of its end. Its arguments were checked by
 * libucx/endpoint/message-endpoint.ts.
 */

import type { Request } from '../../api/contract/request.ts';
import { entryError } from '../../api/list/list.ts';
import type { FlushedList, ListStart } from '../../api/list/notify-order.ts';
import { operationOf } from '../../api/operation/call.ts';
import { Parts } from '../../api/operation/completion.ts';
import { statusError } from '../../ucs/type/error.ts';
import { Status } from '../../ucs/type/status.ts';
import type { EngineEndpoint, ListPlan } from '../engine/engine.ts';
import { UcpRequest } from '../request/request.ts';
import { DeviceOperation, type OperationTracker, partsOf } from './operation.ts';

/** Blocks of one list in flight: more do not make libucp faster, but take requests from other operations. */
const BLOCKS_IN_FLIGHT_MAX = 256;

/** The operation. */
export class ListOperation extends DeviceOperation implements FlushedList {
  declare readonly endpoint: EngineEndpoint;
  declare readonly request: UcpRequest;
  isDue = false;
  listStart: ListStart | undefined = undefined;
  readonly #plan: ListPlan;
  readonly #count: number;
  #next = 0;
  #inFlight = 0;
  #isMoving = false;
  #isNotified = false;
  /** Ends the wait for the turn of the notification. */
  #takeTurn: (() => void) | undefined;

  constructor(tracker: OperationTracker, [endpoint, request]: readonly [EngineEndpoint, UcpRequest], plan: ListPlan) {
    super(tracker, endpoint, request);
    this.#plan = plan;
    this.#count = plan.selected?.length ?? plan.list.blockCount;
    if (plan.notification !== undefined) plan.order.add(this, true);
  }

  onTurn(): void {
    this.isDue = false;
    if (this.#takeTurn !== undefined) this.staging.schedule(this.#takeTurn);
  }

  override cancel(): void {
    if (this.#plan.notification !== undefined && !this.#isNotified) this.abort(Status.CANCELED);
  }

  protected override begin(): void {
    // A list without blocks is a notification.
    this.request.transfers = this.#count > 0 ? 0 : 1;
    this.#move();
  }

  override onComplete(): void {
    const { order } = this.#plan;
    // The callback may throw, or start a list again.
    const start = order.remove(this);
    try {
      super.onComplete();
    } finally {
      if (start !== undefined) order.release(start);
    }
  }

  /** Starts blocks, until none are left, or the worker has no free request. */
  #move(): void {
    // A block that ends in its call comes back here: the loop below starts the next one, without recursion.
    if (this.#isMoving) return;
    this.#isMoving = true;
    while (this.#next < this.#count && this.#inFlight < BLOCKS_IN_FLIGHT_MAX && this.failure === Status.OK) {
      if (!this.#moveNext()) break;
    }
    this.#isMoving = false;
    if (this.#next === this.#count && this.#inFlight === 0) this.#flush();
  }

  /** @returns false if the worker has no free request */
  #moveNext(): boolean {
    const { list, selected } = this.#plan;
    const block = list.blocks[selected === undefined ? this.#next : selected[this.#next]!]!;
    this.#next += 1;
    this.#inFlight += 1;
    return this.run(
      (params) => this.endpoint.moveBlock(operationOf(list.operation), block, params),
      (status, error, ended) => {
        this.#countBlock(ended);
        this.#fail(status, error, block.entry);
        this.#inFlight -= 1;
        this.#move();
      },
    );
  }

  /** Counts the transfer of a block, unless the transports of the node moved it. A block that ended in its call was one of libucp. */
  #countBlock(ended: Request | undefined): void {
    const { request } = this;
    if (!(ended instanceof UcpRequest)) {
      request.transfers += 1;
      return;
    }
    request.transfers += ended.transfers;
    request.nodeBytes += ended.nodeBytes;
  }

  /** Called once all blocks have ended. */
  #flush(): void {
    if (this.failure !== Status.OK || !this.#plan.flushes) return;
    const flushed = new Parts(() => this.#notify());
    for (const part of partsOf(this.endpoint)) {
      const ended = flushed.add();
      this.run(part, (status, error) => {
        this.#fail(status, error);
        ended(status);
      });
    }
    flushed.complete(Status.OK);
  }

  #notify(): void {
    const { notification, notify, order } = this.#plan;
    if (this.failure !== Status.OK || notification === undefined) return;
    const send = (): void => {
      this.#isNotified = true;
      this.run(
        (params) => notify(notification, params),
        (status, error) => this.#fail(status, error),
      );
    };
    this.isDue = !order.isFirst(this);
    if (this.isDue) this.#takeTurn = this.wait(send);
    else send();
  }

  /** Records a failure with its cause. */
  #fail(status: Status, error: unknown, entry?: number): void {
    if (status >= 0 || this.failure !== Status.OK) return;
    const cause = error ?? statusError(status, this.#plan.list.operation);
    this.fail(status, entry === undefined ? cause : entryError(entry, cause));
  }
}
