/**
 * Tag matching: which receive takes which message. Receives and messages wait here in order until they meet; it moves no bytes.
 *
 * A receive matches a message when their tags agree in the bits of its mask; among several the earliest posted receive and the earliest
 * message win. Receives of a full mask and messages are also in buckets by tag, so that neither is searched for among all of them.
 */

import type { Request } from '../core/request.ts';

const BUCKETS = 1024;

/** A message that came before its receive. */
export class UnexpectedMessage {
  readonly tagLow: number;
  readonly tagHigh: number;
  /** Bytes of the whole message. */
  readonly byteLength: number;
  /** What arrived: the message itself, or what its protocol needs to fetch it. */
  readonly content: unknown;
  taken = false;

  constructor(tagLow: number, tagHigh: number, byteLength: number, content: unknown) {
    this.tagLow = tagLow;
    this.tagHigh = tagHigh;
    this.byteLength = byteLength;
    this.content = content;
  }
}

/** A list in order whose items are marked as taken and leave when they come to the front, or when too many have been taken. */
class Lane<T> {
  #items: T[] = [];
  #head = 0;
  #taken = 0;
  readonly #isTaken: (item: T) => boolean;

  constructor(isTaken: (item: T) => boolean) {
    this.#isTaken = isTaken;
  }

  push(item: T): void {
    this.#items.push(item);
  }

  /** Called after one of the items was marked as taken. */
  dropped(): void {
    this.#taken += 1;
    while (this.#head < this.#items.length && this.#isTaken(this.#items[this.#head]!)) {
      this.#head += 1;
      this.#taken -= 1;
    }
    if (this.#head === this.#items.length) {
      this.#items.length = 0;
      this.#head = 0;
    } else if (this.#head > 64 + this.#items.length / 2 || this.#taken > 64 + this.#items.length / 2) {
      this.#items = this.#items.slice(this.#head).filter((item) => !this.#isTaken(item));
      this.#head = 0;
      this.#taken = 0;
    }
  }

