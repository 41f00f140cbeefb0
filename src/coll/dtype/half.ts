/**
 * float16 and bfloat16 as bits: conversions to and from float32, rounded to nearest, ties to even, as IEEE 754 and the cards do. Sums and products of two
 * such numbers in float32, rounded again, are the correctly rounded ones: float32 has more than twice their digits.
 */

const float = new Float32Array(1);
const bits = new Uint32Array(float.buffer);

const QUIET_NAN16 = 0x7e00;
const QUIET_NAN_BF16 = 0x7fc0;

/** The value of every float16, by its bits: 256 KiB, made at the first use. */
let halves: Float32Array | undefined;

/** The value of float16 bits. */
export function float16Value(half: number): number {
  const exponent = (half >>> 10) & 0x1f;
  const mantissa = half & 0x3ff;
  const sign = half & 0x8000 ? -1 : 1;
  if (exponent === 0) return sign * mantissa * 2 ** -24;
  if (exponent === 0x1f) return mantissa === 0 ? sign * Number.POSITIVE_INFINITY : Number.NaN;
  return sign * (0x400 + mantissa) * 2 ** (exponent - 25);
}

/** The values of all float16, by their bits. */
export function float16Table(): Float32Array {
  halves ??= Float32Array.from({ length: 65_536 }, (_, half) => float16Value(half));
  return halves;
}

/** The float16 bits nearest to a float32 value; ties to even. */
export function float16Bits(value: number): number {
  float[0] = value;
  const word = bits[0]!;
  const sign = (word >>> 16) & 0x8000;
  const magnitude = word & 0x7fff_ffff;
  if (magnitude > 0x7f80_0000) return sign | QUIET_NAN16;
  // 65520 and more, which the largest float16 would round to.
  if (magnitude >= 0x477f_f000) return sign | 0x7c00;
  if (magnitude >= 0x3880_0000) return sign | ((magnitude - 0x3800_0000 + 0xfff + ((magnitude >>> 13) & 1)) >>> 13);
  // At most half of the smallest subnormal.
  if (magnitude <= 0x3300_0000) return sign;
  const exponent = magnitude >>> 23;
  const mantissa = (magnitude & 0x7f_ffff) | 0x80_0000;
  const shift = 126 - exponent;
  const down = mantissa >>> shift;
  const rest = mantissa & ((1 << shift) - 1);
  const half = 1 << (shift - 1);
  return sign | (rest > half || (rest === half && (down & 1) === 1) ? down + 1 : down);
}

/** The value of bfloat16 bits. */
export function bfloat16Value(half: number): number {
  bits[0] = half << 16;
  return float[0]!;
}

/** The bfloat16 bits nearest to a float32 value; ties to even. */
export function bfloat16Bits(value: number): number {
  float[0] = value;
  const word = bits[0]!;
  if ((word & 0x7fff_ffff) > 0x7f80_0000) return ((word >>> 16) & 0x8000) | QUIET_NAN_BF16;
  return (word + 0x7fff + ((word >>> 16) & 1)) >>> 16;
}
