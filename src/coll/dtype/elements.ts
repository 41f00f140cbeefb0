/** Elements as numbers: writing and reading them in host bytes, for contents and checks. Not for hot paths. */

import type { Dtype } from './dtype.ts';
import { dtypeBytes } from './dtype.ts';
import { bfloat16Bits, bfloat16Value, float16Bits, float16Value } from './half.ts';

/** Writes a number as an element: integers modulo their size, floating-point numbers rounded. @param index element of the bytes */
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

/** Reads an element; integers of 64 bits are rounded beyond 2^53. @param index element of the bytes */
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
