/**
 * Keeps the notifications of one connection in the order of their lists: a list sends its notification after all earlier lists have sent theirs or failed.
 * Needed for lists that end only when their bytes are in remote memory; also counts the flushes that wait for these lists.
 */

/** A request of such a list. */
export interface FlushedList {
  /** Whether its notification waits for its turn. */
  readonly isDue: boolean;
  /** Its start that has not ended; set by {@link NotifyOrder}. */
  listStart: ListStart | undefined;
  /** Called when it is the turn of its notification. */
  onTurn(): void;
}

/** One start of a list: the same request may be started again while its earlier start is still in the queue. */
export class ListStart {
  list: FlushedList | undefined = undefined;
  /** Called when it ends. */
  readonly waiters: (() => void)[] = [];
  notifies = false;
  /** True when its notification was sent, or will not be sent: then it is the turn of the next one. */
  hasPassed = false;
  /** Its neighbours among the starts that have not ended. */
  previous: ListStart | undefined = undefined;
  next: ListStart | undefined = undefined;
}

/** The lists that have not ended. A list without a notification needs no allocation in steady state. */
export class NotifyOrder {
  #first: ListStart | undefined = undefined;
  #last: ListStart | undefined = undefined;
  /** Ended starts without a notification, kept for reuse and linked by `next`. */
  #spare: ListStart | undefined = undefined;
  /** Starts with a notification, in order: `#head` is the index of the first one that has not passed, `#passed` the number of passed ones. */
  #notifying: ListStart[] = [];
  #head = 0;
  #passed = 0;
  #isTaking = false;

  get isEmpty(): boolean {
    return this.#first === undefined;
  }

  add(list: FlushedList, notifies: boolean): void {
    const start = this.#spare ?? new ListStart();
    if (start === this.#spare) this.#spare = start.next;
    start.list = list;
    start.notifies = notifies;
    start.previous = this.#last;
    start.next = undefined;
    if (this.#last === undefined) this.#first = start;
    else this.#last.next = start;
    this.#last = start;
    list.listStart = start;
    if (notifies) this.#notifying.push(start);
  }

  /** Whether it is the turn of a list with a notification. */
  isFirst({ listStart }: FlushedList): boolean {
    // Compares starts, not requests: a request may have been freed and started again while its callback runs.
    return listStart !== undefined && listStart === this.#notifying[this.#head];
  }

  /** Called when the notification of a list that has not ended was sent: it is the turn of the next one. */
  pass({ listStart }: FlushedList): void {
    if (listStart !== undefined) this.#pass(listStart);
  }

  /** Calls `ended` once for each list that has not ended, when it ends; returns their number. */
  await(ended: () => void): number {
    let count = 0;
    for (let start = this.#first; start !== undefined; start = start.next) {
      start.waiters.push(ended);
      count += 1;
    }
    return count;
  }

  /** Undoes {@link await}; returns the number of lists that have not ended. */
  stopAwaiting(ended: () => void): number {
    let count = 0;
    for (let start = this.#first; start !== undefined; start = start.next) {
      const at = start.waiters.indexOf(ended);
      if (at < 0) continue;
      start.waiters.splice(at, 1);
      count += 1;
    }
    return count;
  }

  /** Removes a list that ends: from now on, its request may be started again. {@link release} must follow. */
  remove(list: FlushedList): ListStart | undefined {
    const start = list.listStart;
    if (start === undefined) return undefined;
    list.listStart = undefined;
    const { previous, next } = start;
    if (previous === undefined) this.#first = next;
    else previous.next = next;
    if (next === undefined) this.#last = previous;
    else next.previous = previous;
    start.previous = undefined;
    start.next = undefined;
    return start;
  }

  /** Continues everything that waited for a removed list: the next notification, and flushes. */
  release(start: ListStart): void {
    if (start.notifies) this.#pass(start);
    const { waiters } = start;
    for (let ended = waiters.shift(); ended !== undefined; ended = waiters.shift()) ended();
    if (start.notifies) return;
    start.list = undefined;
    start.next = this.#spare;
    this.#spare = start;
  }

  /** Gives the turn to the next start, once. Compacts the queue when half of it has passed, so that the cost per list is constant. */
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
        next?.list?.isDue === true && next !== last;
        next = this.#notifying[this.#head]
      ) {
        last = next;
        next.list.onTurn();
      }
    } catch (error) {
      // If a callback throws, the other notifications are still sent.
      this.#isTaking = false;
      this.#takeTurns();
      throw error;
    }
    this.#isTaking = false;
  }
}
