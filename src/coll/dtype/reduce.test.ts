/** Reductions of every type and operation against a reference in BigInt and float64, also of unaligned bytes. */

import { describe, expect, it } from 'vitest';
import { createRandom } from '../../ucs/sys/random.ts';
import {
  bfloat16Bits,
  bfloat16Value,
  DTYPES,
  type Dtype,
  dtypeBytes,
  float16Bits,
  float16Value,
  REDUCE_OPS,
  type ReduceOp,
} from './dtype.ts';
import { reduceBytes } from './reduce.ts';

const COUNT = 5000;

type Word = number | bigint;

function read(view: DataView, dtype: Dtype, at: number): Word {
  switch (dtype) {
    case 'uint8':
      return BigInt(view.getUint8(at));
    case 'int32':
      return BigInt(view.getInt32(at, true));
    case 'int64':
      return view.getBigInt64(at, true);
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

/** The result in the type: integers wrap, floating-point numbers are rounded once, from an exact value where float64 holds it. */
function rounded(value: Word, dtype: Dtype): Word {
  switch (dtype) {
    case 'uint8':
      return BigInt.asUintN(8, value as bigint);
    case 'int32':
      return BigInt.asIntN(32, value as bigint);
    case 'int64':
      return BigInt.asIntN(64, value as bigint);
    case 'float16':
      return float16Value(float16Bits(Math.fround(value as number)));
    case 'bfloat16':
      return bfloat16Value(bfloat16Bits(Math.fround(value as number)));
    case 'float32':
      return Math.fround(value as number);
    case 'float64':
      return value;
  }
}

function reference(op: ReduceOp, one: Word, other: Word): Word {
  if (typeof one === 'bigint' && typeof other === 'bigint') {
    if (op === 'sum') return one + other;
    if (op === 'product') return one * other;
    return (op === 'min') === one < other ? one : other;
  }
  const [a, b] = [one as number, other as number];
  if (op === 'sum') return a + b;
  if (op === 'product') return a * b;
  return op === 'min' ? Math.min(a, b) : Math.max(a, b);
}

describe.each(DTYPES)('%s', (dtype) => {
  it.each(REDUCE_OPS)('has the %s of any bits, aligned or not', (op) => {
    const random = createRandom(1);
    const byteLength = COUNT * dtypeBytes(dtype);
    for (const [to, from] of [
      [0, 0],
      [1, 0],
      [3, 5],
      [8, 16],
    ] as const) {
      const into = random.bytes(byteLength + to).subarray(to);
      const other = random.bytes(byteLength + from).subarray(from);
      const before = new DataView(into.slice().buffer);
      const operand = new DataView(other.slice().buffer);
      // The results go elsewhere, over the second operand, or over the first.
      const elsewhere = random.bytes(byteLength + from).subarray(from);
      reduceBytes(dtype, op, elsewhere, other, into);
      const overSecond = other.slice();
      reduceBytes(dtype, op, overSecond, overSecond, into);
      reduceBytes(dtype, op, into, other);
      const after = new DataView(into.slice().buffer);
      // As values: the language does not define the bits of a NaN, and V8 14 makes others in optimized code.
      const others = [elsewhere, overSecond].filter((bytes) => Buffer.compare(bytes, into) !== 0);
      const results = [after, ...others.map((bytes) => new DataView(bytes.slice().buffer))];
      for (let at = 0; at < byteLength; at += dtypeBytes(dtype)) {
        const [one, two] = [read(before, dtype, at), read(operand, dtype, at)];
        const wanted = rounded(reference(op, one, two), dtype);
        // Not `expect` for each of a million elements: it would take 20 times as long as the reductions.
        for (const result of results) {
          const found = read(result, dtype, at);
          if (!Object.is(found, wanted)) expect.fail(`${op} of ${one} and ${two} is ${wanted}, not ${found}`);
        }
      }
    }
  });
});
