/** The data types and operations of reductions: names, numbers in messages, sizes. It computes nothing. */

import { invalidParam } from '../../ucs/type/error.ts';

/** Names of the data types. */
export const DTYPES = ['uint8', 'int32', 'int64', 'float16', 'bfloat16', 'float32', 'float64'] as const;
/** A data type of the elements of a collective operation. */
export type Dtype = (typeof DTYPES)[number];

/** Names of the operations. */
export const REDUCE_OPS = ['sum', 'product', 'min', 'max'] as const;
/** An operation of a reduction. */
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
 * Checks the name of an operation.
 * @throws UcxError ERR_INVALID_PARAM
 */
export function checkReduceOp(op: ReduceOp): ReduceOp {
  if (!REDUCE_OPS.includes(op)) throw invalidParam('op', `must be one of ${REDUCE_OPS.join(', ')}`, op);
  return op;
}
