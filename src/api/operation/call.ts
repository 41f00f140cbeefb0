/**
 * The arguments of one operation, from the API to the request: one record for each worker, filled in place, so that inner functions take one argument
 * instead of eight.
 */

import type { LocalBuffer, RemoteKey } from '../contract/memory.ts';
import type { AmSendParams, RequestParams } from '../contract/request.ts';
import type { Piece } from '../memory/local.ts';

/** What moves bytes of remote memory. */
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

/** What a record refers to between operations: unlike any object, it is stored without a write barrier, of which a message would have six. */
const NOTHING = undefined as never;

/**
 * The arguments. The edge of the API begins and fills the record, and ends it when the operation has been started, also after an exception. In between
 * no code of the program may run, because it may begin the next operation: the edge reads what can have getters (parameters, lists) before it begins,
 * and a protocol that has started a request reads nothing of the record after that. Numbers of other kinds of operations keep old values.
 */
export class Call<C extends object, L extends LocalBuffer, K extends RemoteKey, P extends Piece = Piece> {
  /** The connection or endpoint; undefined for an operation of the worker. */
  connection: C = NOTHING;
  params: RequestParams | undefined = undefined;
  /** False if the program wants a request in any case (noImmediateCompletion). */
  isImmediate = true;
  /** The local memory: a range that is not checked, or a list that is. */
  local: L = NOTHING;
  pieces: readonly P[] | undefined = undefined;
  localOffset = 0;
  byteLength = 0;
  /** A put or a get. */
  operation: Operation = Operation.PUT;
  rkey: K = NOTHING;
  remoteOffset = 0;
  /** A transport has had no resources for it just now: it waits without being tried again. */
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

  /** Begins an operation. @param connection undefined for one of the worker; @param pieces of a list, checked */
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

  /** Sets what a put or get does with which remote memory, which is not checked. */
  move(operation: Operation, rkey: K, remoteOffset: number, isBlocked = false): this {
    this.operation = operation;
    this.rkey = rkey;
    this.remoteOffset = remoteOffset;
    this.isBlocked = isBlocked;
    return this;
  }

  /** Ends the operation for the record, which must not keep memory of the program alive. */
  end(): void {
    this.connection = NOTHING;
    this.params = undefined;
    this.local = NOTHING;
    this.pieces = undefined;
    this.rkey = NOTHING;
    this.amHeader = undefined;
  }
}
