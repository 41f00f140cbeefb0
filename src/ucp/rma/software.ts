/**
 * Software put and get, for memory that no transport reaches: the peer's worker finds the memory by its key, and runs a rendezvous for it. The requester
 * is the sender of a put and the receiver of a get.
 */

import { NO_ENDPOINT } from '../../api/layout/frame.ts';
import { MessageId } from '../../api/layout/message.ts';
import {
  type AskedRma,
  RMA_BLOCK_BYTES,
  RMA_BYTES,
  type RmaBlock,
  readGetReady,
  readRma,
  readRmaBlocks,
  writeGetReady,
  writeRma,
  writeRmaBlocks,
} from '../../api/layout/rma.ts';
import { bytesOf, pieceOf } from '../../api/memory/local.ts';
import { Operation } from '../../api/operation/call.ts';
import { Status } from '../../ucs/type/status.ts';
import type { AmFrame } from '../../uct/api/iface.ts';
import { MemAccess } from '../../uct/api/memory-domain.ts';
import type { Connection } from '../base/connection.ts';
import { sendMessage } from '../base/message-packer.ts';
import { ReceiveRequest, RmaRequest, SendRequest } from '../base/request/operation-requests.ts';
import { waitingRequest } from '../base/request/request.ts';
import type { WorkerCore } from '../base/worker-core.ts';
import { type LocalPiece, MEMORY_KEY_BYTES } from '../mem/memory-handle.ts';
import type { OfferedMessage } from '../rndv/receive.ts';
import type { Rendezvous } from '../rndv/rendezvous.ts';
import { postReply } from '../rndv/reply.ts';
import type { Transfer } from '../transfer/transfer.ts';

const NO_DATA = { packedKey: undefined, keyOffset: 0 } as const;
/** Maximum number of blocks of a transfer: a peer iterates over all of them for each window. */
const BLOCKS_MAX = 512;

/** The software puts and gets of one worker: those that it starts, and those that it executes for peers. */
export class EmulatedRma {
  readonly #host: WorkerCore;
  readonly #rendezvous: Rendezvous;

  constructor(host: WorkerCore, rendezvous: Rendezvous) {
    this.#host = host;
    this.#rendezvous = rendezvous;
  }

  /** Initializes a request for the software protocol: its memory and its starter. */
  init(request: RmaRequest, transfer: Transfer): void {
    this.#init(request, [pieceOf(transfer)], transfer.rkey.memoryKey, transfer.byteLength);
  }

  /** Maximum number of blocks of one transfer on a connection: one message names all of them. */
  blocksMax({ amBcopyMax }: Connection): number {
    return Math.max(1, Math.min(BLOCKS_MAX, Math.floor((amBcopyMax - RMA_BYTES - MEMORY_KEY_BYTES) / RMA_BLOCK_BYTES)));
  }

  /** The same for several blocks of both memories, at most {@link blocksMax}. */
  initBlocks(
    request: RmaRequest,
    pieces: readonly LocalPiece[],
    blocks: readonly RmaBlock[],
    memoryKey: Uint8Array,
  ): void {
    const first = blocks[0]!;
    request.remoteOffset = first.remoteOffset;
    this.#init(request, pieces, writeRmaBlocks(memoryKey, blocks), first.byteLength);
  }

