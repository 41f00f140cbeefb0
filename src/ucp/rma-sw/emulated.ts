/**
 * Software put and get, for memory that no transport reaches: the worker of the peer finds the memory by its key and runs a rendezvous for it. The requester
 * is the sender of a put and the receiver of a get.
 */

import { Status } from '../../ucs/type/status.ts';
import type { AmFrame } from '../../uct/api/iface.ts';
import { sendMessage } from '../base/message-packer.ts';
import { ReceiveRequest, SendRequest } from '../base/message-request.ts';
import type { ProtocolHost } from '../base/protocol-host.ts';
import type { Connection } from '../base/request.ts';
import { RmaRequest } from '../base/rma-request.ts';
import { MEMORY_KEY_BYTES } from '../mem/exported-memory.ts';
import type { LocalMemory, LocalPiece } from '../mem/memory-handle.ts';
import { Operation } from '../proto/selection.ts';
import type { Rendezvous } from '../rndv/rendezvous.ts';
import { postReply } from '../rndv/reply.ts';
import { NO_ENDPOINT } from '../wire/frame.ts';
import { MessageId } from '../wire/message.ts';
import { type AskedRma, readGetReady, readRma, writeGetReady, writeRma } from '../wire/rma.ts';

const NO_DATA = { packedKey: undefined, keyOffset: 0 } as const;

/** The emulated puts and gets of one worker, of both ends. */
export class EmulatedRma {
  readonly #host: ProtocolHost;
  readonly #rendezvous: Rendezvous;

  constructor(host: ProtocolHost, rendezvous: Rendezvous) {
    this.#host = host;
    this.#rendezvous = rendezvous;
  }

  /** Completes a request whose protocol is software: what it moves, and how it starts. */
  init(
    request: RmaRequest,
    local: LocalMemory,
    offset: number,
    byteLength: number,
    memoryKey: Uint8Array | undefined,
  ): void {
    request.pieces = [{ memory: local, offset, byteLength, start: 0 }];
    request.byteLength = byteLength;
    request.isRemote = true;
    request.starter = (asking, connection) => this.#ask(asking, connection, memoryKey);
  }

  /** The peer asks to write memory of this worker. */
  onPut(frame: AmFrame): void {
    const connection = this.#host.connectionOf(frame);
    if (connection === undefined) return;
    const asked = readRma(frame);
    const piece = this.#find(frame, asked);
    if (piece === undefined) postReply(connection, asked.request, Status.INVALID_ADDR);
    else this.#rendezvous.receive(this.#serving(connection), connection, asked.request, [piece], NO_DATA);
  }

  /** The peer asks to read memory of this worker. */
  onGet(frame: AmFrame): void {
    const connection = this.#host.connectionOf(frame);
    if (connection === undefined) return;
    const asked = readRma(frame);
    const piece = this.#find(frame, asked);
    let peerRequest = 0;
    if (piece !== undefined) {
      const request = new SendRequest(this.#host);
      request.begin(connection, undefined);
      request.pieces = [piece];
      this.#rendezvous.offer(request, [piece], undefined);
      connection.expect(request);
      peerRequest = request.requestId;
    }
    const answer = {
      request: asked.request,
      peerRequest,
      status: piece === undefined ? Status.INVALID_ADDR : Status.OK,
    };
    connection.post(MessageId.GET_READY, writeGetReady(connection.remoteId, answer));
  }

  /** The peer has the memory that a get asked for. */
  onGetReady(frame: AmFrame): void {
    const { request: asked, peerRequest, status } = readGetReady(frame);
    const connection = this.#host.connectionOf(frame);
    const request = connection?.waiting.get(asked);
    if (connection === undefined || !(request instanceof RmaRequest) || request.queued || !request.isAsking) return;
    request.isAsking = false;
    if (status !== Status.OK) request.end(status);
    else this.#rendezvous.receive(request, connection, peerRequest, request.pieces, NO_DATA);
  }

  #ask(request: RmaRequest, connection: Connection, memoryKey: Uint8Array | undefined): Status {
    if (memoryKey === undefined) return Status.UNREACHABLE;
    if (connection.remoteId === NO_ENDPOINT) return Status.NO_RESOURCE;
    const isPut = request.operation === Operation.PUT;
    if (request.requestId === 0) {
      if (isPut) this.#rendezvous.offer(request, request.pieces, undefined);
      request.isAsking = !isPut;
      connection.expect(request);
    }
    const { requestId, remoteOffset, byteLength } = request;
    const header = writeRma(connection.remoteId, { request: requestId, remoteOffset, byteLength });
    const id = isPut ? MessageId.PUT : MessageId.GET;
    const status = sendMessage(connection, id, header, memoryKey, 0, memoryKey.byteLength);
    return status === Status.OK ? Status.INPROGRESS : status;
  }

  /** The memory that the peer means; undefined for a key that is wrong or a range outside the memory. */
  #find({ bytes }: AmFrame, { remoteOffset: offset, byteLength, keyAt, keyBytes }: AskedRma): LocalPiece | undefined {
    const memory = keyBytes >= MEMORY_KEY_BYTES ? this.#host.context.exported.find(bytes, keyAt) : undefined;
    if (memory === undefined || byteLength === 0 || offset + byteLength > memory.byteLength) return undefined;
    return { memory, offset, byteLength, start: 0 };
  }

  /** A request of this worker that serves one of the peer. */
  #serving(connection: Connection): ReceiveRequest {
    const request = new ReceiveRequest(this.#host);
    request.begin(connection, undefined);
    return request;
  }
}
