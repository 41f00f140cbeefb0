/**
 * Put, get and atomic operations on device memory that no native transport reaches: requests to the worker that owns the memory, which executes them and
 * replies. libucp carries the payload of a put and of the reply to a get as data of active messages, with its own rendezvous.
 *
 * Each operation waits for credit of the peer, sends its request and waits for the reply; a get also waits for its data, which may arrive before or after
 * the reply.
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

/** Limit of unanswered operations per endpoint. */
const UNANSWERED_MAX = 16;

/** A request to the owner of the memory. */
export class OwnerRequest {
  readonly payload: LocalRange<LocalMemory> | undefined;
  /** Destination of the data of a get. */
  readonly target: LocalRange<LocalMemory> | undefined;
  /** Size of the word that the reply to an atomic operation contains. */
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

  static ofTransfer(transfer: RemoteTransfer): OwnerRequest {
    return new OwnerRequest(transfer, transfer);
  }

  static ofWord(word: WordOperation, { rkey, remoteOffset }: RemoteWord): OwnerRequest {
    return new OwnerRequest({ rkey, remoteOffset, byteLength: word.wordBytes }, undefined, word);
  }

  /** Packs the message with a request id. */
  pack(request: number): Uint8Array {
    return packMessage(this.#frame(request), this.#remote.rkey.exportId);
  }

  #frame(request: number): ReturnType<typeof writeRma> {
    const { remoteOffset, byteLength } = this.#remote;
    if (this.#word !== undefined) {
      const { operation, value, compare, wordBytes } = this.#word;
      const atomic = { request, remoteOffset, operation, wordBytes, value, compare };
      return writeAtomic(firstWord(MessageId.ATOMIC), atomic);
    }
    const id = this.payload !== undefined ? MessageId.PUT : MessageId.GET;
    return writeRma(firstWord(id), { request, remoteOffset, byteLength });
  }
}

export class RemoteOperation extends DeviceOperation {
  declare readonly endpoint: EngineEndpoint;
  declare readonly request: UcpRequest;
  /** Unique among the operations of its endpoint; the reply contains it. */
  requestId = 0;
  readonly #remote: OwnerRequests;
  readonly #ownerRequest: OwnerRequest;
  /** Ends the wait for the reply; undefined while no reply is expected. */
  #replied: (() => void) | undefined;
  /** Ends the wait for the data of a get. */
  #gotData: (() => void) | undefined;

  constructor(
    tracker: OperationTracker,
    [endpoint, request]: readonly [EngineEndpoint, UcpRequest],
    remote: OwnerRequests,
    ownerRequest: OwnerRequest,
  ) {
    super(tracker, endpoint, request);
    this.#remote = remote;
    this.#ownerRequest = ownerRequest;
  }

  protected override begin(): void {
    this.#remote.admit(
      this,
      this.wait(() => this.#sendRequest()),
    );
  }

  /** Handles a reply. After a failure it is ignored: the local memory belongs to the caller again. */
  onReply({ id, frame }: CardRequest, message: ReceivedMessage): void {
    if (this.failure !== Status.OK) return;
    if (id === MessageId.DATA) {
      this.#onData(message);
      return;
    }
    const ended = this.#replied;
    this.#replied = undefined;
    if (ended === undefined) return;
    const { wordBytes } = this.#ownerRequest;
    const { status, low, high } = readReply(frame);
    if (wordBytes !== undefined) this.request.atomicResult = BigInt.asUintN(8 * wordBytes, joinBig(low, high));
    this.fail(status);
    ended();
  }

  override onComplete(): void {
    this.#remote.leave(this);
    super.onComplete();
  }

  /** Receives the data of a get; the reply tells whether the owner could read all of it. */
  #onData(message: ReceivedMessage): void {
    const { target } = this.#ownerRequest;
    const ended = this.#gotData;
    this.#gotData = undefined;
    if (target === undefined || target.byteLength !== message.byteLength) {
      this.fail(Status.IO_ERROR);
      return;
    }
    if (ended === undefined) return;
    // Not a wait: libucp writes to the memory until the receive has ended.
    this.count += 1;
    const isWanted = (): boolean => this.failure === Status.OK;
    this.#remote.receives.receiveOwn(message, target, isWanted, (status, error) => {
      this.fail(status, error);
      this.complete(Status.OK);
    });
    ended();
  }

  #sendRequest(): void {
    const { payload, target } = this.#ownerRequest;
    const header = this.#ownerRequest.pack(this.requestId);
    // The reply may arrive before libucp has completed the send.
    this.#replied = this.wait(() => {});
    if (target !== undefined) this.#gotData = this.wait(() => {});
    this.run((params) => this.endpoint.sendOwn(STAGING_AM_ID, header, payload, params));
  }
}

/** The remote operations on one endpoint. */
interface PeerOperations {
  /** Unanswered operations by request id. */
  readonly pending: Map<number, RemoteOperation>;
  /** Operations that wait for credit, with their continuation. */
  readonly waiting: Map<RemoteOperation, () => void>;
}

/** The remote operations of one worker. */
export class OwnerRequests {
  readonly receives: DataReceives;
  readonly #peers: Map<EngineEndpoint, PeerOperations> = new Map();
  #lastId = 0;

  constructor(receives: DataReceives) {
    this.receives = receives;
  }

  /** Handles a reply from the peer of an endpoint; a reply without an operation is dropped. */
  onReply(endpoint: EngineEndpoint, answer: CardRequest, message: ReceivedMessage): void {
    // REPLY and DATA have the request id at the same offset.
    const { request } = readReply(answer.frame);
    this.#peers.get(endpoint)?.pending.get(request)?.onReply(answer, message);
  }

  /** Assigns a request id, and continues the operation: now, or when the limit permits. */
  admit(operation: RemoteOperation, next: () => void): void {
    const { endpoint } = operation;
    const peer = this.#peers.get(endpoint) ?? { pending: new Map(), waiting: new Map() };
    this.#peers.set(endpoint, peer);
    if (peer.pending.size >= UNANSWERED_MAX) peer.waiting.set(operation, next);
    else this.#admit(peer, operation, next);
  }

  /** Removes an ended operation, and continues a waiting one. */
  leave(operation: RemoteOperation): void {
    const { endpoint, requestId, staging } = operation;
    const peer = this.#peers.get(endpoint);
    if (peer === undefined) return;
    const { pending, waiting } = peer;
    waiting.delete(operation);
    if (pending.get(requestId) === operation) {
      pending.delete(requestId);
      for (const [first, next] of waiting) {
        waiting.delete(first);
        this.#admit(peer, first, () => staging.schedule(next));
        break;
      }
    }
    if (pending.size === 0) this.#peers.delete(endpoint);
  }

  #admit({ pending }: PeerOperations, operation: RemoteOperation, next: () => void): void {
    do this.#lastId = (this.#lastId + 1) | 0;
    while (pending.has(this.#lastId));
    operation.requestId = this.#lastId;
    pending.set(operation.requestId, operation);
    next();
  }
}
