/**
 * Put, get and atomic operations on memory of cards that no transport of this machine reaches: messages to the owner, whose worker runs them and answers. The side of
 * the owner is service.ts.
 */

import type { AmMessage } from '../../ucp/api/active-message.ts';
import type { Request } from '../../ucp/api/request.ts';
import type { WordOperation } from '../../ucp/api/word-operation.ts';
import { systemRandomBytes } from '../../ucs/sys/random.ts';
import { Status } from '../../ucs/type/status.ts';
import type { EngineEndpoint, RemoteTransfer } from '../engine/engine.ts';
import type { LocalMemory } from '../mem/memory-handle.ts';
import type { UcpRemoteKey } from '../mem/remote-key.ts';
import { STAGING_AM_ID } from '../request/arrivals.ts';
import { RequestKind, type UcpRequest } from '../request/request.ts';
import { DataReceive } from './data-receive.ts';
import { DeviceOperation, type OperationTracker } from './operation.ts';
import { NOTHING_ELSE, packWireHeader, type WireHeader, WireKind } from './wire.ts';

/** Operations of one endpoint that its peer has been asked for and has not answered. */
const UNANSWERED_MAX = 16;
const ID_BYTES = 6;
const NO_PAYLOAD: Range = { memory: new Uint8Array(0), offset: 0, byteLength: 0 };

/** What the owner of the memory is asked for. */
interface Question {
  readonly header: Omit<WireHeader, 'id'>;
  /** Bytes that go with it, those of a put. */
  readonly payload?: Range;
  /** Where the bytes of the answer belong, those of a get. */
  readonly target?: Range;
}

/** A range of local memory. */
interface Range {
  readonly memory: LocalMemory;
  readonly offset: number;
  readonly byteLength: number;
}

/** An operation that the owner of the memory runs. */
export class RemoteOperation extends DeviceOperation {
  readonly id: number;
  readonly #remote: RemoteCards;
  readonly #question: Question;
  #isAdmitted = false;
  #isSent = false;
  #isSending = false;
  #isAnswered = false;
  #receive: DataReceive | undefined;

  constructor(
    tracker: OperationTracker,
    [endpoint, request]: readonly [EngineEndpoint, UcpRequest],
    remote: RemoteCards,
    question: Question,
  ) {
    super(tracker, endpoint, request);
    this.#remote = remote;
    this.#question = question;
    this.id = remote.newId();
  }

  /** The peer has room for one more. */
  admit(): void {
    this.#isAdmitted = true;
    this.wake();
  }

  /** Takes the answer. One that comes after a failure is ignored: the local memory is the caller's again. */
  answer({ kind, status, value }: WireHeader, message: AmMessage): void {
    if (this.#isAnswered || this.failure !== Status.OK) return;
    this.#isAnswered = true;
    const { header, target } = this.#question;
    const isData = kind === WireKind.DATA && message.byteLength === target?.byteLength;
    if (target !== undefined && isData) {
      this.#take(target, message);
      return;
    }
    if (kind === WireKind.DONE && status < 0) this.#fail(status as Status);
    else if (kind !== WireKind.DONE || status > 0 || target !== undefined) this.#fail(Status.IO_ERROR);
    else if (header.kind === WireKind.ATOMIC)
      this.request!.atomicResult = header.byteLength === 4 ? BigInt.asUintN(32, value) : value;
    this.wake();
  }

  override abort(status: Status): void {
    super.abort(status);
    this.#receive?.cancel();
  }

  protected override advance(): void {
    if (this.failure === Status.OK) {
      if (!this.#isAdmitted) this.#isAdmitted = this.#remote.tryAdmit(this);
      if (this.#isAdmitted && !this.#isSent) this.#send();
    }
    const isOver = this.failure !== Status.OK || this.#isAnswered;
    if (!isOver || this.#isSending || this.#receive !== undefined) return;
    this.#remote.leave(this, this.#isAdmitted);
    this.end();
  }

  #fail(status: Status): void {
    if (this.failure === Status.OK) this.failure = status;
  }

  #take({ memory, offset }: Range, message: AmMessage): void {
    this.#receive = new DataReceive(this.staging, message, [memory, offset], (status) => {
      this.#receive = undefined;
      if (status < 0) this.#fail(status);
      this.wake();
    });
    this.#receive.run();
  }

  #send(): void {
    const { requests, buffers } = this.staging.worker;
    const request = requests.begin(RequestKind.SEND, 'am/libucp');
    if (request === undefined) {
      this.wake();
      return;
    }
    const { memory, offset, byteLength } = this.#question.payload ?? NO_PAYLOAD;
    buffers.describe(request, memory, offset, byteLength, false);
    this.#isSent = true;
    const header = packWireHeader({ ...this.#question.header, id: this.id });
    const callback = (ended: Request, status: Status): void => {
      ended.free();
      this.#isSending = false;
      if (status < 0) this.#fail(status);
      this.wake();
    };
    const started = this.endpoint.sendMessage(request, STAGING_AM_ID, header, { callback });
    if (typeof started !== 'number') this.#isSending = true;
    else if (started < 0) this.#fail(started);
  }
}

/** The question of a put or get. */
export function transferQuestion(transfer: RemoteTransfer): Question {
  const { isPut, local, localOffset, byteLength, rkey, remoteOffset } = transfer;
  const kind = isPut ? WireKind.WRITE : WireKind.READ;
  const header = { ...NOTHING_ELSE, kind, exportId: rkey.exportId, offset: remoteOffset, byteLength };
  const range = { memory: local, offset: localOffset, byteLength };
  return isPut ? { header, payload: range } : { header, target: range };
}

/** The question of an atomic operation. */
export function atomicQuestion(call: WordOperation, { exportId }: UcpRemoteKey, offset: number): Question {
  const { operation, value, compare, wordBytes: byteLength } = call;
  return {
    header: { ...NOTHING_ELSE, kind: WireKind.ATOMIC, operation, value, compare, byteLength, exportId, offset },
  };
}

/** The operations of one worker that owners elsewhere run. */
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

  /** Takes an answer that has arrived; one without an operation is dropped. */
  answered(header: WireHeader, message: AmMessage): void {
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
