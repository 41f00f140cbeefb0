/**
 * Data types and reduction operations: names, numbers in messages, sizes; elements as numbers (not for hot paths); conversions between float32 and the bits of
 * float16 and bfloat16, rounded to nearest, ties to even, as IEEE 754 and the cards do. Sums and products of two 16-bit numbers that are computed in float32
 * and rounded again are correctly rounded: float32 has more than twice their digits.
 */

import { invalidParam } from '../../ucs/type/error.ts';

/** Names of the data types. */
export const DTYPES = ['uint8', 'int32', 'int64', 'float16', 'bfloat16', 'float32', 'float64'] as const;
/** Data type of the elements of a collective operation. */
export type Dtype = (typeof DTYPES)[number];

/** Names of the reduction operations. */
export const REDUCE_OPS = ['sum', 'product', 'min', 'max'] as const;
/** Operation of a reduction. */
export type ReduceOp = (typeof REDUCE_OPS)[number];

const BYTES: Readonly<Record<Dtype, number>> = {
  uint8: 1,
  int32: 4,
  int64: 8,
  float16: 2,
  bfloat16: 2,
  float32: 4,
  float64: 8,
};

/** Bytes of an element. @throws UcxError ERR_INVALID_PARAM */
export function dtypeBytes(dtype: Dtype): number {
  return BYTES[checkDtype(dtype)];
}

/**
 * Checks the name of a data type.
 * @throws UcxError ERR_INVALID_PARAM
 */
export function checkDtype(dtype: Dtype): Dtype {
  if (!DTYPES.includes(dtype)) throw invalidParam('dtype', `must be one of ${DTYPES.join(', ')}`, dtype);
  return dtype;
}

/**
 * Checks the name of a reduction operation.
 * @throws UcxError ERR_INVALID_PARAM
 */
export function checkReduceOp(op: ReduceOp): ReduceOp {
  if (!REDUCE_OPS.includes(op)) throw invalidParam('op', `must be one of ${REDUCE_OPS.join(', ')}`, op);
  return op;
}

/** Writes a number as an element: integers modulo their size, floating-point numbers rounded. @param index index of the element in `bytes` */
export function writeElement(bytes: Uint8Array, dtype: Dtype, index: number, value: number): void {
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  const at = index * dtypeBytes(dtype);
  switch (dtype) {
    case 'uint8':
      view.setUint8(at, value);
      break;
    case 'int32':
      view.setInt32(at, value, true);
      break;
    case 'int64':
      view.setBigInt64(at, BigInt(value), true);
      break;
    case 'float16':
      view.setUint16(at, float16Bits(value), true);
      break;
    case 'bfloat16':
      view.setUint16(at, bfloat16Bits(value), true);
      break;
    case 'float32':
      view.setFloat32(at, value, true);
      break;
    case 'float64':
      view.setFloat64(at, value, true);
      break;
  }
}

/** Reads an element as a number; 64-bit integers beyond 2^53 are rounded. @param index index of the element in `bytes` */
export function readElement(bytes: Uint8Array, dtype: Dtype, index: number): number {
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  const at = index * dtypeBytes(dtype);
  switch (dtype) {
    case 'uint8':
      return view.getUint8(at);
    case 'int32':
      return view.getInt32(at, true);
    case 'int64':
      return Number(view.getBigInt64(at, true));
    case 'float16':
      return float16Value(view.getUint16(at, true));
    case 'bfloat16':
      return bfloat16Value(view.getUint16(at, true));
    case 'float32':
      return view.getFloat32(at, true);
    case 'float64':
      return view.getFloat64(at, true);
  }
}

const float = new Float32Array(1);
const bits = new Uint32Array(float.buffer);

const QUIET_NAN16 = 0x7e00;
const QUIET_NAN_BF16 = 0x7fc0;

/** The value of every float16, indexed by its bits: 256 KiB, made at the first use. */
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

/** The values of all float16, indexed by their bits. */
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
  // From 65520 on the value rounds to infinity.
  if (magnitude >= 0x477f_f000) return sign | 0x7c00;
  if (magnitude >= 0x3880_0000) return sign | ((magnitude - 0x3800_0000 + 0xfff + ((magnitude >>> 13) & 1)) >>> 13);
  // At most half of the smallest subnormal: rounds to zero.
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
