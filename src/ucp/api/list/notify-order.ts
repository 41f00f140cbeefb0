/** The order of the notifications of one connection: each is sent when those of the lists that were started before it are, or are not to be sent any more. */

/** A request that ends with a notification. */
export interface Notifying {
  /** Whether it waits for its turn. */
  readonly isDue: boolean;
  /** It is its turn. */
  onTurn(): void;
}

/** The requests with notifications that have not ended, in order. */
export class NotifyOrder {
  readonly #requests: Notifying[] = [];
  #isTaking = false;

  get isEmpty(): boolean {
    return this.#requests.length === 0;
  }

  add(request: Notifying): void {
    this.#requests.push(request);
  }

  isFirst(request: Notifying): boolean {
    return this.#requests[0] === request;
  }

  /** Removes a request that has ended: those behind it may have waited for it. */
  remove(request: Notifying): void {
    const at = this.#requests.indexOf(request);
    if (at < 0) return;
    this.#requests.splice(at, 1);
    if (at === 0) this.#takeTurns();
  }

  /** A request that ends in its turn removes itself: a loop, because many may wait. */
  #takeTurns(): void {
    if (this.#isTaking) return;
    this.#isTaking = true;
    let last: Notifying | undefined;
    for (let next = this.#requests[0]; next?.isDue === true && next !== last; next = this.#requests[0]) {
      last = next;
      next.onTurn();
    }
    this.#isTaking = false;
  }
}
