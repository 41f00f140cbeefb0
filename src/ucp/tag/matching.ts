/**
 * Tag matching: which receive takes which message. Receives and messages wait in order until they match.
 *
 * A receive matches a message if their tags agree in the bits of its mask; the earliest posted receive and the earliest message have precedence. Receives
 * with a full mask and messages are also in buckets by tag, so that matching them does not search all of them.
 */

import type { ReceiveRequest } from '../base/request/operation-requests.ts';
import type { InboundWindow } from '../credit/credit.ts';

const BUCKETS = 1024;

/** Posted receives in order: an intrusive list. */
class PostedList {
  first: ReceiveRequest | undefined = undefined;
  #last: ReceiveRequest | undefined = undefined;

  push(request: ReceiveRequest): void {
    request.matchPrevious = this.#last;
    request.matchNext = undefined;
    if (this.#last === undefined) this.first = request;
    else this.#last.matchNext = request;
    this.#last = request;
  }

  remove(request: ReceiveRequest): void {
    const { matchPrevious: previous, matchNext: next } = request;
    if (previous === undefined) this.first = next;
    else previous.matchNext = next;
    if (next === undefined) this.#last = previous;
    else next.matchPrevious = previous;
    request.matchPrevious = undefined;
    request.matchNext = undefined;
  }

  /** The first receive that matches a tag. */
  find(low: number, high: number): ReceiveRequest | undefined {
    for (let request = this.first; request !== undefined; request = request.matchNext) {
      const differs = ((request.tagLow ^ low) & request.maskLow) | ((request.tagHigh ^ high) & request.maskHigh);
      if (differs === 0) return request;
    }
    return undefined;
  }
}

/** The receives and messages of one worker; `C` is the content of its messages. */
export class TagMatcher<C = unknown> {
  readonly #exact: PostedList[] = Array.from({ length: BUCKETS }, () => new PostedList());
  readonly #wildcard: PostedList = new PostedList();
  readonly #unexpected: UnexpectedList<C> = new UnexpectedList(BUCKETS);
  #order = 0;
  #posted = 0;

  /** Number of receives that wait for a message. */
  get posted(): number {
    return this.#posted;
  }

  /** Number of messages that wait for a receive. */
  get waiting(): number {
    return this.#unexpected.length;
  }

  /** Memory of those messages in bytes. */
  get heldBytes(): number {
    return this.#unexpected.heldBytes;
  }

  /** The first messages that wait for a receive, at most `countMax`. */
  firstWaiting(countMax: number): UnexpectedMessage<C>[] {
    return this.#unexpected.all(countMax);
  }

  /** Adds a receive that no waiting message matches; its tag and mask are set. */
  post(request: ReceiveRequest): void {
    this.#order += 1;
    request.order = this.#order;
    this.#posted += 1;
    this.#listOf(request).push(request);
  }

  /** Removes a receive; false if it already has its message. */
  cancel(request: ReceiveRequest): boolean {
    if (request.order === 0) return false;
    this.#take(request);
    return true;
  }

  /** Removes and returns the receive that matches an arrived message; undefined if none does yet. */
  expected(low: number, high: number): ReceiveRequest | undefined {
    if (this.#posted === 0) return undefined;
    let request = this.#exact[bucketOf(low, high)]!.find(low, high);
    if (this.#wildcard.first !== undefined) {
      const wildcard = this.#wildcard.find(low, high);
      if (wildcard !== undefined && (request === undefined || wildcard.order < request.order)) request = wildcard;
    }
    if (request !== undefined) this.#take(request);
    return request;
  }

  /** Keeps a message that no receive matches. */
  keep(message: UnexpectedMessage<C>): void {
    this.#unexpected.push(message, bucketOf(message.tagLow, message.tagHigh));
  }

  /** The first message that matches, without removing it. */
  peek(low: number, high: number, maskLow: number, maskHigh: number): UnexpectedMessage<C> | undefined {
    if (this.#unexpected.length === 0) return undefined;
    if (maskLow === -1 && maskHigh === -1) return this.#unexpected.findExact(low, high, bucketOf(low, high));
    return this.#unexpected.find(low, high, maskLow, maskHigh);
  }

  /** The first message that a function accepts, without removing it. */
  find(accepts: (message: UnexpectedMessage<C>) => boolean): UnexpectedMessage<C> | undefined {
    return this.#unexpected.first(accepts);
  }

  /** Removes a message that {@link peek} found, and returns its credit to the sender's window. */
  remove(message: UnexpectedMessage<C>): void {
    this.#unexpected.remove(message, bucketOf(message.tagLow, message.tagHigh));
    if (message.cost > 0) message.window.release(message.cost);
    else message.window.releaseOffer();
  }

  /** Removes and returns all receives and messages, for a worker that closes. */
  drain(): { readonly receives: ReceiveRequest[]; readonly messages: UnexpectedMessage<C>[] } {
    const receives: ReceiveRequest[] = [];
    for (const list of [this.#wildcard, ...this.#exact]) {
      for (let request = list.first; request !== undefined; request = list.first) {
        this.#take(request);
        receives.push(request);
      }
    }
    const messages = this.#unexpected.all();
    for (const message of messages) this.remove(message);
    return { receives, messages };
  }

  #take(request: ReceiveRequest): void {
    this.#listOf(request).remove(request);
    request.order = 0;
    this.#posted -= 1;
  }

  #listOf(request: ReceiveRequest): PostedList {
    if (request.maskLow !== -1 || request.maskHigh !== -1) return this.#wildcard;
    return this.#exact[bucketOf(request.tagLow, request.tagHigh)]!;
  }
}

function bucketOf(low: number, high: number): number {
  const mixed = Math.imul(low ^ Math.imul(high, 0x9e37_79b1), 0x85eb_ca6b);
  return (mixed >>> 12) & (BUCKETS - 1);
}

/* Unexpected messages: in the order of arrival, and in buckets by tag. matching.ts decides which receive gets them. */

/** See the fields of UnexpectedMessage. */
export type UnexpectedFields<C> = Pick<
  UnexpectedMessage<C>,
  'tagLow' | 'tagHigh' | 'byteLength' | 'content' | 'heldBytes' | 'window' | 'cost'
>;

/** A message that arrived before its receive; `C` is the type of its content. */
export class UnexpectedMessage<C> {
  readonly tagLow: number;
  readonly tagHigh: number;
  /** Length of the whole message. */
  readonly byteLength: number;
  /** The message itself, or the data that its protocol needs to fetch it. */
  readonly content: C;
  /** Bytes kept here: all of an eager message, the key of an offer. */
  readonly heldBytes: number;
  /** The window of the sender, and the bytes of it that the message uses; 0 for an offer. */
  readonly window: InboundWindow;
  readonly cost: number;
  /** Neighbours in the list of all messages, and in the bucket. */
  previous: UnexpectedMessage<C> | undefined = undefined;
  next: UnexpectedMessage<C> | undefined = undefined;
  previousInBucket: UnexpectedMessage<C> | undefined = undefined;
  nextInBucket: UnexpectedMessage<C> | undefined = undefined;

