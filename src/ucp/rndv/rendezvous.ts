/**
 * The rendezvous: moves long messages, and memory that no transport reaches. The receiver reads the memory of the sender if a lane can; otherwise it
 * requests the bytes, and the sender writes them into the receiver's memory if a lane can, or sends them window by window.
 *
 * Messages name requests by the ids of Connection.expect; messages about requests of other connections are ignored.
 */

import { writeWithdraw } from '../../api/layout/control.ts';
import { MessageId } from '../../api/layout/message.ts';
import { RTR_BYTES, readAtp, readData, readRtr } from '../../api/layout/rendezvous.ts';
import { areMapped, bytesOf } from '../../api/memory/local.ts';
import { Operation } from '../../api/operation/call.ts';
import { isUcxError } from '../../ucs/type/error.ts';
import { Status } from '../../ucs/type/status.ts';
import type { AmFrame } from '../../uct/api/iface.ts';
import { MemAccess } from '../../uct/api/memory-domain.ts';
import type { Connection } from '../base/connection.ts';
import { WorkerCounter } from '../base/observation.ts';
import type { SendRequest } from '../base/request/operation-requests.ts';
import { type Request, waitingRequest } from '../base/request/request.ts';
import type { WorkerCore } from '../base/worker-core.ts';
import type { LocalPiece } from '../mem/memory-handle.ts';
import { isReadScheme } from '../resources/config.ts';
import { moveRemote } from '../transfer/move.ts';
import { Staging } from '../transfer/staging.ts';
import { joinPieces, keyOfPieces, type OwnKey } from './own-key.ts';
import {
  acquirePeerKey,
  acquireRanges,
  type OfferedMessage,
  ReceiveTransfer,
  rangeTransfers,
  releaseRanges,
} from './receive.ts';
import { nameProtocol, postReply, readCarrier } from './reply.ts';
import { SendTransfer, SendWindow } from './send.ts';

/** Maximum length of a window: windows are fragments of the receiver, which UCX_RNDV_FRAG_SIZE limits to this. */
const WINDOW_BYTES_MAX: number = 16 * 2 ** 20;
/** Maximum number of fragments that one message may wait for; a correct receiver needs no more. */
const WAITING_MAX = 16_384;

/** Where the data of a message is, according to its sender. */
export interface RemoteData {
  readonly packedKey: Uint8Array | undefined;
  readonly keyOffset: number;
}

export class Rendezvous {
  readonly staging: Staging;
  readonly #host: WorkerCore;

  constructor(host: WorkerCore) {
    this.#host = host;
    this.staging = new Staging(host);
  }

  /** Makes a request the sender of a rendezvous. It ends with the reply of the peer, once nothing reads its memory any more. */
  offer(request: Request, pieces: readonly LocalPiece[], key: OwnKey | undefined): void {
    request.joinRendezvous(new SendTransfer(request, pieces, key));
  }

