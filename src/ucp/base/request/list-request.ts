/**
 * The request of a list of puts or gets, and of its notification.
 *
 *   MOVE --every block has ended--> FLUSH --all lanes are flushed--> NOTIFY --the notification is sent--> DONE
 *     |'---- if neither is wanted -----------^   '----- without a notification -----------------------------^
 *     '----- the notification is sent behind the blocks ---------------------------------------------------'
 *
 * A failure ends the request from every phase, and nothing is sent then. A cancelled list fails, until its notification is sent.
 */

import type { FlushedList, ListStart } from '../../../api/list/notify-order.ts';
import { Status } from '../../../ucs/type/status.ts';
import type { Completion } from '../../../uct/api/iface.ts';
import type { Lane } from '../../lane/lanes.ts';
import type { Connection } from '../connection.ts';
import { start } from '../queued.ts';
import { notInitialized, Request, type Starter } from './request.ts';

/** The phases of a list: see the diagram above. */
export const ListPhase = { MOVE: 0, FLUSH: 1, NOTIFY: 2, DONE: 3 } as const;
export type ListPhase = (typeof ListPhase)[keyof typeof ListPhase];

/** The blocks of a list, and the state of moving them once. */
export interface ListMove {
  /**
   * Starts the blocks that are left, as far as there are resources.
   * @returns OK if all are started, NO_RESOURCE, or a failure
   */
  start(request: ListRequest, connection: Connection): Status;
  /** Drops the blocks that are not started. */
  drop(): void;
  /** Whether lanes carry all blocks that were started: the worker of the peer moves none. */
  readonly isCarried: boolean;
  /** False if any of its memory was detached, shortened or unmapped. */
  readonly isIntact: boolean;
  /** Releases its resources. */
  close(): void;
}

/** A notification. */
export interface Notice {
  readonly bytes: Uint8Array;
  /** Id of active messages that it goes to; undefined for the notifications of the worker. */
  readonly id: number | undefined;
}

/** The completion of one block in flight. */
export class BlockCompletion implements Completion {
  count = 1;
  failure: Status = Status.OK;
  request: ListRequest | undefined = undefined;
  /** Number of the entry of the block. */
  entry = 0;

  onComplete(): void {
    const { request, entry, failure } = this;
    this.request = undefined;
    request!.blockEnded(this, entry, failure);
  }
}

/** A list. */
export class ListRequest extends Request implements FlushedList {
  starter: Starter<ListRequest> = notInitialized;
  /** The phase that is started next: the one before it may be in flight. */
  phase: ListPhase = ListPhase.MOVE;
  /** Made at the first start; it is empty while the request is free. */
  move: ListMove | undefined = undefined;
  /** Whether it ends only when all bytes are in remote memory: always before a notification. */
  flushes = false;
  /** The notification that the peer gets at the end; undefined for a list without one. */
  notification: Notice | undefined = undefined;
  /** The message of the notification, while it can still be withdrawn. */
  message: Request | undefined = undefined;
  /** Whether its notification waits for those before it. */
  isDue = false;
  listStart: ListStart | undefined = undefined;
  /** The lanes that blocks were given to: a notification waits until they are flushed. */
  readonly used: Lane[] = [];
  /** Makes the error of a failed block. */
  errorOf: (entry: number, status: Status) => unknown = () => undefined;
  /** Completions of blocks that are not in flight. */
  readonly #spare: BlockCompletion[] = [];

  override begin(connection: Connection | undefined, lane: Lane | undefined): void {
    super.begin(connection, lane);
    this.phase = ListPhase.MOVE;
    this.isDue = false;
    this.message = undefined;
    // Not `length = 0`, for which V8 calls its runtime.
    while (this.used.length > 0) this.used.pop();
    this.abandon = abandonList;
  }

  start(): Status {
    const { connection } = this;
    return connection === undefined ? notInitialized() : this.starter(this, connection);
  }

  /** The completion of a block that is about to start: counted until it ends. */
  takeCompletion(entry: number): BlockCompletion {
    const completion = this.#spare.pop() ?? new BlockCompletion();
    completion.count = 1;
    completion.failure = Status.OK;
    completion.request = this;
    completion.entry = entry;
    this.count += 1;
    return completion;
  }

  /** Takes back the completion of a block that was not started, or has ended in its call. */
  putCompletion(completion: BlockCompletion): void {
    completion.request = undefined;
    this.count -= 1;
    this.#spare.push(completion);
  }

  /** A block has ended. */
  blockEnded(completion: BlockCompletion, entry: number, status: Status): void {
    this.#spare.push(completion);
    if (status < 0) this.fail(entry, status);
    this.complete(status);
  }

  /** Records the first failure, and drops the blocks that are not started. */
  fail(entry: number, status: Status): void {
    if (this.failure !== Status.OK) return;
    this.failure = status;
    this.error ??= this.errorOf(entry, status);
    this.move?.drop();
  }

  /**
   * Withdraws the blocks and the notification that have not been started; those that were end by themselves, and the request with the last of them.
   * @returns whether it has ended
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
    // The count of a phase that is not started, or was not completely.
    if (waits) this.complete(Status.CANCELED);
    return waits && count === 1;
  }

  override withdraw(): boolean {
    return this.cancelRest() || super.withdraw();
  }

  /** A phase has ended. */
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

/** The connection has ended while a list waited for resources: blocks in flight are waited for, because transports use their memory. */
function abandonList(request: Request, status: Status): void {
  if (!(request instanceof ListRequest)) return;
  if (request.failure === Status.OK) request.failure = status;
  request.move?.drop();
  request.complete(status);
}
