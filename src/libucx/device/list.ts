/** A list of puts or gets over libucp: one operation for each block, then a flush, then a notification. */

import type { Request } from '../../api/contract/request.ts';
import { entryError } from '../../api/list/list.ts';
import type { FlushedList, ListStart } from '../../api/list/notify-order.ts';
import { operationOf } from '../../api/operation/call.ts';
import { Parts } from '../../api/operation/completion.ts';
import type { CopyDone } from '../../api/staging/device-copier.ts';
import { type Slice, TransferMachine, type TransferPort, type Verb } from '../../api/staging/transfer.ts';
import { statusError } from '../../ucs/type/error.ts';
import { Status } from '../../ucs/type/status.ts';
import type { EngineEndpoint, ListPlan } from '../engine/engine.ts';
import { UcpRequest } from '../request/request.ts';
import { DeviceOperation, type OperationTracker, partsOf } from './operation.ts';

/** Blocks in flight per list: more do not increase the throughput of libucp, but take requests from other operations. */
const BLOCKS_IN_FLIGHT_MAX = 256;

type ListVerb = typeof Verb.PUT | typeof Verb.GET;

export class ListOperation extends DeviceOperation implements FlushedList, TransferPort<undefined, ListVerb> {
  declare readonly endpoint: EngineEndpoint;
  declare readonly request: UcpRequest;
  isDue = false;
  listStart: ListStart | undefined = undefined;
  readonly #plan: ListPlan;
  readonly #count: number;
  /** Moves the blocks; each slice is one block. */
  readonly #machine: TransferMachine<undefined, ListVerb>;
  #isNotified = false;
  /** Ends the wait until earlier notifications are sent. */
  #endWait: (() => void) | undefined;

  constructor(tracker: OperationTracker, [endpoint, request]: readonly [EngineEndpoint, UcpRequest], plan: ListPlan) {
    super(tracker, endpoint, request);
    this.#plan = plan;
    this.#count = plan.selected?.length ?? plan.list.blockCount;
    const route = { drain: plan.list.operation, sliceLength: 1, depth: BLOCKS_IN_FLIGHT_MAX };
    this.#machine = new TransferMachine<undefined, ListVerb>(this, route, [0, this.#count]);
    if (plan.notification !== undefined) plan.order.add(this, true);
  }

  onTurn(): void {
    this.isDue = false;
    if (this.#endWait !== undefined) this.staging.schedule(this.#endWait);
  }

  override cancel(): void {
    if (this.#plan.notification !== undefined && !this.#isNotified) this.abort(Status.CANCELED);
  }

  protected override begin(): void {
    // Without blocks, the notification counts as a transfer.
    this.request.transfers = this.#count > 0 ? 0 : 1;
    this.count += 1;
    this.#machine.advance();
  }

  override onComplete(): void {
    const { order } = this.#plan;
    // The callback may throw, or start another list.
    const start = order.remove(this);
    try {
      super.onComplete();
    } finally {
      if (start !== undefined) order.release(start);
    }
  }

  put(slice: Slice<undefined>, done: CopyDone): void {
    this.#moveBlock(slice, done);
  }

  get(slice: Slice<undefined>, done: CopyDone): void {
    this.#moveBlock(slice, done);
  }

  ended(): void {
    this.#flush();
    this.complete(Status.OK);
  }

  protected override onFailed(): void {
    super.onFailed();
    this.#machine.stop(this.failure);
  }

  #moveBlock({ from }: Slice<undefined>, done: CopyDone): void {
    const { list, selected } = this.#plan;
    const block = list.blocks[selected === undefined ? from : selected[from]!]!;
    const hasRequest = this.run(
      (params) => this.endpoint.moveBlock(operationOf(list.operation), block, params),
      (status, error, ended) => {
        this.#countBlock(ended);
        this.#fail(status, error, block.entry);
        done(status, error);
      },
    );
    if (!hasRequest) this.#machine.block();
  }

  /** Counts the transfer of a block unless the native transports moved it. A block that completed in its call was moved by libucp. */
  #countBlock(ended: Request | undefined): void {
    const { request } = this;
    if (!(ended instanceof UcpRequest)) {
      request.transfers += 1;
      return;
    }
    request.transfers += ended.transfers;
    request.nativeBytes += ended.nativeBytes;
  }

  /** Called when all blocks have ended. */
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
    const { notification, notifyId, order } = this.#plan;
    if (this.failure !== Status.OK || notification === undefined) return;
    const send = (): void => {
      this.#isNotified = true;
      this.run(
        (params) => this.endpoint.sendOwn(notifyId, notification, undefined, params),
        (status, error) => this.#fail(status, error),
      );
    };
    this.isDue = !order.isFirst(this);
    if (this.isDue) this.#endWait = this.wait(send);
    else send();
  }

  #fail(status: Status, error: unknown, entry?: number): void {
    if (status >= 0 || this.failure !== Status.OK) return;
    const cause = error ?? statusError(status, this.#plan.list.operation);
    this.fail(status, entry === undefined ? cause : entryError(entry, cause));
  }
}
