/**
 * Handle numbers as the idr of the kernel gives them out: the smallest free one, from 1. Numbers only.
 */

/** The smallest positive integer that is no key of `taken`. */
export function smallestFreeId(taken: { has(id: number): boolean; readonly size: number }): number {
  for (let id = 1; ; id++) if (!taken.has(id)) return id;
}
