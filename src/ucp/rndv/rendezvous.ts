/**
 * The rendezvous: moves long messages, and memory that no transport reaches. The receiver reads the memory of the sender if a lane can; otherwise it asks
 * for the bytes, and the sender writes them into the receiver's memory if a lane can, or sends them window by window: see receive-transfer.ts and
 * window-sender.ts. When a message is offered is decided by the protocols.
 *
 * Requests name each other by Connection.expect; messages of a peer about requests of other connections are ignored.
 */

import { isUcxError } from '../../ucs/type/error.ts';
import { Status } from '../../ucs/type/status.ts';
import type { AmFrame } from '../../uct/api/iface.ts';
import { MemAccess } from '../../uct/api/memory-domain.ts';
import { areMapped, bytesOf } from '../api/memory/local-bytes.ts';
import type { ProtocolHost } from '../base/protocol-host.ts';
import type { SendRequest } from '../base/request/message-request.ts';
import type { Connection, Request } from '../base/request/request.ts';
import { WorkerCounter } from '../base/worker-counters.ts';
import type { LocalPiece } from '../mem/memory-handle.ts';
import { Operation } from '../proto/selection.ts';
import { isReadScheme } from '../resources/config.ts';
import { Staging } from '../staging/staging.ts';
import { RTR_BYTES, readRtr } from '../wire/rtr.ts';
import { readAtp, readData } from '../wire/window.ts';
import { type OwnKey, ownKey } from './own-key.ts';
import { acquirePeerKey } from './peer-keys.ts';
import { ReceiveTransfer } from './receive-transfer.ts';
import { moveRemote, transfersOf } from './remote-move.ts';
import { nameProtocol, postReply, readCarrier } from './reply.ts';
import { SendTransfer } from './send-transfer.ts';
import { WindowSender } from './window-sender.ts';

/** Where the data of a message is, as its sender says. */
export interface RemoteData {
  readonly packedKey: Uint8Array | undefined;
  readonly keyOffset: number;
}

/** The rendezvous of one worker. */
export class Rendezvous {
  readonly staging: Staging;
  readonly #host: ProtocolHost;
  readonly #sender: WindowSender;

  constructor(host: ProtocolHost) {
    this.#host = host;
    this.staging = new Staging(host);
    this.#sender = new WindowSender(host, this.staging);
  }

  /** Makes a request the sender of a rendezvous: it ends with the answer of the peer. */
  offer(request: Request, pieces: readonly LocalPiece[], key: OwnKey | undefined): void {
    this.#sender.offer(request, pieces, key);
  }

