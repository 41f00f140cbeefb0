/** Types of the INFO op tables, and the encoding of results as structs. */

import type { Struct, StructFields, StructValues } from '../../../uapi/index.ts';
import type { Notifier } from '../base/notifier.ts';
import type { CardState } from '../card-state.ts';
import type { Context } from './context.ts';

/** One INFO ioctl. */
export interface InfoRequest {
  readonly card: CardState;
  /** Undefined on the control node. */
  readonly context: Context | undefined;
  /** Undefined on the control node, which has no event ops. */
  readonly notifier: Notifier | undefined;
  /** The argument block; ops with a second result write it here. */
  readonly words: Uint32Array;
  readonly returnSize: number;
}

export interface InfoOp {
  /** Whether it works in every status of the card; other ops return EBUSY unless the card is operational. */
  readonly always: boolean;
  /** Whether it needs a buffer: without one it fails with EINVAL. */
  readonly returnsData: boolean;
  /** Whether it accepts a buffer of 0 bytes: it copies its result as a whole, or fails with ENOMEM if there is one. */
  readonly isWhole: boolean;
  /** Returns the bytes for the caller, which are cut to the size of its buffer; or a positive errno, or 0 if nothing is copied. */
  readonly run: (request: InfoRequest) => Uint8Array | number;
}

/** A table of ops by number. */
export type InfoOps = readonly (readonly [number, InfoOp])[];

/** An op that works in every status. */
export function always(run: InfoOp['run']): InfoOp {
  return { always: true, returnsData: true, isWhole: false, run };
}

/** An op that works in every status and needs a buffer for its whole result, if there is one. */
export function whole(run: InfoOp['run']): InfoOp {
  return { always: true, returnsData: true, isWhole: true, run };
}

/** An op that needs an operational card. */
export function operational(run: InfoOp['run']): InfoOp {
  return { always: false, returnsData: true, isWhole: false, run };
}

/** An op that returns an errno only. */
export function withoutData(alwaysWorks: boolean, run: InfoOp['run']): InfoOp {
  return { always: alwaysWorks, returnsData: false, isWhole: false, run };
}

/** The result buffer of each struct and its view, reused: a result is copied out before the next one is written. */
const results: WeakMap<object, { readonly bytes: Uint8Array; readonly view: DataView }> = new WeakMap();

/** The bytes of a struct, valid until the next result with the same struct. */
export function encode<F extends StructFields>(struct: Struct<F>, values: Partial<StructValues<F>>): Uint8Array {
  let answer = results.get(struct);
  if (answer === undefined) {
    const bytes = new Uint8Array(struct.size);
    answer = { bytes, view: new DataView(bytes.buffer) };
    results.set(struct, answer);
  }
  struct.encode(values, answer.view);
  return answer.bytes;
}
