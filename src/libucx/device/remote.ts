/**
 * Put, get and atomic operations on memory of cards that no transport of this machine reaches: messages to the owner, whose worker does what they say and answers.
 * The other side is device-service.ts.
 */

import type { ReceivedMessage } from '../../ucp/api/received-message.ts';
import type { Request } from '../../ucp/api/request.ts';
import type { WordOperation } from '../../ucp/api/word-operation.ts';
import { systemRandomBytes } from '../../ucs/sys/random.ts';
import { Status } from '../../ucs/type/status.ts';
import type { EngineEndpoint } from '../engine/engine.ts';
import { type LocalMemory, UcpMemory } from '../mem/memory-handle.ts';
import type { UcpRemoteKey } from '../mem/remote-key.ts';
import { STAGING_AM_ID } from '../request/arrivals.ts';
import { RequestKind, type UcpRequest } from '../request/request.ts';
import { DataReceive } from './data-receive.ts';
import { DeviceOperation, type OperationTracker } from './operation.ts';
import type { RemoteTransfer } from './transfer.ts';
import { NOTHING_ELSE, packWireHeader, type WireHeader, WireKind } from './wire.ts';

/** Operations of one endpoint that its peer has been asked for and has not answered. */
const UNANSWERED_MAX = 16;
const ID_BYTES = 6;
const NO_BYTES = new Uint8Array(0);

/** Payload of a question. */
interface Payload {
  readonly memory: LocalMemory;
  readonly offset: number;
  readonly byteLength: number;
}

/** An operation that the owner of the memory does. */
abstract class RemoteOperation extends DeviceOperation {
  readonly id: number;
  readonly #remote: RemoteCards;
  #isAdmitted = false;
  #isSent = false;
  #isSending = false;
  protected isAnswered = false;

  constructor(tracker: OperationTracker, endpoint: EngineEndpoint, request: UcpRequest, remote: RemoteCards) {
    super(tracker, endpoint, request);
    this.#remote = remote;
    this.id = remote.newId();
  }

  /** The peer has room for one more. */
  admit(): void {
    this.#isAdmitted = true;
    this.wake();
  }

  /** Takes an answer. */
  abstract answer(header: WireHeader, message: ReceivedMessage): void;

  protected abstract question(): Omit<WireHeader, 'id'>;
  protected abstract payload(): Payload | undefined;
  /** The answer is still being taken. */
  protected get isTaking(): boolean {
    return false;
  }

  protected fail(status: Status): void {
    if (this.failure === Status.OK) this.failure = status;
  }

  protected override advance(): void {
    if (this.failure === Status.OK) {
      if (!this.#isAdmitted) this.#isAdmitted = this.#remote.tryAdmit(this);
      if (this.#isAdmitted && !this.#isSent) this.#send();
    }
    const isOver = this.failure !== Status.OK || this.isAnswered;
    if (!isOver || this.#isSending || this.isTaking) return;
    this.#remote.leave(this, this.#isAdmitted);
    this.end();
  }

  #send(): void {
    const { requests, buffers } = this.staging.worker;
    const request = requests.begin(RequestKind.SEND, 'am/libucp');
    if (request === undefined) {
      this.wake();
      return;
    }
    const { memory, offset, byteLength } = this.payload() ?? { memory: NO_BYTES, offset: 0, byteLength: 0 };
    buffers.describe(request, memory, offset, byteLength, false);
    this.#isSent = true;
    const header = packWireHeader({ ...this.question(), id: this.id });
    const callback = (ended: Request, status: Status): void => {
      ended.free();
      this.#isSending = false;
      if (status < 0) this.fail(status);
      this.wake();
    };
    const started = this.endpoint.sendMessage(request, STAGING_AM_ID, header, { callback });
    if (typeof started !== 'number') this.#isSending = true;
    else if (started < 0) this.fail(started);
  }
}

/** A put. */
export class RemoteWrite extends RemoteOperation {
  readonly #transfer: RemoteTransfer;

  constructor(tracker: OperationTracker, request: UcpRequest, remote: RemoteCards, transfer: RemoteTransfer) {
    super(tracker, transfer.endpoint, request, remote);
    this.#transfer = transfer;
  }

  override answer({ kind, status }: WireHeader): void {
    if (kind !== WireKind.DONE || status > 0) this.fail(Status.IO_ERROR);
    else if (status < 0) this.fail(status as Status);
    this.isAnswered = true;
    this.wake();
  }

  protected override question(): Omit<WireHeader, 'id'> {
    const { rkey, remoteOffset, byteLength } = this.#transfer;
    return { ...NOTHING_ELSE, kind: WireKind.WRITE, exportId: rkey.exportId, offset: remoteOffset, byteLength };
  }

  protected override payload(): Payload {
    const { local, localOffset, byteLength } = this.#transfer;
    return { memory: local, offset: localOffset, byteLength };
  }
}

/** A get. */
export class RemoteRead extends RemoteOperation {
  readonly #transfer: RemoteTransfer;
  #receive: DataReceive | undefined;

  constructor(tracker: OperationTracker, request: UcpRequest, remote: RemoteCards, transfer: RemoteTransfer) {
    super(tracker, transfer.endpoint, request, remote);
    this.#transfer = transfer;
  }

  override answer({ kind, status }: WireHeader, message: ReceivedMessage): void {
    // Once an operation is given up, its memory is its caller's again.
    if (this.isAnswered || this.failure !== Status.OK) return;
    this.isAnswered = true;
    const { local, localOffset, byteLength } = this.#transfer;
    if (kind !== WireKind.DATA || message.byteLength !== byteLength) {
      this.fail(kind === WireKind.DONE && status < 0 ? (status as Status) : Status.IO_ERROR);
      this.wake();
      return;
    }
    this.#receive = new DataReceive(this.staging, message, [local, localOffset], (final) => {
      this.#receive = undefined;
      if (final < 0) this.fail(final);
      this.wake();
    });
    this.#receive.run();
  }

