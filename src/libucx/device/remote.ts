/**
 * Put, get and atomic operations on memory of cards that no transport of this machine reaches: messages to the owner, whose worker executes them and
 * replies. libucp carries the payload of a put and of the reply to a get by active messages and its rendezvous, so this engine requests no windows.
 *
 * Each operation waits for credit of the peer, then sends its message and waits for the reply; a get also for its bytes, which may come before or after
 * it.
 */

import type { ReceivedMessage } from '../../api/awaited/messages.ts';
import { MessageId } from '../../api/layout/message.ts';
import { readReply } from '../../api/layout/rendezvous.ts';
import { writeAtomic, writeRma } from '../../api/layout/rma.ts';
import type { LocalRange } from '../../api/memory/local.ts';
import type { RemoteRange } from '../../api/memory/owned.ts';
import { Operation } from '../../api/operation/call.ts';
import type { WordOperation } from '../../api/operation/word-operation.ts';
import { joinBig } from '../../ucs/type/int64.ts';
import { Status } from '../../ucs/type/status.ts';
import type { EngineEndpoint, RemoteTransfer, RemoteWord } from '../engine/engine.ts';
import type { LocalMemory } from '../mem/memory-handle.ts';
import type { UcpRemoteKey } from '../mem/remote-key.ts';
import { STAGING_AM_ID } from '../request/arrivals.ts';
import type { UcpRequest } from '../request/request.ts';
import { type CardRequest, firstWord, packMessage } from './layout.ts';
import { DeviceOperation, type OperationTracker } from './operation.ts';
import type { DataReceives } from './receives.ts';

/** Maximum number of unanswered operations of one endpoint. */
const UNANSWERED_MAX = 16;

/** What the owner of the memory is asked for. */
export class OwnerRequest {
  /** Payload of a put. */
  readonly payload: LocalRange<LocalMemory> | undefined;
  /** Destination of the bytes of a get. */
  readonly target: LocalRange<LocalMemory> | undefined;
  /** Size of the word that an atomic operation returns. */
  readonly wordBytes: number | undefined;
  readonly #word: WordOperation | undefined;
  readonly #remote: RemoteRange<UcpRemoteKey>;

  private constructor(remote: RemoteRange<UcpRemoteKey>, transfer?: RemoteTransfer, word?: WordOperation) {
    this.#remote = remote;
    this.payload = transfer?.operation === Operation.PUT ? transfer : undefined;
    this.target = transfer?.operation === Operation.GET ? transfer : undefined;
    this.#word = word;
    this.wordBytes = word?.wordBytes;
  }

  /** The request of a put or get. */
  static ofTransfer(transfer: RemoteTransfer): OwnerRequest {
    return new OwnerRequest(transfer, transfer);
  }

  /** The request of an atomic operation. */
  static ofWord(word: WordOperation, { rkey, remoteOffset }: RemoteWord): OwnerRequest {
    return new OwnerRequest({ rkey, remoteOffset, byteLength: word.wordBytes }, undefined, word);
  }

  /** Packs the message, with a request id. */
  pack(request: number): Uint8Array {
    return packMessage(this.#frame(request), this.#remote.rkey.exportId);
  }

  #frame(request: number): ReturnType<typeof writeRma> {
    const { remoteOffset, byteLength } = this.#remote;
    if (this.#word !== undefined) {
      const { operation, value, compare, wordBytes } = this.#word;
      const asked = { request, remoteOffset, operation, wordBytes, value, compare };
      return writeAtomic(firstWord(MessageId.ATOMIC), asked);
    }
    const id = this.payload !== undefined ? MessageId.PUT : MessageId.GET;
    return writeRma(firstWord(id), { request, remoteOffset, byteLength });
  }
}

/** An operation that the owner of the memory executes. */
export class RemoteOperation extends DeviceOperation {
  declare readonly endpoint: EngineEndpoint;
  declare readonly request: UcpRequest;
  /** Id in the answer, unique among the operations of its endpoint. */
  requestId = 0;
  readonly #remote: OwnerRequests;
  readonly #asked: OwnerRequest;
  /** Ends the wait for the reply; undefined before the message is sent, and once the reply has come. */
  #replied: (() => void) | undefined;
  /** The same for the bytes of a get. */
  #gotData: (() => void) | undefined;

