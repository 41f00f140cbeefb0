/**
 * Put and get through messages, for memory that no transport reaches: the worker of the peer finds the memory by its key and runs a rendezvous
 * for it. The asking request is the sender of a put and the receiver of a get.
 */

import { highOf, joinWords } from '../../ucs/int64.ts';
import { Status } from '../../ucs/status.ts';
import type { AmFrame } from '../../uct/api/iface.ts';
import { isEnding, MessageId, NO_ENDPOINT } from '../core/message.ts';
import { sendMessage } from '../core/message-packer.ts';
import type { ProtocolHost } from '../core/protocol-host.ts';
import { type Connection, Request, RequestKind } from '../core/request.ts';
import { MEMORY_KEY_BYTES } from '../mem/exported-memory.ts';
import type { LocalMemory, LocalPiece } from '../mem/memory-handle.ts';
import { Operation } from '../proto/selection.ts';
import type { Rendezvous } from '../rndv/rendezvous.ts';

const ASK_WORDS = 6;
const READY_WORDS = 4;
const HEADER = new Int32Array(ASK_WORDS);
const NO_DATA = { packedKey: undefined, keyOffset: 0 } as const;

/** The emulated puts and gets of one worker, of both ends. */
export class EmulatedRma {
  readonly #host: ProtocolHost;
  readonly #rendezvous: Rendezvous;

  constructor(host: ProtocolHost, rendezvous: Rendezvous) {
    this.#host = host;
    this.#rendezvous = rendezvous;
  }

  /** Describes the local side of a request whose protocol is messages. */
  describe(request: Request, local: LocalMemory, offset: number, byteLength: number, memoryKey: Uint8Array): void {
    const pieces: LocalPiece[] = [{ memory: local, offset, byteLength, start: 0 }];
    request.pieces = pieces;
    request.byteLength = byteLength;
    request.isRemote = true;
    request.starter = () => this.#ask(request, memoryKey);
  }

  /** The peer asks to write memory of this worker. */
  onPut(frame: AmFrame): void {
    const connection = this.#host.connectionOf(frame);
    if (connection === undefined) return;
    const peerRequest = frame.words[(frame.offset >> 2) + 1]!;
    const piece = this.#find(frame);
    if (piece === undefined) {
      this.#rendezvous.reply(connection, peerRequest, Status.INVALID_ADDR);
      return;
    }
    this.#rendezvous.receive(this.#serving(connection), connection, peerRequest, [piece], NO_DATA);
  }

  /** The peer asks to read memory of this worker. */
  onGet(frame: AmFrame): void {
    const connection = this.#host.connectionOf(frame);
    if (connection === undefined) return;
    const peerRequest = frame.words[(frame.offset >> 2) + 1]!;
    const piece = this.#find(frame);
    HEADER[0] = connection.remoteId;
    HEADER[1] = peerRequest;
    HEADER[2] = 0;
    HEADER[3] = piece === undefined ? Status.INVALID_ADDR : Status.OK;
    if (piece !== undefined) {
      const request = this.#serving(connection);
      this.#rendezvous.offer(request, [piece], undefined);
      connection.expect(request);
      HEADER[2] = request.wireId;
    }
    connection.post(MessageId.GET_READY, HEADER, READY_WORDS);
  }

  /** The peer has the memory that a get asked for. */
  onGetReady(frame: AmFrame): void {
    const at = frame.offset >> 2;
    const connection = this.#host.connectionOf(frame);
    const request = connection?.waiting.get(frame.words[at + 1]!);
    if (connection === undefined || request === undefined || request.queued || request.transfer !== this) return;
    const status = frame.words[at + 3]!;
    request.transfer = undefined;
    if (status !== Status.OK) request.end(isEnding(status) ? status : Status.IO_ERROR);
    else {
      const peerRequest = frame.words[at + 2]!;
      this.#rendezvous.receive(request, connection, peerRequest, request.pieces!, NO_DATA);
    }
  }

  #ask(request: Request, memoryKey: Uint8Array): Status {
    const connection = request.connection!;
    if (connection.remoteId === NO_ENDPOINT) return Status.NO_RESOURCE;
    const isPut = request.operation === Operation.PUT;
    if (request.wireId === 0) {
      if (isPut) this.#rendezvous.offer(request, request.pieces!, undefined);
      // Marks a get that waits for its answer.
      else request.transfer = this;
      connection.expect(request);
    }
    HEADER[0] = connection.remoteId;
    HEADER[1] = request.wireId;
    HEADER[2] = request.remoteOffset | 0;
    HEADER[3] = highOf(request.remoteOffset);
    HEADER[4] = request.byteLength | 0;
    HEADER[5] = highOf(request.byteLength);
    const id = isPut ? MessageId.PUT : MessageId.GET;
    const status = sendMessage(connection, id, HEADER, ASK_WORDS, memoryKey, 0, memoryKey.byteLength);
    return status === Status.OK ? Status.INPROGRESS : status;
  }

  /** The memory that the peer means; undefined for a key that is wrong or a range outside the memory. */
  #find({ words, bytes, offset, byteLength }: AmFrame): LocalPiece | undefined {
    const at = offset >> 2;
    const start = offset + ASK_WORDS * 4;
    if (byteLength < ASK_WORDS * 4 + MEMORY_KEY_BYTES) return undefined;
    const memory = this.#host.context.exported.find(bytes, start);
    const from = joinWords(words[at + 2]!, words[at + 3]!);
    const length = joinWords(words[at + 4]!, words[at + 5]!);
    if (memory === undefined || length === 0 || from + length > memory.byteLength) return undefined;
    return { memory, offset: from, byteLength: length, start: 0 };
  }

  /** A request of this worker that serves one of the peer. */
  #serving(connection: Connection): Request {
    const request = new Request(this.#host);
    request.begin(RequestKind.RECEIVE);
    request.connection = connection;
    return request;
  }
}
