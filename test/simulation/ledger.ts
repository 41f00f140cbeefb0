/**
 * Everything that was started and how it ended: every operation ends once, and with a status that what has happened to it excuses. What the operations are is
 * the business of those who start them.
 */

import type { Request, RequestParams } from '../../src/ucp/api/request.ts';
import type { Random } from '../../src/ucs/sys/random.ts';
import { isUcxError } from '../../src/ucs/type/error.ts';
import { Status, statusName } from '../../src/ucs/type/status.ts';
import type { End } from './link.ts';
import type { Player } from './player.ts';

/** How an operation is started; without parameters where nobody wants to be told. */
export type Start = (params: RequestParams | undefined) => Status | Request;

/** What is known of an operation before it starts. */
export interface EntryOptions {
  readonly name: string;
  readonly player: Player;
  /** Where it runs; undefined for what may come from anybody. */
  readonly end?: End | undefined;
  /** Statuses beside those that its end excuses. */
  readonly excuses?: (status: Status) => boolean;
  /** Whoever starts it needs the request when it ends, also when that is at once. */
  readonly needsRequest?: boolean;
  /** Whoever starts it must be told at once: the order of ends counts. */
  readonly isOrdered?: boolean;
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

/** What the ledger writes to. */
export interface LedgerOwner {
  readonly random: Random;
  nowNs(): number;
  note(event: string): void;
  fail(reason: string): void;
}

/** The operations of one schedule. */
export class Ledger {
  readonly open: Set<Entry> = new Set();
  readonly #owner: LedgerOwner;
  readonly #kept: { readonly request: Request; readonly player: Player }[] = [];
  /** When the last of them ended. */
  lastEndNs = 0;
  #count = 0;

  constructor(owner: LedgerOwner) {
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
    this.#owner.note(`${this.#owner.nowNs()} ${options.player} starts ${entry}`);
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
      // Told inside the call, and given back there.
    } else if (result === Status.INPROGRESS || result === Status.NO_RESOURCE) {
      this.#owner.fail(`${entry} returned ${statusName(result)}`);
    } else if (needsRequest && options.needsRequest === true && result === Status.OK) {
      this.#owner.fail(`${entry} returned no request`);
    } else this.#settle(entry, result, undefined);
    return entry;
  }

  /** Looks at the requests of those who were not to be told, and gives back those that were kept. */
  poll(): void {
    for (const entry of this.open) {
      const { request } = entry;
      if (!entry.isPolled || request === undefined || !request.isCompleted || entry.options.player.host.isDead)
        continue;
      this.#settle(entry, request.status, request);
      request.free();
    }
    for (const { request, player } of this.#kept.splice(0)) if (!player.host.isDead) request.free();
  }

  /** Asks for the end of an operation. */
  cancel(entry: Entry): boolean {
    const { request } = entry;
    if (request === undefined || entry.status !== undefined || request.isCompleted) return false;
    entry.wasCancelled = true;
    const wasTaken = request.cancel();
    this.#owner.note(`${this.#owner.nowNs()} cancel ${entry}: ${wasTaken}`);
    if (!wasTaken) entry.wasCancelled = false;
    else if (request.status !== Status.CANCELED && entry.status !== Status.CANCELED) {
      this.#owner.fail(`${entry} was cancelled and has status ${statusName(request.status)}`);
    }
    return wasTaken;
  }

  /** A player is dead: what it has started never ends. */
  forget(player: Player): void {
    for (const entry of this.open) {
      if (entry.options.player.host !== player.host) continue;
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
      if (entry.keepsRequest) this.#kept.push({ request, player: entry.options.player });
      else request.free();
    };
    return { callback, userData: entry, ...(needsRequest ? { noImmediateCompletion: true } : {}) };
  }

  #settle(entry: Entry, status: Status, request: Request | undefined): void {
    const { player, end, onEnd } = entry.options;
    if (player.host.isDead) return;
    this.#owner.note(`${this.#owner.nowNs()} ${player} ends ${entry}: ${statusName(status)}`);
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
  const { player, end, excuses } = entry.options;
  switch (status) {
    case Status.OK:
      return true;
    case Status.CANCELED:
      if (entry.wasCancelled || player.isClosing || end?.isClosing === true) return true;
      return end?.mayBreak === true || excuses?.(status) === true;
    case Status.INVALID_ADDR:
      // A peer that gives up takes its memory with it, and may tell of that later.
      return end?.hasStale === true || end?.mayBreak === true || excuses?.(status) === true;
    case Status.CONNECTION_RESET:
    case Status.ENDPOINT_TIMEOUT:
      return end?.mayBreak === true || excuses?.(status) === true;
    default:
      return excuses?.(status) === true;
  }
}