  constructor(
    tracker: OperationTracker,
    [endpoint, request]: readonly [EngineEndpoint, UcpRequest],
    remote: OwnerRequests,
    asked: OwnerRequest,
  ) {
    super(tracker, endpoint, request);
    this.#remote = remote;
    this.#asked = asked;
  }

  protected override begin(): void {
    this.#remote.admit(
      this,
      this.wait(() => this.#ask()),
    );
  }

  /** Handles the answer. One that arrives after a failure is ignored: the local memory belongs to the caller again. */
  answer({ id, frame }: CardRequest, message: ReceivedMessage): void {
    if (this.failure !== Status.OK) return;
    if (id === MessageId.DATA) {
      this.#onData(message);
      return;
    }
    const ended = this.#replied;
    this.#replied = undefined;
    if (ended === undefined) return;
    const { wordBytes } = this.#asked;
    const { status, low, high } = readReply(frame);
    if (wordBytes !== undefined) this.request.atomicResult = BigInt.asUintN(8 * wordBytes, joinBig(low, high));
    this.fail(status);
    ended();
  }

  override onComplete(): void {
    this.#remote.leave(this);
    super.onComplete();
  }

  /** Receives the bytes of a get; the reply says whether the owner could read all of them. */
  #onData(message: ReceivedMessage): void {
    const { target } = this.#asked;
    const ended = this.#gotData;
    this.#gotData = undefined;
    if (target === undefined || target.byteLength !== message.byteLength) {
      this.fail(Status.IO_ERROR);
      return;
    }
    if (ended === undefined) return;
    // Not a wait: libucp writes to the memory until it has ended.
    this.count += 1;
    const isWanted = (): boolean => this.failure === Status.OK;
    this.#remote.receives.receiveOwn(message, target, isWanted, (status, error) => {
      this.fail(status, error);
      this.complete(Status.OK);
    });
    ended();
  }

  #ask(): void {
    const { payload, target } = this.#asked;
    const header = this.#asked.pack(this.requestId);
    // The answer may arrive before libucp has ended the message.
    this.#replied = this.wait(() => {});
    if (target !== undefined) this.#gotData = this.wait(() => {});
    this.run((params) => this.endpoint.sendOwn(STAGING_AM_ID, header, payload, params));
  }
}

/** The operations on one endpoint. */
interface Window {
  /** Unanswered operations, by request id. */
  readonly asked: Map<number, RemoteOperation>;
  /** Operations that wait for the limit, with their continuation. */
  readonly waiting: Map<RemoteOperation, () => void>;
}

/** The operations of one worker that remote owners execute. */
export class OwnerRequests {
  readonly receives: DataReceives;
  readonly #windows: Map<EngineEndpoint, Window> = new Map();
  #lastId = 0;

  constructor(receives: DataReceives) {
    this.receives = receives;
  }

  /** Handles an answer from the peer of an endpoint; one without an operation is dropped. */
  answered(endpoint: EngineEndpoint, answer: CardRequest, message: ReceivedMessage): void {
    // REPLY and DATA have the request id at the same place.
    const { request } = readReply(answer.frame);
    this.#windows.get(endpoint)?.asked.get(request)?.answer(answer, message);
  }

  /** Gives an operation its request id, and continues it: now, or when the limit allows it. */
  admit(operation: RemoteOperation, next: () => void): void {
    const { endpoint } = operation;
    const window = this.#windows.get(endpoint) ?? { asked: new Map(), waiting: new Map() };
    this.#windows.set(endpoint, window);
    if (window.asked.size >= UNANSWERED_MAX) window.waiting.set(operation, next);
    else this.#admit(window, operation, next);
  }

  /** Removes an ended operation. */
  leave(operation: RemoteOperation): void {
    const { endpoint, requestId, staging } = operation;
    const window = this.#windows.get(endpoint);
    if (window === undefined) return;
    const { asked, waiting } = window;
    waiting.delete(operation);
    if (asked.get(requestId) === operation) {
      asked.delete(requestId);
      for (const [first, next] of waiting) {
        waiting.delete(first);
        this.#admit(window, first, () => staging.schedule(next));
        break;
      }
    }
    if (asked.size === 0) this.#windows.delete(endpoint);
  }

  #admit({ asked }: Window, operation: RemoteOperation, next: () => void): void {
    do this.#lastId = (this.#lastId + 1) | 0;
    while (asked.has(this.#lastId));
    operation.requestId = this.#lastId;
    asked.set(operation.requestId, operation);
    next();
  }
}
