/**
 * The lists of one connection that end only when their bytes are in remote memory: the order of their notifications, and the flushes that wait for them. A
 * notification is sent after those of earlier lists, unless these have failed.
 */

/** A request of such a list. */
export interface FlushedList {
  /** Whether its notification waits for its turn. */
  readonly isDue: boolean;
  /** It is its turn. */
  onTurn(): void;
}

/** One start of a list: the same request may be started again while its earlier start is still in the queue. */
export interface ListStart {
  readonly list: FlushedList;
  /** Called with its end. */
  readonly waiters: (() => void)[];
  readonly notifies: boolean;
  /** Whether its notification was sent, or will not be: the next one has its turn. */
  hasPassed: boolean;
}

/** The lists that have not ended. */
export class NotifyOrder {
  readonly #open: Map<FlushedList, ListStart> = new Map();
  /** Those with a notification, in order: `#head` is the first that has not passed its turn on, and `#passed` of them have. */
  #notifying: ListStart[] = [];
  #head = 0;
  #passed = 0;
  #isTaking = false;

  get isEmpty(): boolean {
    return this.#open.size === 0;
  }

  add(list: FlushedList, notifies: boolean): void {
    const start = { list, waiters: [], notifies, hasPassed: false };
    this.#open.set(list, start);
    if (notifies) this.#notifying.push(start);
  }

  /** Whether it is the turn of a list with a notification. */
  isFirst(list: FlushedList): boolean {
    const first = this.#notifying[this.#head];
    // Of the start that has not ended: its request may have been given back and started again while its callback runs.
    return first !== undefined && first === this.#open.get(list);
  }

  /** The notification of a list that has not ended is on its way: the next has its turn. */
  pass(list: FlushedList): void {
    const start = this.#open.get(list);
    if (start !== undefined) this.#pass(start);
  }

  /** Calls `ended` once for each list that has not ended, when it does; returns their number. */
  await(ended: () => void): number {
    for (const { waiters } of this.#open.values()) waiters.push(ended);
    return this.#open.size;
  }

  /** Removes a list that ends: its request may be started again from now on. {@link release} must follow. */
  remove(list: FlushedList): ListStart | undefined {
    const start = this.#open.get(list);
    if (start === undefined) return undefined;
    this.#open.delete(list);
    return start;
  }

  /** Lets those go on that have waited for a list that was removed. */
  release(start: ListStart): void {
    if (start.notifies) this.#pass(start);
    for (const ended of start.waiters) ended();
  }

  /** Gives the turn to the next, once. Compacts the queue when half of it has passed, so that each list costs the same however many wait. */
  #pass(start: ListStart): void {
    if (start.hasPassed) return;
    start.hasPassed = true;
    const before = this.#head;
    while (this.#notifying[this.#head]?.hasPassed === true) this.#head++;
    const isFirst = this.#head !== before;
    this.#passed += 1;
    if (this.#passed * 2 >= this.#notifying.length) {
      this.#notifying = this.#notifying.filter(({ hasPassed }) => !hasPassed);
      this.#head = 0;
      this.#passed = 0;
    }
    if (isFirst) this.#takeTurns();
  }

  /** A list that ends in its turn removes itself: a loop, because many may wait. */
  #takeTurns(): void {
    if (this.#isTaking) return;
    this.#isTaking = true;
    try {
      let last: ListStart | undefined;
      for (
        let next = this.#notifying[this.#head];
        next?.list.isDue === true && next !== last;
        next = this.#notifying[this.#head]
      ) {
        last = next;
        next.list.onTurn();
      }
    } catch (error) {
      // A callback has thrown: the others have their turn all the same.
      this.#isTaking = false;
      this.#takeTurns();
      throw error;
    }
    this.#isTaking = false;
  }
}
