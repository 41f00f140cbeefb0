/**
 * The lists of one connection that end only when their bytes are in remote memory: the order of their notifications, each of which is sent when those before it
 * are, or are not to be sent any more; and the flushes that wait for them.
 */

/** A request of such a list. */
export interface FlushedList {
  /** Whether its notification waits for its turn. */
  readonly isDue: boolean;
  /** It is its turn. */
  onTurn(): void;
}

/** The lists that have not ended. */
export class NotifyOrder {
  /** Called with the end of each. */
  readonly #open: Map<FlushedList, (() => void)[]> = new Map();
  /** Those with a notification, in order. */
  readonly #notifying: FlushedList[] = [];
  #isTaking = false;

  get isEmpty(): boolean {
    return this.#open.size === 0;
  }

  add(list: FlushedList, notifies: boolean): void {
    this.#open.set(list, []);
    if (notifies) this.#notifying.push(list);
  }

  /** Whether it is the turn of a list with a notification. */
  isFirst(list: FlushedList): boolean {
    return this.#notifying[0] === list;
  }

  /** Calls `ended` once for each list that has not ended, when it does; returns their number. */
  await(ended: () => void): number {
    for (const waiters of this.#open.values()) waiters.push(ended);
    return this.#open.size;
  }

  /** Removes a list that has ended: others may have waited for it. */
  remove(list: FlushedList): void {
    const waiters = this.#open.get(list);
    if (waiters === undefined) return;
    this.#open.delete(list);
    const at = this.#notifying.indexOf(list);
    if (at >= 0) this.#notifying.splice(at, 1);
    if (at === 0) this.#takeTurns();
    for (const ended of waiters) ended();
  }

  /** A list that ends in its turn removes itself: a loop, because many may wait. */
  #takeTurns(): void {
    if (this.#isTaking) return;
    this.#isTaking = true;
    let last: FlushedList | undefined;
    for (let next = this.#notifying[0]; next?.isDue === true && next !== last; next = this.#notifying[0]) {
      last = next;
      next.onTurn();
    }
    this.#isTaking = false;
  }
}
