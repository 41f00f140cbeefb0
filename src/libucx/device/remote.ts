/**
 * Put, get and atomic operations on memory of cards that no transport of this machine reaches: messages to the owner, whose worker executes and
 * answers them. The owner's side is service.ts.
 *
 * ```
 * WAITING --room at the peer--> ADMITTED --message sent--> ASKED --answer--> ANSWERED --nothing in flight--> end
 *    '-----------------------------'---- failure ------------'------------------------------------------------^
 * ```
 */

import type { ReceivedMessage } from '../../ucp/api/awaited/received-message.ts';
import type { Request } from '../../ucp/api/request.ts';
import type { WordOperation } from '../../ucp/api/word-operation.ts';
import { writeAtomic } from '../../ucp/wire/atomic.ts';
import { MessageId } from '../../ucp/wire/message.ts';
import { readReply } from '../../ucp/wire/reply.ts';
import { writeRma } from '../../ucp/wire/rma.ts';
import { joinBig } from '../../ucs/type/int64.ts';
import { Status } from '../../ucs/type/status.ts';
import { MemAccess } from '../../uct/api/memory-domain.ts';
import type { EngineEndpoint, RemoteTransfer } from '../engine/engine.ts';
import type { LocalMemory } from '../mem/memory-handle.ts';
import type { UcpRemoteKey } from '../mem/remote-key.ts';
import { STAGING_AM_ID } from '../request/arrivals.ts';
import { RequestKind, type UcpRequest } from '../request/request.ts';
import { DeviceOperation, type OperationTracker } from './operation.ts';
import { DataReceive } from './staged/data-receive.ts';
import { type DeviceMessage, firstWord, packMessage } from './wire.ts';

/** Maximum number of unanswered operations of one endpoint. */
const UNANSWERED_MAX = 16;
const NO_PAYLOAD: Range = { memory: new Uint8Array(0), offset: 0, byteLength: 0 };

/** Request to the owner of the memory. */
interface Question {
  /** Packs the message, with a request id. */
  pack(requestId: number): Uint8Array;
  /** Payload of a put. */
  readonly payload?: Range;
  /** Destination of the bytes of a get. */
  readonly target?: Range;
  /** Size of the word returned by an atomic operation. */
  readonly wordBytes?: number;
}

/** A range of local memory. */
interface Range {
  readonly memory: LocalMemory;
  readonly offset: number;
  readonly byteLength: number;
}

/** State of an operation: see the diagram above. */
const RemoteState = {
  /** The limit of unanswered operations is reached. */
  WAITING: 0,
  /** It has a request id. */
  ADMITTED: 1,
  ASKED: 2,
  ANSWERED: 3,
} as const;
type RemoteState = (typeof RemoteState)[keyof typeof RemoteState];

