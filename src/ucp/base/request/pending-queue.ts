/** Requests in order that wait for resources: a list through the requests themselves, so that it has no bound of its own. */

import { type Request, RequestState } from './request.ts';

/** A queue of requests. */
export class PendingQueue {
  #head: Request | undefined = undefined;
  #tail: Request | undefined = undefined;

  get isEmpty(): boolean {
    return this.#head === undefined;
  }

  get head(): Request | undefined {
    return this.#head;
  }

  push(request: Request): void {
    request.state = RequestState.QUEUED;
    request.next = undefined;
    if (this.#tail === undefined) this.#head = request;
    else this.#tail.next = request;
    this.#tail = request;
  }

  shift(): Request | undefined {
    const request = this.#head;
    if (request === undefined) return undefined;
    this.#head = request.next;
    if (this.#head === undefined) this.#tail = undefined;
    leave(request);
    return request;
  }

  /** Removes the requests for which `keeps` returns false, and passes them to `take`; returns their number. */
  sift(keeps: (request: Request) => boolean, take: (request: Request) => void): number {
    const all: Request[] = [];
    for (let head = this.shift(); head !== undefined; head = this.shift()) all.push(head);
    let taken = 0;
    for (const request of all) {
      if (keeps(request)) this.push(request);
      else {
        taken += 1;
        take(request);
      }
    }
    return taken;
  }

  /** Takes a request out of the middle; false when it is not here. */
  remove(request: Request): boolean {
    let before: Request | undefined;
    for (let at = this.#head; at !== undefined; before = at, at = at.next) {
      if (at !== request) continue;
      if (before === undefined) this.#head = at.next;
      else before.next = at.next;
      if (this.#tail === at) this.#tail = before;
      leave(at);
      return true;
    }
    return false;
  }
}

/** Marks a request as no longer queued. One that has ended at the head of its queue stays ended. */
function leave(request: Request): void {
  request.next = undefined;
  if (request.queued) request.state = RequestState.STARTED;
}
