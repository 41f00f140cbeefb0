/**
 * What an INFO op is: the type of the entries of the op tables, and how an answer is built from a struct.
 */

import type { Struct, StructFields, StructValues } from '../../../uapi/index.ts';
import type { CardPort } from '../base/card-port.ts';
import type { Notifier } from '../base/notifier.ts';
import type { Context } from './context.ts';

/** One INFO ioctl. */
export interface InfoRequest {
  readonly card: CardPort;
  /** Undefined on the control node. */
  readonly context: Context | undefined;
  /** Undefined on the control node. */
  readonly notifier: Notifier | undefined;
  /** The argument block; ops with a second answer write it here. */
  readonly words: Uint32Array;
  readonly returnSize: number;
}

/** One op. */
export interface InfoOp {
  /** Works whatever the status of the card; others answer EBUSY when it is not operational. */
  readonly always: boolean;
  /** Needs a buffer: without one EINVAL. */
  readonly returnsData: boolean;
  /** The bytes to copy to the caller, of which it gets as many as it has room for; or a positive errno, 0 for nothing to copy. */
  readonly answer: (request: InfoRequest) => Uint8Array | number;
}

/** A table of ops by number. */
export type InfoOps = readonly (readonly [number, InfoOp])[];

/** An op that works always. */
export function always(answer: InfoOp['answer']): InfoOp {
  return { always: true, returnsData: true, answer };
}

/** An op of an operational card. */
export function operational(answer: InfoOp['answer']): InfoOp {
  return { always: false, returnsData: true, answer };
}

/** The bytes of the last answer with a struct, and the view to write them: an answer is copied out before the next one is made. */
const answers: WeakMap<object, { readonly bytes: Uint8Array; readonly view: DataView }> = new WeakMap();

/** The bytes of a struct, until the next answer with the same struct. */
export function encode<F extends StructFields>(struct: Struct<F>, values: Partial<StructValues<F>>): Uint8Array {
  let answer = answers.get(struct);
  if (answer === undefined) {
    const bytes = new Uint8Array(struct.size);
    answer = { bytes, view: new DataView(bytes.buffer) };
    answers.set(struct, answer);
  }
  struct.encode(values, answer.view);
  return answer.bytes;
}
