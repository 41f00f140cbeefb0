/** Active messages: sends, and the AM handlers of received messages. The data of a long message stays at the sender until the handler fetches it. */

import { type MessageHandler, type MessageHandlers, ReceivedMessage } from '../../api/awaited/messages.ts';
import { AM_HEADER_BYTES_MAX, AM_IDS, checkAmHeader, checkAmId, isAmId } from '../../api/contract/active-message.ts';
import type { RequestParams } from '../../api/contract/request.ts';
import { AM_BYTES, AM_RTS_BYTES, paddedTo8, readAm, readAmRts, writeAm, writeAmRts } from '../../api/layout/am.ts';
import { NO_ENDPOINT } from '../../api/layout/frame.ts';
import { MessageId } from '../../api/layout/message.ts';
import {
  areHost,
  areMapped,
  bytesOf,
  checkLocal,
  cut,
  type GivenMemory,
  isRangeOfBytes,
  pieceOf,
  piecesOf,
} from '../../api/memory/local.ts';
import { invalidParam, outsideOf } from '../../ucs/type/error.ts';
import { Status } from '../../ucs/type/status.ts';
import type { AmFrame } from '../../uct/api/iface.ts';
import { MemAccess } from '../../uct/api/memory-domain.ts';
import type { Connection } from '../base/connection.ts';
import { lacksCredit, sendAfterPuts, sendMessage, sendPieces, shortBytes } from '../base/message-packer.ts';
import { WorkerCounter } from '../base/observation.ts';
import type { Notice } from '../base/request/list-request.ts';
import type { SendRequest } from '../base/request/operation-requests.ts';
import type { Request } from '../base/request/request.ts';
import type { UcpCall, WorkerCore } from '../base/worker-core.ts';
import { KEPT_OVERHEAD_BYTES } from '../credit/credit.ts';
import type { Lane } from '../lane/lanes.ts';
import { type LocalBuffer, type LocalMemory, type LocalPiece, plainBytesOf } from '../mem/memory-handle.ts';
import type { Rendezvous } from '../rndv/rendezvous.ts';
import { postReply } from '../rndv/reply.ts';

/** The state of a long message whose data is still at the sender, and the key by which it is fetched. */
export interface WaitingData {
  /** True once the sender has withdrawn the message: it can no longer be received. */
  isWithdrawn: boolean;
  /** True once the program has received or discarded it. */
  isTaken: boolean;
  readonly peerRequest: number;
  readonly packedKey: Uint8Array | undefined;
  readonly keyOffset: number;
}

/** A received message of this engine. */
export type PeerMessage = ReceivedMessage<Connection, WaitingData>;

const NO_BYTES = new Uint8Array(0);
/** Empty data, for messages that consist of a header only. */
const NO_DATA: readonly LocalPiece[] = [{ memory: NO_BYTES, offset: 0, byteLength: 0, start: 0 }];
/** AM id of notifications, above the ids of applications. */
export const NOTIFICATION_ID: number = AM_IDS;

export class ActiveMessages implements MessageHandlers {
  readonly #host: WorkerCore;
  readonly #rendezvous: Rendezvous;
  /** Null for an id whose handler was removed: its messages are dropped on purpose. */
  readonly #handlers: (MessageHandler | null | undefined)[] = [];
  /** The message that is passed to handlers: one reused object, because handlers run one after the other. */
  readonly #view: PeerMessage;
  #heldBytes = 0;

  constructor(host: WorkerCore<WaitingData>, rendezvous: Rendezvous) {
    this.#host = host;
    this.#rendezvous = rendezvous;
    this.#view = new ReceivedMessage(host);
  }

  /** See Worker.setAmHandler. */
  setHandler(id: number, handler: MessageHandler | undefined): void {
    if (handler !== undefined && typeof handler !== 'function') {
      throw invalidParam('handler', 'must be a function, or undefined to remove it', handler);
    }
    this.#handlers[id] = handler ?? null;
  }

