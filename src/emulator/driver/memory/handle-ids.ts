/**
 * Handle numbers as allocated by the idr of the kernel: the smallest free one, from 1. Numbers only.
 */

/** Levels of the bitmap: 32^4 numbers are more than the driver's limits of buffers and blocks allow. */
const LEVELS = 4;
const NUMBERS_MAX = 32 ** LEVELS;

/** The numbers of one table. Each call takes the same time, however many numbers there are. */
export class HandleIds {
  /** The bitmap words of each level, lowest level first. There a bit is set for a freed number; above, for a word of the level below with a set bit. */
  readonly #levels: number[][] = Array.from({ length: LEVELS }, () => []);
  #next = 1;

  /** Takes the smallest free number. Throws RangeError when there is none. */
  take(): number {
    let id = 0;
    for (let level = LEVELS - 1; level >= 0; level--) {
      const bits = this.#levels[level]![id] ?? 0;
      if (bits === 0) return this.#takeNew();
      id = id * 32 + 31 - Math.clz32(bits & -bits);
    }
    this.#clear(id);
    return id;
  }

  /** Returns a number that was taken. */
  free(id: number): void {
    let at = id;
    for (const words of this.#levels) {
      const word = at >>> 5;
      words[word] = (words[word] ?? 0) | (1 << (at & 31));
      at = word;
    }
  }

  #takeNew(): number {
    if (this.#next === NUMBERS_MAX) throw new RangeError(`more than ${NUMBERS_MAX - 1} handles`);
    return this.#next++;
  }

  #clear(id: number): void {
    let at = id;
    for (const words of this.#levels) {
      const word = at >>> 5;
      words[word]! &= ~(1 << (at & 31));
      if (words[word] !== 0) return;
      at = word;
    }
  }
}
