/**
 * The arguments of one operation, from the API to the request: one record for each worker, filled in place, so that inner functions take one argument
 * instead of eight.
 */

import type { LocalBuffer, RemoteKey } from '../contract/memory.ts';
import type { AmSendParams, RequestParams } from '../contract/request.ts';
import type { Piece } from '../memory/local.ts';

/** Operations on remote memory. */
export const Operation = { PUT: 0, GET: 1 } as const;
export type Operation = (typeof Operation)[keyof typeof Operation];

/** Whether an operation may end in its call, without a request. */
export function endsInCall(params: RequestParams | undefined): boolean {
  return params?.noImmediateCompletion !== true;
}

/** The operation with this name. */
export function operationOf(name: 'put' | 'get'): Operation {
  return name === 'put' ? Operation.PUT : Operation.GET;
}

/** Empty value of references between operations: in contrast to an object, it is stored without a write barrier, of which a message would have six. */
const NOTHING = undefined as never;

/**
 * The arguments. The API entry fills the record, and clears it when the operation was started, also after an exception. In between, no code of the program
 * may run, because it may begin the next operation: the entry reads everything that can have getters (parameters, lists) before, and a protocol that has
 * started a request does not read the record afterwards. Numeric fields that an operation does not use keep old values.
 */
export class Call<C extends object, L extends LocalBuffer, K extends RemoteKey, P extends Piece = Piece> {
  /** The connection or endpoint; undefined for an operation of the worker. */
  connection: C = NOTHING;
  params: RequestParams | undefined = undefined;
  /** False if the program requires a request (noImmediateCompletion). */
  isImmediate = true;
  /** The local memory: an unchecked range, or a checked list. */
  local: L = NOTHING;
  pieces: readonly P[] | undefined = undefined;
  localOffset = 0;
  byteLength = 0;
  /** A put or a get. */
  operation: Operation = Operation.PUT;
  rkey: K = NOTHING;
  remoteOffset = 0;
  /** True if a transport has had no resources for it just now: it is queued without another attempt. */
  isBlocked = false;
  /** The tag, as signed words. */
  tagLow = 0;
  tagHigh = 0;
  /** Whether a send ends only when its message is matched. */
  isSync = false;
  /** An active message: its id, its header, and how it is sent. */
  amId = 0;
  amHeader: Uint8Array | undefined = undefined;
  protocol: AmSendParams['protocol'] = undefined;

  /** Begins an operation. @param connection undefined for an operation of the worker; @param pieces ranges of a list, checked */
  begin(connection: C | undefined, params: RequestParams | undefined, pieces?: readonly P[]): this {
    const isImmediate = endsInCall(params);
    this.connection = connection as C;
    this.params = params;
    this.isImmediate = isImmediate;
    this.pieces = pieces;
    return this;
  }

  /** Sets the local memory, unless it is a list. */
  memory(local: LocalBuffer, localOffset: number, byteLength: number): this {
    if (this.pieces === undefined) this.local = local as L;
    this.localOffset = localOffset;
    this.byteLength = byteLength;
    return this;
  }

  /** Sets operation and remote memory of a put or get, which are not checked. */
  move(operation: Operation, rkey: K, remoteOffset: number, isBlocked = false): this {
    this.operation = operation;
    this.rkey = rkey;
    this.remoteOffset = remoteOffset;
    this.isBlocked = isBlocked;
    return this;
  }

  /** Clears the record, which must not keep memory of the program alive. */
  end(): void {
    this.connection = NOTHING;
    this.params = undefined;
    this.local = NOTHING;
    this.pieces = undefined;
    this.rkey = NOTHING;
    this.amHeader = undefined;
  }
}