  override abort(status: Status): void {
    super.abort(status);
    this.#receive?.cancel();
  }

  protected override get isTaking(): boolean {
    return this.#receive !== undefined;
  }

  protected override question(): Omit<WireHeader, 'id'> {
    const { rkey, remoteOffset, byteLength } = this.#transfer;
    return { ...NOTHING_ELSE, kind: WireKind.READ, exportId: rkey.exportId, offset: remoteOffset, byteLength };
  }

  protected override payload(): undefined {
    return undefined;
  }
}

/** An atomic operation. */
export class RemoteAtomic extends RemoteOperation {
  readonly #call: WordOperation;
  readonly #rkey: UcpRemoteKey;
  readonly #offset: number;

  constructor(
    tracker: OperationTracker,
    [endpoint, request]: readonly [EngineEndpoint, UcpRequest],
    remote: RemoteCards,
    call: WordOperation,
    [rkey, offset]: readonly [UcpRemoteKey, number],
  ) {
    super(tracker, endpoint, request, remote);
    this.#call = call;
    this.#rkey = rkey;
    this.#offset = offset;
  }

  override answer({ kind, status, value }: WireHeader): void {
    if (kind !== WireKind.DONE || status > 0) this.fail(Status.IO_ERROR);
    else if (status < 0) this.fail(status as Status);
    else this.request!.atomicResult = this.#call.wordBytes === 4 ? BigInt.asUintN(32, value) : value;
    this.isAnswered = true;
    this.wake();
  }

  protected override question(): Omit<WireHeader, 'id'> {
    const { operation, value, compare, wordBytes } = this.#call;
    const { exportId } = this.#rkey;
    const words = { operation, value, compare, byteLength: wordBytes };
    return { ...NOTHING_ELSE, ...words, kind: WireKind.ATOMIC, exportId, offset: this.#offset };
  }

  protected override payload(): undefined {
    return undefined;
  }
}

/** The operations of one worker that owners elsewhere do. */
export class RemoteCards {
  readonly #unanswered: Map<number, RemoteOperation> = new Map();
  /** Operations of an endpoint that are asked for, and those that wait for room. */
  readonly #windows: Map<EngineEndpoint, { open: number; readonly waiting: Set<RemoteOperation> }> = new Map();

  /** A number that no other peer guesses. */
  newId(): number {
    for (;;) {
      const id = Buffer.from(systemRandomBytes(ID_BYTES)).readUIntLE(0, ID_BYTES);
      if (!this.#unanswered.has(id)) return id;
    }
  }

  /** Takes an answer that has arrived; one that nobody waits for is dropped. */
  answered(header: WireHeader, message: ReceivedMessage): void {
    this.#unanswered.get(header.id)?.answer(header, message);
  }

  /** @returns false when too many are asked for: {@link RemoteOperation.admit} tells when there is room */
  tryAdmit(operation: RemoteOperation): boolean {
    const { endpoint, id } = operation;
    let window = this.#windows.get(endpoint);
    if (window === undefined) {
      window = { open: 0, waiting: new Set() };
      this.#windows.set(endpoint, window);
    }
    if (window.open >= UNANSWERED_MAX) {
      window.waiting.add(operation);
      return false;
    }
    window.open += 1;
    this.#unanswered.set(id, operation);
    return true;
  }

  /** An operation has ended. */
  leave(operation: RemoteOperation, wasAdmitted: boolean): void {
    const { endpoint, id } = operation;
    const window = this.#windows.get(endpoint);
    if (window === undefined) return;
    window.waiting.delete(operation);
    if (wasAdmitted) {
      this.#unanswered.delete(id);
      const [next] = window.waiting;
      if (next === undefined) {
        window.open -= 1;
      } else {
        window.waiting.delete(next);
        this.#unanswered.set(next.id, next);
        next.admit();
      }
    }
    if (window.open === 0) this.#windows.delete(endpoint);
  }
}

/** The local side of a transfer is on a card here. */
export function isOnCard(local: LocalMemory): local is UcpMemory {
  return local instanceof UcpMemory && local.bytes === undefined;
}
