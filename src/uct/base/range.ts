/** The one rule for ranges that come from callers: whole numbers, not negative, inside. */

/** True when `[offset, offset + byteLength)` lies inside `[0, limit)`; false also for fractions and NaN. */
export function isInside(offset: number, byteLength: number, limit: number): boolean {
  return (
    Number.isSafeInteger(offset) &&
    Number.isSafeInteger(byteLength) &&
    offset >= 0 &&
    byteLength >= 0 &&
    offset + byteLength <= limit
  );
}
