/**
 * Reduction of host bytes: `into[i] = into[i] op from[i]`. Integers wrap as in C; minimum and maximum of floating-point numbers are NaN if either is.
 * It knows no
 * device memory.
 */

import { copyBytes } from '../../ucs/memory/copy-bytes.ts';
import { type Dtype, dtypeBytes, type ReduceOp } from './dtype.ts';
import { bfloat16Bits, float16Bits, float16Table } from './half.ts';
import { maxInt64, minInt64, multiplyInt64, sumInt64 } from './int64-reduce.ts';

type Kernel<T> = (into: T, from: T) => void;
type Kernels<T> = Readonly<Record<ReduceOp, Kernel<T>>>;

/** Elements that are reduced at once where the bytes are not aligned, through aligned copies. */
const COPY_BYTES = 16_384;

const float = new Float32Array(1);
const bits = new Uint32Array(float.buffer);

function floats<T extends Float32Array | Float64Array>(): Kernels<T> {
  return {
    sum: (into, from) => {
      for (let i = 0; i < into.length; i++) into[i] = into[i]! + from[i]!;
    },
    product: (into, from) => {
      for (let i = 0; i < into.length; i++) into[i] = into[i]! * from[i]!;
    },
    min: (into, from) => {
      for (let i = 0; i < into.length; i++) into[i] = Math.min(into[i]!, from[i]!);
    },
    max: (into, from) => {
      for (let i = 0; i < into.length; i++) into[i] = Math.max(into[i]!, from[i]!);
    },
  };
}

function integers<T extends Uint8Array | Int32Array>(): Kernels<T> {
  return {
    sum: (into, from) => {
      for (let i = 0; i < into.length; i++) into[i] = into[i]! + from[i]!;
    },
    product: (into, from) => {
      for (let i = 0; i < into.length; i++) into[i] = Math.imul(into[i]!, from[i]!);
    },
    min: (into, from) => {
      for (let i = 0; i < into.length; i++) if (from[i]! < into[i]!) into[i] = from[i]!;
    },
    max: (into, from) => {
      for (let i = 0; i < into.length; i++) if (from[i]! > into[i]!) into[i] = from[i]!;
    },
  };
}

function bfloat16s(): Kernels<Uint16Array> {
  const toFloat = (half: number): number => {
    bits[0] = half << 16;
    return float[0]!;
  };
  return {
    sum: (into, from) => {
      for (let i = 0; i < into.length; i++) into[i] = bfloat16Bits(toFloat(into[i]!) + toFloat(from[i]!));
    },
    product: (into, from) => {
      for (let i = 0; i < into.length; i++) into[i] = bfloat16Bits(toFloat(into[i]!) * toFloat(from[i]!));
    },
    min: (into, from) => {
      for (let i = 0; i < into.length; i++) into[i] = bfloat16Bits(Math.min(toFloat(into[i]!), toFloat(from[i]!)));
    },
    max: (into, from) => {
      for (let i = 0; i < into.length; i++) into[i] = bfloat16Bits(Math.max(toFloat(into[i]!), toFloat(from[i]!)));
    },
  };
}

function float16s(): Kernels<Uint16Array> {
  return {
    sum: (into, from) => {
      const value = float16Table();
      for (let i = 0; i < into.length; i++) into[i] = float16Bits(value[into[i]!]! + value[from[i]!]!);
    },
    product: (into, from) => {
      const value = float16Table();
      for (let i = 0; i < into.length; i++) into[i] = float16Bits(value[into[i]!]! * value[from[i]!]!);
    },
    min: (into, from) => {
      const value = float16Table();
      for (let i = 0; i < into.length; i++) into[i] = float16Bits(Math.min(value[into[i]!]!, value[from[i]!]!));
    },
    max: (into, from) => {
      const value = float16Table();
      for (let i = 0; i < into.length; i++) into[i] = float16Bits(Math.max(value[into[i]!]!, value[from[i]!]!));
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

/** Aligned copies, made at the first use. */
let copies: readonly [Uint8Array, Uint8Array] | undefined;

/**
 * Reduces elements of host memory.
 * @param into bytes of the first operands, and of the results
 * @param from bytes of the second operands: as many
 */
export function reduceBytes(dtype: Dtype, op: ReduceOp, into: Uint8Array, from: Uint8Array): void {
  const mask = dtypeBytes(dtype) - 1;
  const alignment = dtype === 'int64' ? 3 : mask;
  if (((into.byteOffset | from.byteOffset) & alignment) === 0) {
    reduceAligned(dtype, op, into, from);
    return;
  }
  copies ??= [new Uint8Array(COPY_BYTES), new Uint8Array(COPY_BYTES)];
  const [left, right] = copies;
  for (let at = 0; at < into.byteLength; at += COPY_BYTES) {
    const byteLength = Math.min(COPY_BYTES, into.byteLength - at);
    copyBytes(left, 0, into, at, byteLength);
    copyBytes(right, 0, from, at, byteLength);
    reduceAligned(dtype, op, left.subarray(0, byteLength), right.subarray(0, byteLength));
    copyBytes(into, at, left, 0, byteLength);
  }
}

function reduceAligned(dtype: Dtype, op: ReduceOp, into: Uint8Array, from: Uint8Array): void {
  const count = into.byteLength / dtypeBytes(dtype);
  const { buffer: target, byteOffset: to } = into;
  const { buffer: source, byteOffset: at } = from;
  switch (dtype) {
    case 'uint8':
      UINT8[op](into, from);
      break;
    case 'int32':
      INT32[op](new Int32Array(target, to, count), new Int32Array(source, at, count));
      break;
    case 'int64':
      INT64[op](new Uint32Array(target, to, count * 2), new Uint32Array(source, at, count * 2));
      break;
    case 'float16':
      FLOAT16[op](new Uint16Array(target, to, count), new Uint16Array(source, at, count));
      break;
    case 'bfloat16':
      BFLOAT16[op](new Uint16Array(target, to, count), new Uint16Array(source, at, count));
      break;
    case 'float32':
      FLOAT32[op](new Float32Array(target, to, count), new Float32Array(source, at, count));
      break;
    case 'float64':
      FLOAT64[op](new Float64Array(target, to, count), new Float64Array(source, at, count));
      break;
  }
}