  /**
   * Like {@link offer}, with a request id for the peer. Adds the key of the memory if the receiver may read it, and if it fits behind `headerBytes` into
   * the message. Retries of the send reuse both.
   * @returns false if the peer keeps no more offers: the request has to wait
   */
  offerKeyed(request: SendRequest, connection: Connection, headerBytes: number): boolean {
    if (request.requestId === 0 && !connection.canOffer) return false;
    if (request.transfer === undefined) {
      const { pieces: given, byteLength } = request;
      const pieces = areMapped(given) ? joinPieces(given) : given;
      const isReadable = byteLength > 0 && isReadScheme(this.#host.context.scheme);
      const keyBytesMax = connection.amBcopyMax - headerBytes;
      const key = isReadable ? this.#keyFor(connection, pieces, keyBytesMax, MemAccess.REMOTE_GET) : undefined;
      request.key = key;
      this.offer(request, pieces, key);
    }
    if (request.requestId === 0) connection.expect(request);
    return true;
  }

  /**
   * Requests the peer to drop an offered or synchronous message, unless it has already taken it. The request then ends with CANCELED, but only after the
   * reply, because the peer may read its memory until then.
   */
  withdraw(request: SendRequest): void {
    const { connection, transfer, requestId } = request;
    if (connection === undefined || requestId === 0 || request.isWithdrawn || request.isAbandoned) return;
    if (transfer !== undefined && !(transfer instanceof SendTransfer && transfer.isUnanswered)) return;
    request.isWithdrawn = true;
    connection.post(MessageId.WITHDRAW, writeWithdraw(connection.remoteId, requestId));
  }

  /** Receives the message of the peer's request into `given`, then replies, and ends `request`. */
  receive({ request, connection, peerRequest, pieces: given }: OfferedMessage, data: RemoteData): void {
    request.connection = connection;
    if (connection.failure !== Status.OK) {
      request.end(connection.failure);
      return;
    }
    if (bytesOf(given) === 0) {
      postReply(connection, peerRequest, Status.OK);
      request.end(Status.OK);
      return;
    }
    if (!areMapped(given)) {
      postReply(connection, peerRequest, Status.INVALID_ADDR);
      request.end(Status.INVALID_ADDR);
      return;
    }
    const pieces = joinPieces(given);
    const receive = { request, connection, peerRequest, pieces };
    if (this.#readRemote(receive, data)) return;
    const key = this.#keyToWrite(connection, pieces);
    new ReceiveTransfer(this.#host, this.staging, receive, key).start();
  }

  /** Handles the peer's request for the next window of a message that this worker sends. A window out of order or out of bounds is ignored. */
  onRtr(frame: AmFrame): void {
    const { request: requested, peerRequest, from, byteLength, targetBytes, targetOffset, keys } = readRtr(frame);
    const connection = this.#host.connectionOf(frame);
    if (connection?.takenBack.delete(requested) === true) postReply(connection, peerRequest, Status.CANCELED);
    const request = waitingRequest(connection, requested);
    const transfer = request?.transfer;
    if (connection === undefined || request === undefined || request.queued) return;
    if (!(transfer instanceof SendTransfer) || !this.#isNext(transfer, from, byteLength)) return;
    const keyBytes = keys?.byteLength ?? 0;
    if (targetBytes < 0 || targetBytes > keyBytes) return;
    if (!areMapped(transfer.pieces)) {
      transfer.endBoth(connection, peerRequest, Status.INVALID_ADDR);
      return;
    }
    const { context } = this.#host;
    const isWriter = context.scheme !== 'am' && keys !== undefined;
    if (from === 0 && targetBytes > 0 && isWriter) {
      const target = { packed: keys.subarray(0, targetBytes), offset: targetOffset };
      transfer.target = acquireRanges(context, connection, target, transfer.byteLength);
      if (context.scheme !== 'put_ppln' && this.#writeAll(transfer, connection, peerRequest)) return;
      transfer.dropUselessTarget(connection);
    }
    transfer.requested += byteLength;
    const hasFragment = isWriter && targetBytes < keyBytes;
    const fragment = hasFragment ? acquirePeerKey(context, connection, keys.subarray(targetBytes)) : undefined;
    const window = { peerRequest, from, byteLength };
    new SendWindow(this.#host, this.staging, transfer, {
      connection,
      requested: window,
      fragmentKey: fragment,
    }).start();
    this.#host.endTransfers();
  }

  /** Called when the peer has written a requested range of a message that this worker receives. */
  onAtp(frame: AmFrame): void {
    const { request, from, byteLength, flags, carrier } = readAtp(frame);
    const transfer = this.#receiving(frame, request);
    if (transfer === undefined) return;
    if (carrier !== undefined) readCarrier(transfer.request, carrier);
    transfer.onWritten(from, byteLength, flags);
    this.#host.endTransfers();
  }

  /** Handles data of a message that this worker receives. */
  onData(frame: AmFrame): void {
    const { request, from, start, byteLength } = readData(frame);
    const transfer = this.#receiving(frame, request);
    if (transfer !== undefined) transfer.onData(from, byteLength, frame.bytes, start);
  }

  /** True if the peer may request this window now: it is the next one, within the bounds, of a message that has not ended. */
  #isNext(transfer: SendTransfer, from: number, byteLength: number): boolean {
    const parts = transfer.isHost ? 1 : Math.ceil(byteLength / this.staging.fragmentBytes);
    const isNext = from === transfer.requested && byteLength > 0 && from + byteLength <= transfer.byteLength;
    return !transfer.isEnding && isNext && byteLength <= WINDOW_BYTES_MAX && transfer.waiting + parts <= WAITING_MAX;
  }

  /** Writes the receiver's memory at once if lanes can; true if the transfer has started or ended. */
  #writeAll(transfer: SendTransfer, connection: Connection, peerRequest: number): boolean {
    const { request, target, pieces, byteLength } = transfer;
    if (target === undefined) return false;
    const transfers = rangeTransfers(this.#host, [Operation.PUT, connection], pieces, target);
    if (transfers === undefined) return false;
    // Further window requests of the receiver may be in flight: the new request id makes them ignored. Flushes and closes wait for the end.
    connection.renew(request);
    transfer.requested = byteLength;
    this.#host.counters.count(WorkerCounter.RNDV_PUT_ZCOPY);
    nameProtocol(request, 'rndv/put');
    transfer.count += 1;
    moveRemote(this.#host, request, transfers, (status) => {
      transfer.endBoth(connection, peerRequest, status);
      transfer.complete(Status.OK);
    });
    return true;
  }

  /** The receive that a message of a peer names. */
  #receiving(frame: AmFrame, requestId: number): ReceiveTransfer | undefined {
    const transfer = waitingRequest(this.#host.connectionOf(frame), requestId)?.transfer;
    return transfer instanceof ReceiveTransfer ? transfer : undefined;
  }

  /** Reads the sender's memory if a lane can; true if the receive has started or ended. */
  #readRemote(receive: OfferedMessage, { packedKey, keyOffset }: RemoteData): boolean {
    const { request, connection, peerRequest, pieces } = receive;
    if (packedKey === undefined || !isReadScheme(this.#host.context.scheme)) return false;
    const sent = { packed: packedKey, offset: keyOffset };
    const ranges = acquireRanges(this.#host.context, connection, sent, bytesOf(pieces));
    if (ranges === undefined) return false;
    const transfers = rangeTransfers(this.#host, [Operation.GET, connection], pieces, ranges);
    if (transfers === undefined) {
      releaseRanges(connection, ranges);
      return false;
    }
    this.#host.counters.count(WorkerCounter.RNDV_GET_ZCOPY);
    nameProtocol(request, 'rndv/get');
    moveRemote(this.#host, request, transfers, (moved) => {
      // The sender may have revoked the key during the read, and changed the memory.
      const isStale = ranges.some(({ rkey }) => !rkey.live);
      const status = moved === Status.OK && isStale ? Status.INVALID_ADDR : moved;
      releaseRanges(connection, ranges, status < 0);
      postReply(connection, peerRequest, status, request);
      request.end(status);
    });
    return true;
  }

  /** The key of a message, for an access of the peer; undefined if there is none, or it does not fit. */
  #keyFor(
    connection: Connection,
    pieces: readonly LocalPiece[],
    keyBytesMax: number,
    access: number,
  ): OwnKey | undefined {
    if (!areMapped(pieces)) return undefined;
    const key = keyOfPieces(this.#host.context, connection, pieces, access);
    if (key === undefined || key.packed.byteLength <= keyBytesMax) return key;
    key.release();
    return undefined;
  }

  /** The key of memory that a sender may write; undefined if there is none: then the bytes come in messages. */
  #keyToWrite(connection: Connection, pieces: readonly LocalPiece[]): OwnKey | undefined {
    if (this.#host.context.scheme === 'am') return undefined;
    try {
      return this.#keyFor(connection, pieces, connection.amBcopyMax - RTR_BYTES, MemAccess.REMOTE_PUT);
    } catch (error) {
      if (!isUcxError(error)) throw error;
      return undefined;
    }
  }
}
