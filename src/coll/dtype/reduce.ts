/**
 * Reduction of host bytes: `into[i] = left[i] op right[i]`. Integers wrap as in C; minimum and maximum of floating-point numbers are NaN if either operand is.
 * 64-bit integers are reduced as pairs of 32-bit words, low word first: a BigInt for each element would be garbage.
 */

import { copyBytes, isBytes } from '../../ucs/memory/bytes.ts';
import { invalidParam } from '../../ucs/type/error.ts';
import {
  bfloat16Bits,
  checkReduceOp,
  type Dtype,
  dtypeBytes,
  float16Bits,
  float16Table,
  type ReduceOp,
} from './dtype.ts';

/** The results and both operands; `into` may be one of the operands. */
type Operands<T> = [into: T, left: T, right: T];
type Kernel<T> = (...operands: Operands<T>) => void;
type Kernels<T> = Readonly<Record<ReduceOp, Kernel<T>>>;

/** Bytes of the aligned buffers through which unaligned operands are reduced. */
const COPY_BYTES = 16_384;

const float = new Float32Array(1);
const bits = new Uint32Array(float.buffer);

function floats<T extends Float32Array | Float64Array>(): Kernels<T> {
  return {
    sum: (into, left, right) => {
      const { length } = into;
      let i = 0;
      // Unrolled by four: takes half the time.
      for (; i + 3 < length; i += 4) {
        const a = left[i]! + right[i]!;
        const b = left[i + 1]! + right[i + 1]!;
        const c = left[i + 2]! + right[i + 2]!;
        const d = left[i + 3]! + right[i + 3]!;
        into[i] = a;
        into[i + 1] = b;
        into[i + 2] = c;
        into[i + 3] = d;
      }
      for (; i < length; i++) into[i] = left[i]! + right[i]!;
    },
    product: (into, left, right) => {
      for (let i = 0; i < into.length; i++) into[i] = left[i]! * right[i]!;
    },
    min: (into, left, right) => {
      for (let i = 0; i < into.length; i++) into[i] = Math.min(left[i]!, right[i]!);
    },
    max: (into, left, right) => {
      for (let i = 0; i < into.length; i++) into[i] = Math.max(left[i]!, right[i]!);
    },
  };
}

function integers<T extends Uint8Array | Int32Array>(): Kernels<T> {
  return {
    sum: (into, left, right) => {
      for (let i = 0; i < into.length; i++) into[i] = left[i]! + right[i]!;
    },
    product: (into, left, right) => {
      for (let i = 0; i < into.length; i++) into[i] = Math.imul(left[i]!, right[i]!);
    },
    min: (into, left, right) => {
      for (let i = 0; i < into.length; i++) into[i] = Math.min(left[i]!, right[i]!);
    },
    max: (into, left, right) => {
      for (let i = 0; i < into.length; i++) into[i] = Math.max(left[i]!, right[i]!);
    },
  };
}

function bfloat16s(): Kernels<Uint16Array> {
  const toFloat = (half: number): number => {
    bits[0] = half << 16;
    return float[0]!;
  };
  return {
    sum: (into, left, right) => {
      for (let i = 0; i < into.length; i++) into[i] = bfloat16Bits(toFloat(left[i]!) + toFloat(right[i]!));
    },
    product: (into, left, right) => {
      for (let i = 0; i < into.length; i++) into[i] = bfloat16Bits(toFloat(left[i]!) * toFloat(right[i]!));
    },
    min: (into, left, right) => {
      for (let i = 0; i < into.length; i++) into[i] = bfloat16Bits(Math.min(toFloat(left[i]!), toFloat(right[i]!)));
    },
    max: (into, left, right) => {
      for (let i = 0; i < into.length; i++) into[i] = bfloat16Bits(Math.max(toFloat(left[i]!), toFloat(right[i]!)));
    },
  };
}

function float16s(): Kernels<Uint16Array> {
  return {
    sum: (into, left, right) => {
      const value = float16Table();
      for (let i = 0; i < into.length; i++) into[i] = float16Bits(value[left[i]!]! + value[right[i]!]!);
    },
    product: (into, left, right) => {
      const value = float16Table();
      for (let i = 0; i < into.length; i++) into[i] = float16Bits(value[left[i]!]! * value[right[i]!]!);
    },
    min: (into, left, right) => {
      const value = float16Table();
      for (let i = 0; i < into.length; i++) into[i] = float16Bits(Math.min(value[left[i]!]!, value[right[i]!]!));
    },
    max: (into, left, right) => {
      const value = float16Table();
      for (let i = 0; i < into.length; i++) into[i] = float16Bits(Math.max(value[left[i]!]!, value[right[i]!]!));
    },
  };
}

// One table for each type: the loops stay monomorphic.
const UINT8 = integers<Uint8Array>();
const INT32 = integers<Int32Array>();
const INT64: Kernels<Uint32Array> = { sum: sumInt64, product: multiplyInt64, min: minInt64, max: maxInt64 };
const FLOAT32 = floats<Float32Array>();
const FLOAT64 = floats<Float64Array>();
const BFLOAT16 = bfloat16s();
const FLOAT16 = float16s();

