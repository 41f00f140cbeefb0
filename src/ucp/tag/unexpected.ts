/**
 * Messages that came before their receive: in the order of their arrival, and in buckets by tag. Which receive gets them is decided in
 * matching.ts.
 */

import type { InboundWindow } from '../credit/inbound-window.ts';

/** The parts of a message that came before its receive: see the fields of UnexpectedMessage. */
export type UnexpectedFields<C> = Pick<
  UnexpectedMessage<C>,
  'tagLow' | 'tagHigh' | 'byteLength' | 'content' | 'heldBytes' | 'window' | 'cost'
>;

/** A message that came before its receive; `C` is what arrived. */
export class UnexpectedMessage<C> {
  readonly tagLow: number;
  readonly tagHigh: number;
  /** Bytes of the whole message. */
  readonly byteLength: number;
  /** The message itself, or the data that its protocol needs to fetch it. */
  readonly content: C;
  /** Bytes of it that are kept here: all of an eager message, of an offer its key. */
  readonly heldBytes: number;
  /** The window of the sender, and the bytes of it that the message uses; 0 for an offer. */
  readonly window: InboundWindow;
  readonly cost: number;
  /** Neighbours among all messages, and among those of the bucket. */
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

/** The messages of one worker. */
export class UnexpectedList<C> {
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

  /** Bytes of memory that the messages occupy. */
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

  /** The first message with this very tag. */
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
