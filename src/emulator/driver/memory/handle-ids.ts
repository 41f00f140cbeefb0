/**
 * Handle numbers as allocated by the idr of the kernel: the smallest free one, from 1. Numbers only.
 */

/** The numbers of one table. Each call takes time in proportion to the logarithm of the freed numbers. */
export class HandleIds {
  /** Freed numbers as a binary heap: each is below those at twice its index plus 1 and 2. */
  readonly #freed: number[] = [];
  #next = 1;

  /** Takes the smallest free number. */
  take(): number {
    const heap = this.#freed;
    const smallest = heap[0];
    if (smallest === undefined) return this.#next++;
    const last = heap.pop()!;
    if (heap.length > 0) this.#sink(last);
    return smallest;
  }

  /** Returns a number that was taken. */
  free(id: number): void {
    const heap = this.#freed;
    let at = heap.length;
    while (at > 0) {
      const parent = (at - 1) >>> 1;
      if (heap[parent]! < id) break;
      heap[at] = heap[parent]!;
      at = parent;
    }
    heap[at] = id;
  }

  /** Puts a number in the place of the first. */
  #sink(id: number): void {
    const heap = this.#freed;
    let at = 0;
    for (;;) {
      let child = 2 * at + 1;
      if (child + 1 < heap.length && heap[child + 1]! < heap[child]!) child += 1;
      if (child >= heap.length || heap[child]! > id) break;
      heap[at] = heap[child]!;
      at = child;
    }
    heap[at] = id;
  }
}