  /** Memory of queued messages, in bytes. */
  get heldBytes(): number {
    return this.#heldBytes;
  }

  handlerOf(id: number): MessageHandler | undefined {
    return this.#handlers[id] ?? undefined;
  }

  /**
   * Sends a few bytes of host memory without a header and without a request, if possible.
   * @returns OK or a failure if the send has ended; NO_RESOURCE if it needs a request, whose start also checks the arguments
   */
  tryShort(connection: Connection, id: number, local: LocalBuffer, localOffset: number, byteLength: number): Status {
    const bytes = plainBytesOf(local, this.#host.context);
    if (bytes === undefined || !isRangeOfBytes(bytes, localOffset, byteLength)) return Status.NO_RESOURCE;
    const cost = byteLength + KEPT_OVERHEAD_BYTES;
    const isShort = AM_BYTES + byteLength <= connection.amShortMax && byteLength < connection.rendezvousThreshold;
    if (!isShort || !connection.canSendAtOnce(cost) || !isAmId(id)) return Status.NO_RESOURCE;
    const words = writeAm(connection.remoteId, id, 0);
    const status = sendMessage(connection, MessageId.AM, words, bytes, localOffset, byteLength);
    if (status === Status.NO_RESOURCE) return status;
    connection.credit.bytes -= cost;
    this.#host.counters.count(WorkerCounter.AM_TX);
    return status;
  }

  /** See Endpoint.amSendNbx. */
  send(call: UcpCall): Status | Request {
    checkAmId(call.amId);
    const { connection, pieces } = call;
    if (pieces === undefined) checkLocal(this.#host.context, call, MemAccess.LOCAL_READ);
    if (connection.failure !== Status.OK) return connection.failure;
    return this.#start(call, connection.messageLane(), pieces ?? [pieceOf(call)]);
  }

  /** Sends a notification: an internal active message without data. */
  notify(connection: Connection, { bytes, id = NOTIFICATION_ID }: Notice, params: RequestParams): Status | Request {
    if (connection.failure !== Status.OK) return connection.failure;
    const call = this.#host.call.begin(connection, params);
    call.amId = id;
    call.amHeader = bytes;
    call.protocol = undefined;
    try {
      return this.#start(call, connection.messageLane(), NO_DATA);
    } finally {
      call.end();
    }
  }

  /**
   * Sends a notification behind the last puts of the message lane, which may be in flight: the peer receives it only if they arrive.
   * @returns OK, or the reason why it has to wait until the puts have ended
   */
  notifyAfterPuts(connection: Connection, { bytes, id = NOTIFICATION_ID }: Notice, puts: number): Status {
    const { credit, remoteId } = connection;
    const padded = paddedTo8(bytes.byteLength);
    const cost = padded + KEPT_OVERHEAD_BYTES;
    if (remoteId === NO_ENDPOINT || credit.bytes < cost) return Status.UNSUPPORTED;
    const payload = new Uint8Array(padded);
    payload.set(bytes);
    const header = writeAm(remoteId, id, bytes.byteLength);
    const message = { messageId: MessageId.AM, failedId: MessageId.AM_VOID, header, payload };
    const status = sendAfterPuts(connection, message, puts);
    if (status !== Status.OK) return status;
    credit.bytes -= cost;
    this.#count(WorkerCounter.AM_TX, id);
    return status;
  }

  /** @param isVoid true for a notification whose puts have failed: it is not delivered */
  onEager(frame: AmFrame, isVoid = false): void {
    const connection = this.#host.connectionOf(frame);
    if (connection === undefined) return;
    const { inbound } = connection;
    const cost = frame.byteLength - AM_BYTES + KEPT_OVERHEAD_BYTES;
    if (!inbound.arrive(cost)) {
      this.#host.breaksProtocol(connection, 'it sent an active message without credit');
      return;
    }
    if (isVoid || !this.#handleEager(frame, connection, cost)) inbound.release(cost);
    else inbound.settle();
  }

  /** @returns true if the message was queued */
  #handleEager(frame: AmFrame, connection: Connection, cost: number): boolean {
    const { handler, headerBytes, headerAt, dataAt, dataBytes } = readAm(frame);
    if (headerBytes < 0 || headerBytes > AM_HEADER_BYTES_MAX || dataBytes < 0) return false;
    const view = this.#take(connection, handler);
    if (view === undefined) return false;
    view.source = frame.bytes;
    view.headerOffset = headerAt;
    view.headerLength = headerBytes;
    view.dataOffset = dataAt;
    view.byteLength = dataBytes;
    view.waiting = undefined;
    view.cost = cost;
    this.#count(WorkerCounter.AM_RX, handler);
    this.#call(view);
    if (!view.isQueued) return false;
    this.#heldBytes += view.headerLength + view.byteLength;
    return true;
  }

  /** Called when a message leaves its queue. */
  taken({ sender, waiting, cost, headerLength, byteLength }: PeerMessage): void {
    if (sender === undefined) return;
    const { inbound } = sender;
    if (waiting === undefined) {
      this.#heldBytes -= headerLength + byteLength;
      inbound.release(cost);
    } else inbound.releaseOffer();
  }

  onRts(frame: AmFrame): void {
    const { bytes } = frame;
    const { handler, headerBytes, keyBytes, byteLength, request: peerRequest, keyOffset, ...places } = readAmRts(frame);
    const { headerAt, keyAt, isCut } = places;
    if (headerBytes < 0 || headerBytes > AM_HEADER_BYTES_MAX || keyBytes < 0 || isCut) return;
    const connection = this.#host.connectionOf(frame);
    if (connection === undefined) return;
    const view = this.#take(connection, handler);
    if (view === undefined) {
      postReply(connection, peerRequest, Status.OK);
      return;
    }
    view.source = bytes;
    view.headerOffset = headerAt;
    view.headerLength = headerBytes;
    view.dataOffset = keyAt;
    view.byteLength = byteLength;
    const packedKey = keyBytes > 0 ? bytes.slice(keyAt, keyAt + keyBytes) : undefined;
    const waiting = { peerRequest, packedKey, keyOffset, isWithdrawn: false, isTaken: false };
    view.waiting = waiting;
    view.cost = 0;
    if (!connection.inbound.keepOffer()) {
      this.#host.breaksProtocol(connection, 'it offered more messages than a worker has requests');
      return;
    }
    this.#count(WorkerCounter.AM_RX_RNDV, handler);
    this.#call(view);
    if (!view.isQueued) connection.inbound.releaseOffer();
    // The handler does not want the data: release the sender.
    if (!view.isTaken && !view.isReceived) postReply(connection, peerRequest, Status.OK);
    else if (!view.isReceived && !waiting.isTaken) connection.offers.set(peerRequest, waiting);
  }

  /** Drops a message of a peer that the program keeps and has not received: receiving it fails with CANCELED. False if no message has this number. */
  forget({ offers }: Connection, request: number): boolean {
    const waiting = offers.get(request);
    if (waiting === undefined) return false;
    waiting.isWithdrawn = true;
    offers.delete(request);
    return true;
  }

  /** Notifies the sender of a rendezvous that its data is not needed. */
  release({ sender, waiting }: PeerMessage): void {
    if (sender === undefined || waiting === undefined) return;
    if (takes(sender, waiting)) postReply(sender, waiting.peerRequest, Status.OK);
  }

  /** Receives the data of a message into local memory: see AmMessageBase.receiveNbx. */
  receiveData(
    message: PeerMessage,
    given: GivenMemory<LocalMemory>,
    params: RequestParams | undefined,
  ): Status | Request {
    const pieces = piecesOf(this.#host.context, given, MemAccess.LOCAL_WRITE);
    if (bytesOf(pieces) < message.byteLength) {
      throw outsideOf('local memory', 'local', { offset: 0, byteLength: message.byteLength, size: bytesOf(pieces) });
    }
    const request = this.#host.requests.take(this.#host.requests.receives);
    if (request === undefined) return Status.NO_RESOURCE;
    message.isReceived = true;
    request.begin(undefined, undefined);
    request.protocolName = 'am/recv';
    request.byteLength = message.byteLength;
    request.messageBytes = message.byteLength;
    request.pieces = cut(pieces, message.byteLength);
    const { waiting, sender } = message;
    request.starter = () => {
      if (waiting !== undefined && sender !== undefined) {
        if (!takes(sender, waiting)) return Status.CANCELED;
        const { peerRequest } = waiting;
        this.#rendezvous.receive({ request, connection: sender, peerRequest, pieces: request.pieces }, waiting);
      } else {
        const { source, dataOffset } = message;
        const ended = (status: Status): void => request.end(status);
        const arrived = { bytes: source, start: dataOffset, byteLength: message.byteLength };
        this.#rendezvous.staging.deliver(request.pieces, arrived, ended);
      }
      return Status.INPROGRESS;
    };
    return this.#host.start(request, params);
  }

  /** Sends a message whose memory is checked, with a request. */
  #start(call: UcpCall, lane: Lane, pieces: readonly LocalPiece[]): Status | Request {
    const { connection, amId: id, amHeader: header = NO_BYTES, protocol: wish, params } = call;
    checkAmHeader(header);
    if (wish !== undefined && wish !== 'eager' && wish !== 'rendezvous') {
      throw invalidParam('protocol', "must be 'eager' or 'rendezvous'", wish);
    }
    const total = bytesOf(pieces);
    // The caller may reuse the header when the call returns, but the data only when the request has ended. Copying before the checks would throw for a
    // detached header.
    const kept = header.byteLength === 0 ? NO_BYTES : header.slice();
    const padded = paddedTo8(kept.byteLength);
    const fits = AM_BYTES + padded + total <= connection.amBcopyMax;
    if (wish === 'eager' && (!fits || !areHost(pieces))) {
      const why = fits ? 'device memory is never eager' : `${total} bytes do not fit into a frame`;
      throw invalidParam('protocol', `must be 'rendezvous', because ${why}`, wish);
    }
    const byThreshold = total < connection.rendezvousThreshold || wish === 'eager';
    const isEager = total === 0 || (fits && areHost(pieces) && byThreshold && wish !== 'rendezvous');
    const request = this.#host.requests.take(this.#host.requests.sends);
    if (request === undefined) return Status.NO_RESOURCE;
    request.begin(connection, lane);
    request.canceller = this.#withdraw;
    request.operation = 'am';
    request.byteLength = total;
    request.amId = id;
    request.amHeader = kept;
    request.pieces = pieces;
    if (isEager) {
      // A header and data are two pieces.
      const isOnePiece = kept.byteLength === 0 || total === 0;
      const isShort = isOnePiece && shortBytes(connection, partsOf(request), AM_BYTES, padded + total) !== undefined;
      request.protocolName = isShort ? 'eager/short' : 'eager/bcopy';
    } else {
      request.protocolName = 'rndv';
      this.#count(WorkerCounter.AM_TX_RNDV, id);
    }
    request.starter = isEager ? this.#sendEager : this.#sendRts;
    return this.#host.start(request, params);
  }

  /** Sends a WITHDRAW to the peer; its reply ends the request. */
  readonly #withdraw = (request: SendRequest): boolean => {
    this.#rendezvous.withdraw(request);
    return false;
  };

  /** Sends a message with its data; without credit, offers it by rendezvous or waits. */
  readonly #sendEager = (request: SendRequest, connection: Connection): Status => {
    if (connection.remoteId === NO_ENDPOINT) return Status.NO_RESOURCE;
    const { amHeader, pieces } = request;
    const padded = paddedTo8(amHeader.byteLength);
    const length = padded + request.byteLength;
    const cost = length + KEPT_OVERHEAD_BYTES;
    if (connection.credit.bytes < cost) {
      if (!lacksCredit(connection.credit, cost, this.#host.counters)) return Status.NO_RESOURCE;
      this.#count(WorkerCounter.AM_TX_RNDV, request.amId);
      request.protocolName = 'rndv';
      request.starter = this.#sendRts;
      return this.#sendRts(request, connection);
    }
    if (!areMapped(pieces)) return Status.INVALID_ADDR;
    const words = writeAm(connection.remoteId, request.amId, amHeader.byteLength);
    const status = sendPieces(connection, MessageId.AM, words, partsOf(request), 0, length);
    if (status !== Status.OK) return status;
    connection.credit.bytes -= cost;
    this.#count(WorkerCounter.AM_TX, request.amId);
    return status;
  };

  readonly #sendRts = (request: SendRequest, connection: Connection): Status => {
    if (connection.remoteId === NO_ENDPOINT) return Status.NO_RESOURCE;
    const { amHeader } = request;
    const padded = paddedTo8(amHeader.byteLength);
    if (!this.#rendezvous.offerKeyed(request, connection, AM_RTS_BYTES + padded)) return Status.NO_RESOURCE;
    const { key } = request;
    const packed = key?.packed ?? NO_BYTES;
    const words = writeAmRts(connection.remoteId, {
      handler: request.amId,
      headerBytes: amHeader.byteLength,
      keyBytes: packed.byteLength,
      byteLength: request.byteLength,
      request: request.requestId,
      keyOffset: key?.offset ?? 0,
    });
    const pieces = [pieceAt(amHeader, 0), pieceAt(packed, padded)];
    const length = padded + packed.byteLength;
    const status = sendPieces(connection, MessageId.AM_RTS, words, pieces, 0, length);
    return status === Status.OK ? Status.INPROGRESS : status;
  };

  /** The view of a message. Undefined for an id without a handler; warns if the id never had one. */
  #take(connection: Connection, id: number): PeerMessage | undefined {
    const handler = this.#handlers[id];
    if (handler === undefined && id !== NOTIFICATION_ID) {
      this.#host.warnings.warn(`active message dropped: no handler for id ${id}; set one with worker.setAmHandler()`);
    }
    if (handler === undefined || handler === null) return undefined;
    const view = this.#view;
    view.id = id;
    view.sender = connection;
    view.isTaken = false;
    view.isReceived = false;
    view.isQueued = false;
    view.isOver = false;
    return view;
  }

  #count(counter: WorkerCounter, id: number): void {
    if (id !== NOTIFICATION_ID) this.#host.counters.count(counter);
  }

  #call(view: PeerMessage): void {
    try {
      this.#handlers[view.id]!(view);
    } catch (error) {
      this.#host.onThrown(error);
    } finally {
      view.isOver = true;
    }
  }
}

/** Marks the data of a message as taken; false if the sender has withdrawn it. */
function takes({ offers }: Connection, waiting: WaitingData): boolean {
  waiting.isTaken = true;
  offers.delete(waiting.peerRequest);
  return !waiting.isWithdrawn;
}

/** The payload of an eager message: header and padding, then the data. */
function partsOf({ amHeader, pieces }: SendRequest): readonly LocalPiece[] {
  if (amHeader.byteLength === 0) return pieces;
  const padded = paddedTo8(amHeader.byteLength);
  return [pieceAt(amHeader, 0), ...pieces.map((piece) => ({ ...piece, start: piece.start + padded }))];
}

/** Bytes at an offset of a message. The padding in front of them is not written. */
function pieceAt(memory: Uint8Array, start: number): LocalPiece {
  return { memory, offset: 0, byteLength: memory.byteLength, start };
}