/** The aligned buffers, made at the first use. */
let copies: readonly [Uint8Array, Uint8Array] | undefined;

/**
 * Reduces elements of host memory.
 * @param into the results
 * @param right the second operands, as many bytes as `into`
 * @param left the first operands, as many bytes; default `into`. Each operand may be `into`; no other overlap is allowed
 */
export function reduceBytes(
  dtype: Dtype,
  op: ReduceOp,
  into: Uint8Array,
  right: Uint8Array,
  left: Uint8Array = into,
): void {
  const mask = dtypeBytes(dtype) - 1;
  checkReduceOp(op);
  checkElements('into', into, into, mask);
  checkElements('right', right, into, mask);
  checkElements('left', left, into, mask);
  const alignment = dtype === 'int64' ? 3 : mask;
  if (((into.byteOffset | left.byteOffset | right.byteOffset) & alignment) === 0) {
    reduceAligned(dtype, op, into, left, right);
    return;
  }
  copies ??= [new Uint8Array(COPY_BYTES), new Uint8Array(COPY_BYTES)];
  for (let at = 0; at < into.byteLength; at += COPY_BYTES) {
    const byteLength = Math.min(COPY_BYTES, into.byteLength - at);
    const [one, other] = [copies[0].subarray(0, byteLength), copies[1].subarray(0, byteLength)];
    copyBytes(one, 0, left, at, byteLength);
    copyBytes(other, 0, right, at, byteLength);
    reduceAligned(dtype, op, one, one, other);
    copyBytes(into, at, one, 0, byteLength);
  }
}

/** Checks that an operand has as many bytes as the results, and consists of whole elements. @param mask bytes of an element - 1 */
function checkElements(argument: string, bytes: Uint8Array, into: Uint8Array, mask: number): void {
  if (!isBytes(bytes) || bytes.byteLength !== into.byteLength || (bytes.byteLength & mask) !== 0) {
    throw invalidParam(argument, 'must be a Uint8Array of whole elements, as long as the others', bytes);
  }
}

function reduceAligned(dtype: Dtype, op: ReduceOp, ...bytes: Operands<Uint8Array>): void {
  switch (dtype) {
    case 'uint8':
      UINT8[op](...bytes);
      break;
    case 'int32':
      INT32[op](...viewsAs(Int32Array, bytes));
      break;
    case 'int64':
      INT64[op](...viewsAs(Uint32Array, bytes));
      break;
    case 'float16':
      FLOAT16[op](...viewsAs(Uint16Array, bytes));
      break;
    case 'bfloat16':
      BFLOAT16[op](...viewsAs(Uint16Array, bytes));
      break;
    case 'float32':
      FLOAT32[op](...viewsAs(Float32Array, bytes));
      break;
    case 'float64':
      FLOAT64[op](...viewsAs(Float64Array, bytes));
      break;
  }
}

/** The same memory as arrays of another element type. */
function viewsAs<T>(
  Elements: {
    new (buffer: ArrayBufferLike, byteOffset: number, length: number): T;
    readonly BYTES_PER_ELEMENT: number;
  },
  bytes: Operands<Uint8Array>,
): Operands<T> {
  const view = ({ buffer, byteOffset, byteLength }: Uint8Array): T =>
    new Elements(buffer, byteOffset, byteLength / Elements.BYTES_PER_ELEMENT);
  const [into, left, right] = bytes;
  return [view(into), view(left), view(right)];
}

/** `into = left + right`, modulo 2^64. */
function sumInt64(into: Uint32Array, left: Uint32Array, right: Uint32Array): void {
  for (let i = 0; i < into.length; i += 2) {
    const low = left[i]! + right[i]!;
    into[i] = low;
    into[i + 1] = left[i + 1]! + right[i + 1]! + (low > 0xffff_ffff ? 1 : 0);
  }
}

/** `into = left * right`, modulo 2^64. */
function multiplyInt64(into: Uint32Array, left: Uint32Array, right: Uint32Array): void {
  for (let i = 0; i < into.length; i += 2) {
    const [a, b] = [left[i]!, right[i]!];
    const cross = (Math.imul(left[i + 1]!, b) + Math.imul(a, right[i + 1]!)) | 0;
    into[i] = Math.imul(a, b);
    into[i + 1] = (highProduct(a, b) + cross) | 0;
  }
}

/** `into = min(left, right)`, signed. */
function minInt64(into: Uint32Array, left: Uint32Array, right: Uint32Array): void {
  for (let i = 0; i < into.length; i += 2) take(into, isLess(right, left, i) ? right : left, i);
}

/** `into = max(left, right)`, signed. */
function maxInt64(into: Uint32Array, left: Uint32Array, right: Uint32Array): void {
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
