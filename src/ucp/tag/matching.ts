/**
 * Tag matching: which receive takes which message. Receives and messages wait here in order until they meet; it moves no bytes.
 *
 * A receive matches a message when their tags agree in the bits of its mask; among several the earliest posted receive and the earliest
 * message win. Receives of a full mask and messages are also in buckets by tag, so that neither is searched for among all of them.
 */

import type { ReceiveRequest } from '../base/request/message-request.ts';
import { UnexpectedList, type UnexpectedMessage } from './unexpected.ts';

const BUCKETS = 1024;

/** Posted receives in order: a list through the requests themselves. */
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

  /** The first receive that takes a tag. */
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

  /** Receives that wait for a message. */
  get posted(): number {
    return this.#posted;
  }

  /** Messages that wait for a receive. */
  get waiting(): number {
    return this.#unexpected.length;
  }

  /** Bytes of memory that they occupy. */
  get heldBytes(): number {
    return this.#unexpected.heldBytes;
  }

  /** The first messages that wait for a receive, at most `countMax`. */
  firstWaiting(countMax: number): UnexpectedMessage<C>[] {
    return this.#unexpected.all(countMax);
  }

  /** Adds a receive that no message waits for; its tag and mask are set. */
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

  /** Removes and returns the receive for a message that has arrived; undefined if there is none yet. */
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

  /** Keeps a message that no receive waits for. */
  keep(message: UnexpectedMessage<C>): void {
    this.#unexpected.push(message, bucketOf(message.tagLow, message.tagHigh));
  }

  /** The first message that matches; it stays. */
  peek(low: number, high: number, maskLow: number, maskHigh: number): UnexpectedMessage<C> | undefined {
    if (this.#unexpected.length === 0) return undefined;
    if (maskLow === -1 && maskHigh === -1) return this.#unexpected.findExact(low, high, bucketOf(low, high));
    return this.#unexpected.find(low, high, maskLow, maskHigh);
  }

  /** The first message that a function accepts; it stays. */
  find(accepts: (message: UnexpectedMessage<C>) => boolean): UnexpectedMessage<C> | undefined {
    return this.#unexpected.first(accepts);
  }

  /** Removes a message that {@link peek} found, and returns its credit to the window of its sender. */
  remove(message: UnexpectedMessage<C>): void {
    this.#unexpected.remove(message, bucketOf(message.tagLow, message.tagHigh));
    if (message.cost > 0) message.window.release(message.cost);
    else message.window.releaseOffer();
  }

  /** Removes and returns everything that waits, for a worker that closes. */
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
