/** Reductions of 64-bit integers as pairs of 32-bit words, low word first: a BigInt for each element would be garbage. */

/** `into = left + right`, modulo 2^64. */
export function sumInt64(into: Uint32Array, left: Uint32Array, right: Uint32Array): void {
  for (let i = 0; i < into.length; i += 2) {
    const low = left[i]! + right[i]!;
    into[i] = low;
    into[i + 1] = left[i + 1]! + right[i + 1]! + (low > 0xffff_ffff ? 1 : 0);
  }
}

/** `into = left * right`, modulo 2^64. */
export function multiplyInt64(into: Uint32Array, left: Uint32Array, right: Uint32Array): void {
  for (let i = 0; i < into.length; i += 2) {
    const [a, b] = [left[i]!, right[i]!];
    const cross = (Math.imul(left[i + 1]!, b) + Math.imul(a, right[i + 1]!)) | 0;
    into[i] = Math.imul(a, b);
    into[i + 1] = (highProduct(a, b) + cross) | 0;
  }
}

/** `into = min(left, right)`, signed. */
export function minInt64(into: Uint32Array, left: Uint32Array, right: Uint32Array): void {
  for (let i = 0; i < into.length; i += 2) take(into, isLess(right, left, i) ? right : left, i);
}

/** `into = max(left, right)`, signed. */
export function maxInt64(into: Uint32Array, left: Uint32Array, right: Uint32Array): void {
  for (let i = 0; i < into.length; i += 2) take(into, isLess(left, right, i) ? right : left, i);
}

function isLess(one: Uint32Array, other: Uint32Array, at: number): boolean {
  const [high, otherHigh] = [one[at + 1]! | 0, other[at + 1]! | 0];
  return high === otherHigh ? one[at]! < other[at]! : high < otherHigh;
}

function take(into: Uint32Array, from: Uint32Array, at: number): void {
  into[at] = from[at]!;
  into[at + 1] = from[at + 1]!;
}

/** The high word of the product of two unsigned words, by halves of 16 bits. */
function highProduct(a: number, b: number): number {
  const [aLow, aHigh, bLow, bHigh] = [a & 0xffff, a >>> 16, b & 0xffff, b >>> 16];
  const middle = aHigh * bLow + ((aLow * bLow) >>> 16);
  const other = aLow * bHigh + (middle & 0xffff);
  return aHigh * bHigh + (middle >>> 16) + (other >>> 16);
}