  /**
   * As {@link offer}, with an id for the peer, and with the key of its memory if the receiver may read it and `headerBytes` of the message leave room
   * for it. A repeated attempt to send keeps both.
   * @returns false if the peer keeps no more offers: the request has to wait
   */
  offerKeyed(request: SendRequest, connection: Connection, headerBytes: number): boolean {
    if (request.requestId === 0 && !connection.canOffer) return false;
    if (request.transfer === undefined) {
      const { pieces, byteLength } = request;
      const isReadable = byteLength > 0 && isReadScheme(this.#host.context.scheme);
      const roomBytes = connection.amBcopyMax - headerBytes;
      const key = isReadable ? this.#keyFor(connection, pieces, roomBytes, MemAccess.REMOTE_GET) : undefined;
      request.key = key;
      this.#sender.offer(request, pieces, key);
    }
    if (request.requestId === 0) connection.expect(request);
    return true;
  }

  /** Receives `pieces` from the peer's request, then answers it and ends `request`. */
  receive(
    request: Request,
    connection: Connection,
    peerRequest: number,
    pieces: readonly LocalPiece[],
    data: RemoteData,
  ): void {
    request.connection = connection;
    if (connection.failure !== Status.OK) {
      request.end(connection.failure);
      return;
    }
    if (bytesOf(pieces) === 0) {
      postReply(connection, peerRequest, Status.OK);
      request.end(Status.OK);
      return;
    }
    if (!areMapped(pieces)) {
      postReply(connection, peerRequest, Status.INVALID_ADDR);
      request.end(Status.INVALID_ADDR);
      return;
    }
    if (this.#readRemote(request, connection, peerRequest, pieces, data)) return;
    const key = this.#keyToWrite(connection, pieces);
    new ReceiveTransfer(this.#host, this.staging, { request, connection, peerRequest, pieces }, key).start();
  }

  /** The peer asks for a window of a message that this worker sends. */
  onRtr(frame: AmFrame): void {
    const { request: asked, targetBytes, keys, ...rtr } = readRtr(frame);
    const connection = this.#host.connectionOf(frame);
    const request = connection?.waiting.get(asked);
    const transfer = request?.transfer;
    if (connection === undefined || request === undefined || request.queued) return;
    if (!(transfer instanceof SendTransfer)) return;
    const keyBytes = keys?.byteLength ?? 0;
    if (targetBytes < 0 || targetBytes > keyBytes) return;
    const targetKey = targetBytes === 0 ? undefined : keys?.subarray(0, targetBytes);
    const fragmentKey = targetBytes === keyBytes ? undefined : keys?.subarray(targetBytes);
    this.#sender.onRtr(transfer, connection, { ...rtr, targetKey, fragmentKey });
  }

  /** A part of a message that this worker receives has been written to where it asked for it. */
  onAtp(frame: AmFrame): void {
    const { request, from, byteLength, flags, carrier } = readAtp(frame);
    const transfer = this.#receiving(frame, request);
    if (transfer === undefined) return;
    if (carrier !== undefined) readCarrier(transfer.request, carrier);
    transfer.onWritten(from, byteLength, flags);
  }

  /** Bytes of a message that this worker receives. */
  onData(frame: AmFrame): void {
    const { request, from, start, byteLength } = readData(frame);
    const transfer = this.#receiving(frame, request);
    if (transfer !== undefined) transfer.onData(from, byteLength, frame.bytes, start);
  }

  /** The receive that a message of a peer names. */
  #receiving(frame: AmFrame, requestId: number): ReceiveTransfer | undefined {
    const transfer = this.#host.connectionOf(frame)?.waiting.get(requestId)?.transfer;
    return transfer instanceof ReceiveTransfer ? transfer : undefined;
  }

  /** Reads the sender's memory if a lane can: true when the receive has started or ended. */
  #readRemote(
    request: Request,
    connection: Connection,
    peerRequest: number,
    pieces: readonly LocalPiece[],
    { packedKey, keyOffset }: RemoteData,
  ): boolean {
    if (packedKey === undefined || !isReadScheme(this.#host.context.scheme)) return false;
    const rkey = acquirePeerKey(this.#host.context, connection, packedKey);
    if (rkey === undefined) return false;
    const move = {
      operation: Operation.GET,
      connection,
      pieces,
      from: 0,
      byteLength: bytesOf(pieces),
      rkey,
      offset: keyOffset,
    };
    const transfers = transfersOf(this.#host, move);
    if (transfers === undefined) {
      connection.rkeys.release(rkey);
      return false;
    }
    this.#host.counters.count(WorkerCounter.RNDV_GET_ZCOPY);
    nameProtocol(request, 'rndv/get');
    moveRemote(this.#host, request, move, transfers, (status) => {
      connection.rkeys.release(rkey, status < 0);
      postReply(connection, peerRequest, status, 0, 0, request);
      request.end(status);
    });
    return true;
  }

  /** The key of a message of one piece, for an access of the peer; undefined if there is none, or no room for it. */
  #keyFor(
    connection: Connection,
    pieces: readonly LocalPiece[],
    roomBytes: number,
    access: number,
  ): OwnKey | undefined {
    const [piece] = pieces;
    if (pieces.length !== 1 || piece === undefined || !areMapped(pieces)) return undefined;
    const key = ownKey(this.#host.context, connection, piece, access);
    if (key === undefined || key.packed.byteLength <= roomBytes) return key;
    key.release();
    return undefined;
  }

  /** The key of memory that a sender may write; undefined where it cannot have one: then the bytes come in messages. */
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