  /** @param payload the key of the memory, and the further blocks; @param firstBytes length of the first block */
  #init(request: RmaRequest, pieces: readonly LocalPiece[], payload: Uint8Array | undefined, firstBytes: number): void {
    request.pieces = pieces;
    request.byteLength = bytesOf(pieces);
    request.isRemote = true;
    request.starter = (asking, connection) => this.#ask(asking, connection, payload, firstBytes);
  }

  /** Handles the peer's request to write memory of this worker. */
  onPut(frame: AmFrame): void {
    const connection = this.#host.connectionOf(frame);
    if (connection === undefined) return;
    const requested = readRma(frame);
    const pieces = this.#find(frame, requested, MemAccess.REMOTE_PUT);
    if (pieces === undefined) postReply(connection, requested.request, Status.INVALID_ADDR);
    else this.#rendezvous.receive(this.#serving(connection, requested.request, pieces), NO_DATA);
  }

  /** Handles the peer's request to read memory of this worker. */
  onGet(frame: AmFrame): void {
    const connection = this.#host.connectionOf(frame);
    if (connection === undefined) return;
    const requested = readRma(frame);
    const pieces = this.#find(frame, requested, MemAccess.REMOTE_GET);
    let peerRequest = 0;
    if (pieces !== undefined) {
      const request = new SendRequest(this.#host);
      request.begin(connection, undefined);
      request.pieces = pieces;
      this.#rendezvous.offer(request, pieces, undefined);
      connection.expect(request);
      peerRequest = request.requestId;
    }
    const answer = {
      request: requested.request,
      peerRequest,
      status: pieces === undefined ? Status.INVALID_ADDR : Status.OK,
    };
    connection.post(MessageId.GET_READY, writeGetReady(connection.remoteId, answer));
  }

  /** Handles the peer's reply to a get: an offer of the bytes, or a failure. */
  onGetReady(frame: AmFrame): void {
    const { request: requested, peerRequest, status } = readGetReady(frame);
    const connection = this.#host.connectionOf(frame);
    const request = waitingRequest(connection, requested);
    // The get was cancelled while the peer was stopped: the peer must not wait for it.
    if (connection !== undefined && request === undefined && status === Status.OK)
      postReply(connection, peerRequest, Status.CANCELED);
    if (connection === undefined || !(request instanceof RmaRequest) || request.queued || !request.isAsking) return;
    request.isAsking = false;
    if (status !== Status.OK) request.end(status);
    else this.#rendezvous.receive({ request, connection, peerRequest, pieces: request.pieces }, NO_DATA);
  }

  #ask(request: RmaRequest, connection: Connection, payload: Uint8Array | undefined, byteLength: number): Status {
    if (payload === undefined) return Status.UNREACHABLE;
    if (connection.remoteId === NO_ENDPOINT) return Status.NO_RESOURCE;
    const isPut = request.operation === Operation.PUT;
    if (request.requestId === 0) {
      if (isPut) this.#rendezvous.offer(request, request.pieces, undefined);
      request.isAsking = !isPut;
      connection.expect(request);
    }
    const { requestId, remoteOffset } = request;
    const header = writeRma(connection.remoteId, { request: requestId, remoteOffset, byteLength });
    const id = isPut ? MessageId.PUT : MessageId.GET;
    const status = sendMessage(connection, id, header, payload, 0, payload.byteLength);
    return status === Status.OK ? Status.INPROGRESS : status;
  }

  /** The memory that a message of the peer names; undefined if the key is wrong, the access is not permitted, or the range is outside the memory. */
  #find(frame: AmFrame, requested: AskedRma, access: number): LocalPiece[] | undefined {
    const isKeyed = requested.keyBytes >= MEMORY_KEY_BYTES;
    const memory = isKeyed ? this.#host.context.memory.exported.find(frame.bytes, requested.keyAt, access) : undefined;
    const blocks = readRmaBlocks(frame, requested, MEMORY_KEY_BYTES);
    if (memory === undefined || blocks === undefined || blocks.length > BLOCKS_MAX) return undefined;
    const pieces: LocalPiece[] = [];
    let start = 0;
    for (const { remoteOffset: offset, byteLength } of blocks) {
      if (!(offset >= 0 && byteLength > 0 && offset + byteLength <= memory.byteLength)) return undefined;
      pieces.push({ memory, offset, byteLength, start });
      start += byteLength;
    }
    return pieces;
  }

  /** The receive for a put of the peer, with a request of this worker. */
  #serving(connection: Connection, peerRequest: number, pieces: readonly LocalPiece[]): OfferedMessage {
    const request = new ReceiveRequest(this.#host);
    request.begin(connection, undefined);
    return { request, connection, peerRequest, pieces };
  }
}
