/**
 * The request of a list of puts or gets, and of its notification.
 *
 *   MOVE --every block has ended--> FLUSH --all lanes are flushed--> NOTIFY --the notification is sent--> DONE
 *     |                             '----- without a notification -----------------------------------------^
 *     |'----- without flush and notification --------------------------------------------------------------^
 *     '----- the notification is sent behind the blocks ---------------------------------------------------'
 *
 * A failure ends the request in any phase, without a notification. A list can be cancelled until its notification is sent.
 */

import type { FlushedList, ListStart } from '../../../api/list/notify-order.ts';
import { Status } from '../../../ucs/type/status.ts';
import type { Completion } from '../../../uct/api/iface.ts';
import type { Lane } from '../../lane/lanes.ts';
import type { Connection } from '../connection.ts';
import { start } from '../queued.ts';
import { notInitialized, Request, type Starter } from './request.ts';

/** See the diagram above. */
export const ListPhase = { MOVE: 0, FLUSH: 1, NOTIFY: 2, DONE: 3 } as const;
export type ListPhase = (typeof ListPhase)[keyof typeof ListPhase];

/** The blocks of a list, and the state of moving them once. */
export interface ListMove {
  /**
   * Starts the remaining blocks, as far as there are resources.
   * @returns OK if all are started, NO_RESOURCE, or a failure
   */
  start(request: ListRequest, connection: Connection): Status;
  /** Drops the blocks that were not started. */
  drop(): void;
  /** True if lanes carry all blocks that were started, and none is executed by the worker of the peer. */
  readonly isCarried: boolean;
  /** False if any of its memory was detached, shortened or unmapped. */
  readonly isIntact: boolean;
  /** Releases its resources. */
  close(): void;
}

/** A notification. */
export interface Notice {
  readonly bytes: Uint8Array;
  /** AM id of the notification; undefined for notifications of the worker. */
  readonly id: number | undefined;
}

/** The completion of one block in flight. */
export class BlockCompletion implements Completion {
  count = 1;
  failure: Status = Status.OK;
  request: ListRequest | undefined = undefined;
  /** Index of the list entry that contains the block. */
  entry = 0;

  onComplete(): void {
    const { request, entry, failure } = this;
    this.request = undefined;
    request!.blockEnded(this, entry, failure);
  }
}

export class ListRequest extends Request implements FlushedList {
  starter: Starter<ListRequest> = notInitialized;
  /** The next phase to start; the previous one may be in flight. */
  phase: ListPhase = ListPhase.MOVE;
  /** Created at the first start; reset while the request is free. */
  move: ListMove | undefined = undefined;
  /** True if the request ends only when all bytes are in remote memory: always before a notification. */
  flushes = false;
  /** The notification sent at the end; undefined for none. */
  notification: Notice | undefined = undefined;
  /** The request of the notification, while it can still be withdrawn. */
  message: Request | undefined = undefined;
  /** True if its notification waits for those of earlier lists. */
  isDue = false;
  listStart: ListStart | undefined = undefined;
  /** Lanes that were given blocks: they are flushed before the notification. */
  readonly used: Lane[] = [];
  /** Creates the error of a failed block. */
  errorOf: (entry: number, status: Status) => unknown = () => undefined;
  /** Completions of blocks that are not in flight. */
  readonly #spare: BlockCompletion[] = [];

  override begin(connection: Connection | undefined, lane: Lane | undefined): void {
    super.begin(connection, lane);
    this.phase = ListPhase.MOVE;
    this.isDue = false;
    this.message = undefined;
    // Not `length = 0`, which calls into the V8 runtime.
    while (this.used.length > 0) this.used.pop();
    this.abandon = abandonList;
  }

  start(): Status {
    const { connection } = this;
    return connection === undefined ? notInitialized() : this.starter(this, connection);
  }

  /** The completion for a block that is about to start; counted until the block ends. */
  takeCompletion(entry: number): BlockCompletion {
    const completion = this.#spare.pop() ?? new BlockCompletion();
    completion.count = 1;
    completion.failure = Status.OK;
    completion.request = this;
    completion.entry = entry;
    this.count += 1;
    return completion;
  }

  /** Returns the completion of a block that was not started, or that ended in its call. */
  putCompletion(completion: BlockCompletion): void {
    completion.request = undefined;
    this.count -= 1;
    this.#spare.push(completion);
  }

  /** Called when a block has ended. */
  blockEnded(completion: BlockCompletion, entry: number, status: Status): void {
    this.#spare.push(completion);
    if (status < 0) this.fail(entry, status);
    this.complete(status);
  }

  /** Records the first failure, and drops the blocks that were not started. */
  fail(entry: number, status: Status): void {
    if (this.failure !== Status.OK) return;
    this.failure = status;
    this.error ??= this.errorOf(entry, status);
    this.move?.drop();
  }

  /**
   * Drops the blocks and the notification that were not started. The request ends with the last block in flight.
   * @returns true if it has ended
   */
  cancelRest(): boolean {
    const { connection, queued, count } = this;
    if (connection === undefined || this.failure !== Status.OK) return false;
    if (this.message !== undefined) return this.message.cancel();
    const waits = this.isDue || (queued && connection.unqueue(this));
    if (!waits && (this.notification === undefined || this.phase === ListPhase.DONE)) return false;
    this.isDue = false;
    this.failure = Status.CANCELED;
    this.move?.drop();
    // Releases the hold of a phase that is not started, or only partly.
    if (waits) this.complete(Status.CANCELED);
    return waits && count === 1;
  }

  override withdraw(): boolean {
    return this.cancelRest() || super.withdraw();
  }

  /** Called when a phase has ended. */
  override onComplete(): void {
    const { connection } = this;
    if (this.isCompleted || connection === undefined) return;
    if (this.failure !== Status.OK || this.phase === ListPhase.DONE) {
      this.end(this.failure);
      return;
    }
    this.resume(connection);
  }

  /** Continues with the next phase. */
  resume(connection: Connection): void {
    if (connection.failure !== Status.OK) {
      this.end(connection.failure);
      return;
    }
    this.count = 1;
    const status = start(this);
    if (status === Status.NO_RESOURCE) connection.queue(this);
    else if (status !== Status.INPROGRESS) this.end(status);
  }

  override end(outcome: Status): void {
    const { connection } = this;
    // The callback may start the request again.
    const start = connection?.notifications.remove(this);
    super.end(outcome);
    if (start !== undefined) connection?.notifications.release(start);
  }

  onTurn(): void {
    this.isDue = false;
    this.resume(this.connection!);
  }

  protected override holdsMemory(): boolean {
    return this.move?.isIntact !== false;
  }

  protected override dropMemory(): void {
    this.move?.close();
    this.notification = undefined;
  }
}

/** Called when the connection ends while a list waits for resources. Blocks in flight are waited for, because transports use their memory. */
function abandonList(request: Request, status: Status): void {
  if (!(request instanceof ListRequest)) return;
  if (request.failure === Status.OK) request.failure = status;
  request.move?.drop();
  request.complete(status);
}
