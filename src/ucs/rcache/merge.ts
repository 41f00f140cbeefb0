/** The bounds of a new region of the registration cache: aligned, and joined with overlapping regions. Pure: changes nothing. */

import type { IntervalMap } from '../datastruct/interval-map.ts';
import type { RcacheRegion } from './region.ts';

/** Bounds of a region to be registered. */
export interface RegionBounds {
  readonly start: number;
  readonly end: number;
  readonly alignment: number;
}

/** The bounds of the memory that a region may cover: an ArrayBuffer, or all addresses. */
export interface MemoryLimits {
  readonly start: number;
  readonly end: number;
}

/** Extends [start, end) to multiples of `alignment`, within the limits. */
export function alignBounds(start: number, end: number, alignment: number, limits: MemoryLimits): RegionBounds {
  return {
    start: Math.max(limits.start, Math.floor(start / alignment) * alignment),
    end: Math.min(limits.end, Math.ceil(end / alignment) * alignment),
    alignment,
  };
}

/**
 * Joins aligned bounds with the regions that they overlap: the union of the ranges at the largest alignment, until nothing overlaps any more. Regions of
 * another protection are not joined, because the protection of one does not hold for the memory of the other.
 */
export function mergeBounds<R extends object>(
  regions: IntervalMap<RcacheRegion<R>>,
  alone: RegionBounds,
  protection: number,
  limits: MemoryLimits,
): RegionBounds {
  let bounds = alone;
  for (;;) {
    let { start, end, alignment } = bounds;
    for (const { value } of regions.overlapping(bounds.start, bounds.end)) {
      if (value.protection !== protection) continue;
      start = Math.min(start, value.start);
      end = Math.max(end, value.end);
      alignment = Math.max(alignment, value.alignment);
    }
    const joined = alignBounds(start, end, alignment, limits);
    if (joined.start === bounds.start && joined.end === bounds.end && alignment === bounds.alignment) return bounds;
    bounds = joined;
  }
}
