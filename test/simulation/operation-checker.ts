/**
 * The checker of all started operations: every operation ends once, with a status that the events of the schedule permit. It does not know what the
 * operations do.
 */

import type { Request, RequestParams } from '../../src/api/contract/request.ts';
import type { Random } from '../../src/ucs/sys/random.ts';
import { isUcxError } from '../../src/ucs/type/error.ts';
import { Status, statusName } from '../../src/ucs/type/status.ts';
import type { Actor } from './actor.ts';
import type { End } from './link.ts';

/** Starts an operation; without parameters, no callback is needed. */
export type Start = (params: RequestParams | undefined) => Status | Request;

/** Properties of an operation before it starts. */
export interface EntryOptions {
  readonly name: string;
  readonly actor: Actor;
  /** The end on which it runs; undefined for receives from any end. */
  readonly end?: End | undefined;
  /** Statuses besides those that its end permits. */
  readonly excuses?: (status: Status) => boolean;
  /** The caller needs the request when it ends, also if that is at once. */
  readonly needsRequest?: boolean;
  /** The caller must be called at once, because the order of ends matters. */
  readonly isOrdered?: boolean;
  /** The peer may be asked to forget it, after which it may end with CANCELED. */
  readonly isWithdrawable?: boolean;
  readonly onEnd: (status: Status, request: Request | undefined) => void;
}

/** An operation. */
export class Entry {
  readonly id: number;
  readonly options: EntryOptions;
  readonly startedNs: number;
  request: Request | undefined = undefined;
  status: Status | undefined = undefined;
  wasCancelled = false;
  /** It may still be cancelled by its peer. */
  mayBeWithdrawn = false;
  isPolled = false;
  keepsRequest = false;

  constructor(id: number, options: EntryOptions, startedNs: number) {
    this.id = id;
    this.options = options;
    this.startedNs = startedNs;
  }

  toString(): string {
    return `#${this.id} ${this.options.name}`;
  }
}

/** The user of the checker. */
export interface CheckerOwner {
  readonly random: Random;
  nowNs(): number;
  note(event: string): void;
  fail(reason: string): void;
}

/** The checker of the operations of one schedule. */
export class OperationChecker {
  readonly open: Set<Entry> = new Set();
  readonly #owner: CheckerOwner;
  readonly #kept: { readonly request: Request; readonly actor: Actor }[] = [];
  /** Time at which the last of them ended, or the last message or notification arrived. */
  lastEndNs = 0;
  #count = 0;

  constructor(owner: CheckerOwner) {
    this.#owner = owner;
  }

  /** Starts an operation. */
  start(options: EntryOptions, run: Start): Entry {
    const { random } = this.#owner;
    const entry = new Entry(++this.#count, options, this.#owner.nowNs());
    const style = random.below(4);
    entry.isPolled = style === 0 && options.isOrdered !== true;
    entry.keepsRequest = style === 1;
    const needsRequest = options.needsRequest === true || random.below(6) === 0;
    this.#owner.note(`${this.#owner.nowNs()} ${options.actor} starts ${entry}`);
    this.open.add(entry);
    options.end?.open.add(entry);
    let result: Status | Request;
    try {
      result = run(this.#paramsOf(entry, needsRequest));
    } catch (error) {
      if (!isUcxError(error)) throw error;
      this.#owner.note(`${entry} is refused: ${error.code}`);
      this.#settle(entry, error.status, undefined);
      return entry;
    }
    if (typeof result !== 'number') {
      if (entry.status === undefined || entry.isPolled) entry.request = result;
    } else if (entry.status !== undefined && needsRequest) {
      // The callback was called and the request freed inside the call.
    } else if (result === Status.INPROGRESS || result === Status.NO_RESOURCE) {
      this.#owner.fail(`${entry} returned ${statusName(result)}`);
    } else if (needsRequest && options.needsRequest === true && result === Status.OK) {
      this.#owner.fail(`${entry} returned no request`);
    } else this.#settle(entry, result, undefined);
    return entry;
  }

  /** Polls requests without a callback, and frees ended ones. */
  poll(): void {
    for (const entry of this.open) {
      const { request } = entry;
      if (!entry.isPolled || request === undefined || !request.isCompleted || entry.options.actor.host.isDead) continue;
      this.#settle(entry, request.status, request);
      request.free();
    }
    for (const { request, actor } of this.#kept.splice(0)) if (!actor.host.isDead) request.free();
  }

  /** Cancels an operation. */
  cancel(entry: Entry): boolean {
    const { request } = entry;
    if (request === undefined || entry.status !== undefined || request.isCompleted) return false;
    entry.wasCancelled = true;
    const wasTaken = request.cancel();
    this.#owner.note(`${this.#owner.nowNs()} cancel ${entry}: ${wasTaken}`);
    if (!wasTaken) {
      entry.wasCancelled = false;
      entry.mayBeWithdrawn = entry.options.isWithdrawable === true;
    }
    if (wasTaken && request.status !== Status.CANCELED && entry.status !== Status.CANCELED) {
      this.#owner.fail(`${entry} was cancelled and has status ${statusName(request.status)}`);
    }
    return wasTaken;
  }

  /** The host of an actor is dead: its operations never end. */
  forget(actor: Actor): void {
    for (const entry of this.open) {
      if (entry.options.actor.host !== actor.host) continue;
      this.open.delete(entry);
      entry.options.end?.open.delete(entry);
    }
  }

  #paramsOf(entry: Entry, needsRequest: boolean): RequestParams | undefined {
    if (entry.isPolled) return needsRequest ? { noImmediateCompletion: true } : undefined;
    const callback = (request: Request, status: Status): void => {
      if (request.userData !== entry) this.#owner.fail(`the callback of ${entry} got another request`);
      if (request.status !== status) this.#owner.fail(`the callback of ${entry} got ${status}, not ${request.status}`);
      this.#settle(entry, status, request);
      if (entry.keepsRequest) this.#kept.push({ request, actor: entry.options.actor });
      else request.free();
    };
    return { callback, userData: entry, ...(needsRequest ? { noImmediateCompletion: true } : {}) };
  }

  #settle(entry: Entry, status: Status, request: Request | undefined): void {
    const { actor, end, onEnd } = entry.options;
    if (actor.host.isDead) return;
    this.#owner.note(`${this.#owner.nowNs()} ${actor} ends ${entry}: ${statusName(status)}`);
    if (entry.status !== undefined) {
      this.#owner.fail(`${entry} ended twice: ${statusName(entry.status)}, then ${statusName(status)}`);
      return;
    }
    entry.status = status;
    this.lastEndNs = this.#owner.nowNs();
    this.open.delete(entry);
    end?.open.delete(entry);
    if (!isExcused(entry, status)) this.#owner.fail(`${entry} ended with ${statusName(status)}`);
    onEnd(status, request);
  }
}

function isExcused(entry: Entry, status: Status): boolean {
  const { actor, end, excuses } = entry.options;
  switch (status) {
    case Status.OK:
      return true;
    case Status.CANCELED:
      if (entry.wasCancelled || entry.mayBeWithdrawn || actor.isClosing || end?.isClosing === true) return true;
      return end?.mayBreak === true || excuses?.(status) === true;
    case Status.INVALID_ADDR:
      // A peer that cancels an operation unmaps its memory, which may be detected later.
      return end?.hasStale === true || end?.mayBreak === true || excuses?.(status) === true;
    case Status.CONNECTION_RESET:
    case Status.ENDPOINT_TIMEOUT:
      return end?.mayBreak === true || excuses?.(status) === true;
    default:
      return excuses?.(status) === true;
  }
}
