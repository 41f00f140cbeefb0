/**
 * A ucp operation that has not ended when its call returned, or that was asked for as a request. Pooled: after `free()` the object belongs
 * to another operation.
 */

import { MemoryType } from '../../ucs/memory-type.ts';
import { Status } from '../../ucs/status.ts';
import type { Completion, IovEntry } from '../../uct/api/iface.ts';
import type { MdMemory, RemoteKey as UctRemoteKey } from '../../uct/api/memory.ts';
import type { MemoryDomain } from '../../uct/api/memory-domain.ts';
import { OPERATION_NAMES, Operation, PROTOCOL_NAMES, Protocol } from '../proto/selection.ts';
import type { Lane } from './lane.ts';

/** Runs once when a request ends, inside `progress()`; `request.free()` may be called in it. It must not throw. */
export type RequestCallback = (request: Request, status: Status) => void;

/** An ended operation must not be kept from ending. */
const FORCE = { force: true } as const;

/** Stands in the list of a request that has none: an ended request must not keep memory alive. */
const NO_MEMORY: MdMemory = {
  mdName: '',
  memoryType: MemoryType.UNKNOWN,
  sysDevice: undefined,
  address: 0n,
  byteLength: 0,
  bytes: undefined,
  generation: 0,
  live: false,
};

/** The one entry of a request's zero-copy list. */
class RequestEntry implements IovEntry {
  memory: MdMemory;
  offset = 0;
  byteLength = 0;

  constructor(memory: MdMemory) {
    this.memory = memory;
  }
}

/** Options of an nbx call (ucp_request_param_t). Reuse one object: the call keeps nothing of it. */
export interface RequestParams {
  /** Return a request even when the operation ended at once (UCP_OP_ATTR_FLAG_NO_IMM_CMPL). */
  readonly noImmediateCompletion?: boolean;
  /** Runs when the request ends; not for an operation that ended at once. */
  readonly callback?: RequestCallback;
  readonly userData?: unknown;
}

/** The worker behind a request. */
export interface RequestOwner {
  freeRequest(request: Request): void;
  /** Ends a request that is still queued with CANCELED; false for one that a transport already works on. */
  cancelRequest(request: Request): boolean;
}

/** What a request does. */
export const RequestKind = { NONE: 0, RMA: 1, FLUSH: 2 } as const;
export type RequestKind = (typeof RequestKind)[keyof typeof RequestKind];

/** A request. */
export class Request implements Completion {
  /** INPROGRESS until it ends, then final. */
  status: Status = Status.OK;
  /** Operations of transports that have not ended, and their first failure: see Completion. */
  count = 0;
  failure: Status = Status.OK;
  kind: RequestKind = RequestKind.NONE;
  /** For the application. */
  userData: unknown = undefined;
  callback: RequestCallback | undefined = undefined;
  /** True while it waits for resources: it can be cancelled without a trace. */
  queued = false;
  /** What was thrown when the operation was started out of the queue; its status is then that of this error. */
  error: unknown = undefined;

  operation: Operation = Operation.PUT;
  lane: Lane | undefined = undefined;
  protocolIndex: Protocol = Protocol.SHORT;
  rkey: UctRemoteKey | undefined = undefined;
  remoteOffset = 0;
  /** Local bytes of a short operation. */
  bytes: Uint8Array | undefined = undefined;
  localOffset = 0;
  byteLength = 0;
  /** Local memory of a zero-copy operation, as the list that transports take; made at the first such use. */
  iov: RequestEntry[] = [];
  /** Memory that was registered for this operation only. */
  registered: MdMemory | undefined = undefined;
  registrar: MemoryDomain | undefined = undefined;
  /** Lanes that a flush covers. */
  lanes: readonly Lane[] = [];
  readonly #owner: RequestOwner;

  constructor(owner: RequestOwner) {
    this.#owner = owner;
  }

  get isCompleted(): boolean {
    return this.status !== Status.INPROGRESS;
  }

  /** Name of the transport that carries it, such as `gaudi_cpy`; undefined for a flush. */
  get transport(): string | undefined {
    return this.lane?.iface.attributes.resource.transport;
  }

  /** Name of the device that carries it, such as `gaudi0`. */
  get device(): string | undefined {
    return this.lane?.iface.attributes.resource.device;
  }

  /** Name of the protocol, such as `put/zcopy`. */
  get protocol(): string {
    if (this.kind === RequestKind.FLUSH) return 'flush';
    return `${OPERATION_NAMES[this.operation]}/${PROTOCOL_NAMES[this.protocolIndex]}`;
  }

  /**
   * Gives the object back once the operation has ended.
   * @throws UcxError ERR_BUSY before that, ERR_INVALID_PARAM the second time
   */
  free(): void {
    this.#owner.freeRequest(this);
  }

  /**
   * Ends the operation with CANCELED if no transport works on it yet (ucp_request_cancel).
   * @returns false when it is too late: the request ends by itself
   */
  cancel(): boolean {
    return this.#owner.cancelRequest(this);
  }

  /** Makes the request a new operation in progress. */
  begin(kind: RequestKind): void {
    this.kind = kind;
    this.status = Status.INPROGRESS;
    this.count = 1;
    this.failure = Status.OK;
    this.queued = false;
    this.error = undefined;
    this.userData = undefined;
    this.callback = undefined;
  }

  /** Points the zero-copy list at one piece of memory. */
  setEntry(memory: MdMemory, offset: number, byteLength: number): void {
    let entry = this.iov[0];
    if (entry === undefined) {
      entry = new RequestEntry(memory);
      this.iov.push(entry);
    }
    entry.memory = memory;
    entry.offset = offset;
    entry.byteLength = byteLength;
  }

  /** Called by transports when the count has reached 0. */
  onComplete(): void {
    this.end(this.failure);
  }

  /** Ends the request, exactly once. */
  end(status: Status): void {
    this.status = status;
    this.queued = false;
    if (this.registered !== undefined) {
      this.registrar!.memDereg(this.registered, FORCE);
      this.registered = undefined;
      this.registrar = undefined;
    }
    this.bytes = undefined;
    const entry = this.iov[0];
    if (entry !== undefined) entry.memory = NO_MEMORY;
    if (this.callback !== undefined) this.callback(this, status);
  }
}
