/**
 * Handle numbers as allocated by the idr of the kernel: the smallest free one, from 1. Numbers only.
 */

/** The smallest positive integer that is not a key of `taken`. */
export function smallestFreeId(taken: { has(id: number): boolean; readonly size: number }): number {
  for (let id = 1; ; id++) if (!taken.has(id)) return id;
}