  constructor(fields: UnexpectedFields<C>) {
    this.tagLow = fields.tagLow;
    this.tagHigh = fields.tagHigh;
    this.byteLength = fields.byteLength;
    this.content = fields.content;
    this.heldBytes = fields.heldBytes;
    this.window = fields.window;
    this.cost = fields.cost;
  }
}

class UnexpectedList<C> {
  #first: UnexpectedMessage<C> | undefined = undefined;
  #last: UnexpectedMessage<C> | undefined = undefined;
  readonly #firstOf: (UnexpectedMessage<C> | undefined)[];
  readonly #lastOf: (UnexpectedMessage<C> | undefined)[];
  #length = 0;
  #heldBytes = 0;

  constructor(buckets: number) {
    this.#firstOf = new Array<UnexpectedMessage<C> | undefined>(buckets).fill(undefined);
    this.#lastOf = new Array<UnexpectedMessage<C> | undefined>(buckets).fill(undefined);
  }

  get length(): number {
    return this.#length;
  }

  /** Memory of the messages in bytes. */
  get heldBytes(): number {
    return this.#heldBytes;
  }

  push(message: UnexpectedMessage<C>, bucket: number): void {
    this.#length += 1;
    this.#heldBytes += message.heldBytes;
    message.previous = this.#last;
    if (this.#last === undefined) this.#first = message;
    else this.#last.next = message;
    this.#last = message;
    const last = this.#lastOf[bucket];
    message.previousInBucket = last;
    if (last === undefined) this.#firstOf[bucket] = message;
    else last.nextInBucket = message;
    this.#lastOf[bucket] = message;
  }

  remove(message: UnexpectedMessage<C>, bucket: number): void {
    this.#length -= 1;
    this.#heldBytes -= message.heldBytes;
    const { previous, next, previousInBucket, nextInBucket } = message;
    if (previous === undefined) this.#first = next;
    else previous.next = next;
    if (next === undefined) this.#last = previous;
    else next.previous = previous;
    if (previousInBucket === undefined) this.#firstOf[bucket] = nextInBucket;
    else previousInBucket.nextInBucket = nextInBucket;
    if (nextInBucket === undefined) this.#lastOf[bucket] = previousInBucket;
    else nextInBucket.previousInBucket = previousInBucket;
    message.previous = undefined;
    message.next = undefined;
    message.previousInBucket = undefined;
    message.nextInBucket = undefined;
  }

  /** The first message with exactly this tag. */
  findExact(low: number, high: number, bucket: number): UnexpectedMessage<C> | undefined {
    for (let message = this.#firstOf[bucket]; message !== undefined; message = message.nextInBucket) {
      if (message.tagLow === low && message.tagHigh === high) return message;
    }
    return undefined;
  }

  /** The first message whose tag agrees in the bits of the mask. */
  find(low: number, high: number, maskLow: number, maskHigh: number): UnexpectedMessage<C> | undefined {
    for (let message = this.#first; message !== undefined; message = message.next) {
      const differs = ((message.tagLow ^ low) & maskLow) | ((message.tagHigh ^ high) & maskHigh);
      if (differs === 0) return message;
    }
    return undefined;
  }

  /** The first message that a function accepts. */
  first(accepts: (message: UnexpectedMessage<C>) => boolean): UnexpectedMessage<C> | undefined {
    let message = this.#first;
    while (message !== undefined && !accepts(message)) message = message.next;
    return message;
  }

  /** All messages in order, or the first `countMax`. */
  all(countMax: number = Number.POSITIVE_INFINITY): UnexpectedMessage<C>[] {
    const messages: UnexpectedMessage<C>[] = [];
    for (let message = this.#first; message !== undefined && messages.length < countMax; message = message.next)
      messages.push(message);
    return messages;
  }
}