  /** The first item that is not taken and for which `test` holds. */
  find(low: number, high: number, maskLow: number, maskHigh: number, test: Match<T>): T | undefined {
    for (let i = this.#head; i < this.#items.length; i++) {
      const item = this.#items[i]!;
      if (!this.#isTaken(item) && test(item, low, high, maskLow, maskHigh)) return item;
    }
    return undefined;
  }

  get isEmpty(): boolean {
    return this.#items.length === 0;
  }

  *[Symbol.iterator](): Iterator<T> {
    for (let i = this.#head; i < this.#items.length; i++) {
      if (!this.#isTaken(this.#items[i]!)) yield this.#items[i]!;
    }
  }
}

type Match<T> = (item: T, low: number, high: number, maskLow: number, maskHigh: number) => boolean;

/** A receive is taken when it has got its message or was cancelled: its place in the order is 0 then. */
const isReceiveTaken = (request: Request): boolean => request.order === 0;
const isMessageTaken = (message: UnexpectedMessage): boolean => message.taken;
/** Whether a posted receive takes a tag. */
const takesTag: Match<Request> = (request, low, high) =>
  ((request.tagLow ^ low) & request.maskLow) === 0 && ((request.tagHigh ^ high) & request.maskHigh) === 0;
/** Whether a message agrees with the tag and mask of a receive. */
const hasTag: Match<UnexpectedMessage> = (message, low, high, maskLow, maskHigh) =>
  ((message.tagLow ^ low) & maskLow) === 0 && ((message.tagHigh ^ high) & maskHigh) === 0;

/** The receives and messages of one worker. */
export class TagMatcher {
  readonly #exact: (Lane<Posted> | undefined)[] = new Array<Lane<Posted> | undefined>(BUCKETS).fill(undefined);
  readonly #wildcard: Lane<Posted> = newPosted();
  readonly #unexpected: (Lane<UnexpectedMessage> | undefined)[] = new Array<Lane<UnexpectedMessage> | undefined>(
    BUCKETS,
  ).fill(undefined);
  readonly #arrived: Lane<UnexpectedMessage> = new Lane(isMessageTaken);
  #order = 0;
  #posted = 0;
  #waiting = 0;

  /** Receives that wait for a message. */
  get posted(): number {
    return this.#posted;
  }

  /** Messages that wait for a receive. */
  get waiting(): number {
    return this.#waiting;
  }

  /** Adds a receive that no message waits for; its tag and mask are set. */
  post(request: Request): void {
    this.#order += 1;
    request.order = this.#order;
    this.#posted += 1;
    this.#laneOf(request).push({ request, order: this.#order });
  }

  /** Takes a receive back; false when it has got its message already. */
  cancel(request: Request): boolean {
    if (request.order === 0) return false;
    this.#take(request);
    return true;
  }

  /** Takes the receive for a message that has arrived; undefined when there is none yet. */
  expected(low: number, high: number): Request | undefined {
    const exact = this.#exact[bucketOf(low, high)]?.find(low, high, 0, 0, postedTakes)?.request;
    const wildcard = this.#wildcard.isEmpty ? undefined : this.#wildcard.find(low, high, 0, 0, postedTakes)?.request;
    const request = exact === undefined || (wildcard !== undefined && wildcard.order < exact.order) ? wildcard : exact;
    if (request !== undefined) this.#take(request);
    return request;
  }

  /** Keeps a message that no receive waits for. */
  keep(message: UnexpectedMessage): void {
    this.#waiting += 1;
    this.#arrived.push(message);
    const bucket = bucketOf(message.tagLow, message.tagHigh);
    this.#unexpected[bucket] ??= new Lane(isMessageTaken);
    this.#unexpected[bucket].push(message);
  }

  /** The first message that agrees; it stays. */
  peek(low: number, high: number, maskLow: number, maskHigh: number): UnexpectedMessage | undefined {
    if (this.#waiting === 0) return undefined;
    const lane = maskLow === -1 && maskHigh === -1 ? this.#unexpected[bucketOf(low, high)] : this.#arrived;
    return lane?.find(low, high, maskLow, maskHigh, hasTag);
  }

  /** Takes a message that {@link peek} found. */
  remove(message: UnexpectedMessage): void {
    message.taken = true;
    this.#waiting -= 1;
    this.#arrived.dropped();
    this.#unexpected[bucketOf(message.tagLow, message.tagHigh)]!.dropped();
  }

  /** Everything that waits, for a worker that closes. */
  drain(): { readonly receives: Request[]; readonly messages: UnexpectedMessage[] } {
    const lanes = [this.#wildcard, ...this.#exact.filter((lane) => lane !== undefined)];
    const receives = lanes.flatMap((lane) => [...lane].map(({ request }) => request));
    const messages = [...this.#arrived];
    for (const request of receives) this.#take(request);
    for (const message of messages) this.remove(message);
    return { receives, messages };
  }

  #take(request: Request): void {
    const lane = this.#laneOf(request);
    request.order = 0;
    this.#posted -= 1;
    lane.dropped();
  }

  #laneOf(request: Request): Lane<Posted> {
    if (request.maskLow !== -1 || request.maskHigh !== -1) return this.#wildcard;
    const bucket = bucketOf(request.tagLow, request.tagHigh);
    this.#exact[bucket] ??= newPosted();
    return this.#exact[bucket];
  }
}

/** A posted receive. The request may have been used anew since: its order tells. */
interface Posted {
  readonly request: Request;
  readonly order: number;
}

const postedTakes: Match<Posted> = ({ request }, low, high) => takesTag(request, low, high, 0, 0);

function newPosted(): Lane<Posted> {
  return new Lane(({ request, order }: Posted) => isReceiveTaken(request) || request.order !== order);
}

function bucketOf(low: number, high: number): number {
  const mixed = Math.imul(low ^ Math.imul(high, 0x9e37_79b1), 0x85eb_ca6b);
  return (mixed >>> 12) & (BUCKETS - 1);
}
