/**
 * A growing sequence of pairs of Numbers in lexicographic order, kept in two Float64Arrays: search is binary, insertion and removal are one memmove.
 * The pair is the key. The building block of the range allocator.
 */

const INITIAL_CAPACITY = 16;

/** Ordered pairs (first, second) without duplicates. */
export class SortedPairs {
  #first: Float64Array;
  #second: Float64Array;
  #count: number;

  constructor() {
    this.#first = new Float64Array(INITIAL_CAPACITY);
    this.#second = new Float64Array(INITIAL_CAPACITY);
    this.#count = 0;
  }

  /** The number of pairs. */
  get count(): number {
    return this.#count;
  }

  /** The first element of the pair at `index`, which must be below `count`. */
  firstAt(index: number): number {
    return this.#first[index]!;
  }

  /** The second element of the pair at `index`, which must be below `count`. */
  secondAt(index: number): number {
    return this.#second[index]!;
  }

  /** The index of the lowest pair not below (`first`, `second`); `count` if there is none. */
  lowerBound(first: number, second: number): number {
    const firsts = this.#first;
    let low = 0;
    let high = this.#count;
    while (low < high) {
      const middle = (low + high) >>> 1;
      const value = firsts[middle]!;
      if (value < first || (value === first && this.#second[middle]! < second)) low = middle + 1;
      else high = middle;
    }
    return low;
  }

  /** Adds a pair that is not in the sequence yet. */
  insert(first: number, second: number): void {
    this.insertAt(this.lowerBound(first, second), first, second);
  }

  /** Adds a pair at the index that {@link lowerBound} returns for it. */
  insertAt(index: number, first: number, second: number): void {
    if (this.#count === this.#first.length) this.#grow();
    if (index < this.#count) {
      this.#first.copyWithin(index + 1, index, this.#count);
      this.#second.copyWithin(index + 1, index, this.#count);
    }
    this.#first[index] = first;
    this.#second[index] = second;
    this.#count++;
  }

  /** Changes the pair at `index` without moving it; it must stay in order. */
  replaceAt(index: number, first: number, second: number): void {
    this.#first[index] = first;
    this.#second[index] = second;
  }

  /** Removes the pair at `index`, which must be below `count`. */
  removeAt(index: number): void {
    this.#first.copyWithin(index, index + 1, this.#count);
    this.#second.copyWithin(index, index + 1, this.#count);
    this.#count--;
  }

  /** Removes a pair of the sequence. */
  remove(first: number, second: number): void {
    this.removeAt(this.lowerBound(first, second));
  }

  #grow(): void {
    const capacity = this.#first.length * 2;
    const first = new Float64Array(capacity);
    const second = new Float64Array(capacity);
    first.set(this.#first);
    second.set(this.#second);
    this.#first = first;
    this.#second = second;
  }
}