/** An operation that the owner of the memory executes. */
export class RemoteOperation extends DeviceOperation {
  /** Id in the answer, unique among the operations of its endpoint. */
  requestId = 0;
  readonly #remote: RemoteCards;
  readonly #question: Question;
  #state: RemoteState = RemoteState.WAITING;
  /** libucp is sending the message; the answer may arrive before that ends. */
  #isSending = false;
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
  }

  /** Called when the limit allows one more operation. */
  admit(): void {
    this.#state = RemoteState.ADMITTED;
    this.wake();
  }

  /** Handles the answer. One that arrives after a failure is ignored: the local memory belongs to the caller again. */
  answer({ id, frame }: DeviceMessage, message: ReceivedMessage): void {
    if (this.#state === RemoteState.ANSWERED || this.failure !== Status.OK) return;
    this.#state = RemoteState.ANSWERED;
    const { target, wordBytes } = this.#question;
    if (id === MessageId.DATA && target?.byteLength === message.byteLength) {
      this.#take(target, message);
      return;
    }
    const { status, low, high } = readReply(frame);
    if (id === MessageId.DATA || (status === Status.OK && target !== undefined)) this.#fail(Status.IO_ERROR);
    else if (status < 0) this.#fail(status);
    else if (wordBytes !== undefined) this.request!.atomicResult = BigInt.asUintN(8 * wordBytes, joinBig(low, high));
    this.wake();
  }

  override abort(status: Status): void {
    super.abort(status);
    this.#receive?.cancel();
  }

  protected override advance(): void {
    if (this.failure === Status.OK) {
      if (this.#state === RemoteState.WAITING && this.#remote.tryAdmit(this)) this.#state = RemoteState.ADMITTED;
      if (this.#state === RemoteState.ADMITTED) this.#send();
    }
    const isOver = this.failure !== Status.OK || this.#state === RemoteState.ANSWERED;
    if (!isOver || this.#isSending || this.#receive !== undefined) return;
    this.#remote.leave(this, this.#state !== RemoteState.WAITING);
    this.end();
  }

  #fail(status: Status): void {
    if (this.failure === Status.OK) this.failure = status;
  }

  #take({ memory, offset }: Range, message: ReceivedMessage): void {
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
    buffers.init(request, memory, offset, byteLength, false, MemAccess.LOCAL_READ);
    this.#state = RemoteState.ASKED;
    const header = this.#question.pack(this.requestId);
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

/** The request of a put or get. */
export function transferQuestion(transfer: RemoteTransfer): Question {
  const { isPut, local, localOffset, byteLength, rkey, remoteOffset } = transfer;
  const id = isPut ? MessageId.PUT : MessageId.GET;
  const range = { memory: local, offset: localOffset, byteLength };
  const pack = (request: number): Uint8Array =>
    packMessage(writeRma(firstWord(id), { request, remoteOffset, byteLength }), rkey.exportId);
  return isPut ? { pack, payload: range } : { pack, target: range };
}

/** The request of an atomic operation. */
export function atomicQuestion(call: WordOperation, { exportId }: UcpRemoteKey, remoteOffset: number): Question {
  const { operation, value, compare, wordBytes } = call;
  const asked = { remoteOffset, operation, wordBytes, value, compare };
  const pack = (request: number): Uint8Array =>
    packMessage(writeAtomic(firstWord(MessageId.ATOMIC), { ...asked, request }), exportId);
  return { pack, wordBytes };
}

/** The operations on one endpoint. */
interface Window {
  /** Unanswered operations, by request id. */
  readonly asked: Map<number, RemoteOperation>;
  /** Operations that wait for the limit. */
  readonly waiting: Set<RemoteOperation>;
}

/** The operations of one worker that remote owners execute. */
export class RemoteCards {
  readonly #windows: Map<EngineEndpoint, Window> = new Map();
  #lastId = 0;

  /** Handles an answer from the peer of an endpoint; one without an operation is dropped. */
  answered(endpoint: EngineEndpoint, answer: DeviceMessage, message: ReceivedMessage): void {
    // REPLY and DATA have the request id at the same place.
    const { request } = readReply(answer.frame);
    this.#windows.get(endpoint)?.asked.get(request)?.answer(answer, message);
  }

  /** @returns false at the limit: {@link RemoteOperation.admit} is called when it allows the operation */
  tryAdmit(operation: RemoteOperation): boolean {
    const { endpoint } = operation;
    let window = this.#windows.get(endpoint);
    if (window === undefined) {
      window = { asked: new Map(), waiting: new Set() };
      this.#windows.set(endpoint, window);
    }
    if (window.asked.size >= UNANSWERED_MAX) {
      window.waiting.add(operation);
      return false;
    }
    this.#admit(window, operation);
    return true;
  }

  /** Removes an ended operation. */
  leave(operation: RemoteOperation, wasAdmitted: boolean): void {
    const { endpoint, requestId } = operation;
    const window = this.#windows.get(endpoint);
    if (window === undefined) return;
    window.waiting.delete(operation);
    if (wasAdmitted) {
      window.asked.delete(requestId);
      const [next] = window.waiting;
      if (next !== undefined) {
        window.waiting.delete(next);
        this.#admit(window, next);
        next.admit();
      }
    }
    if (window.asked.size === 0) this.#windows.delete(endpoint);
  }

  #admit({ asked }: Window, operation: RemoteOperation): void {
    do this.#lastId = (this.#lastId + 1) | 0;
    while (asked.has(this.#lastId));
    operation.requestId = this.#lastId;
    asked.set(operation.requestId, operation);
  }
}
