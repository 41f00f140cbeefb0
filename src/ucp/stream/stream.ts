/**
 * Streams: bytes in order from one endpoint to its peer, without message boundaries. A send of any length is split into messages; a receive takes the
 * bytes that have arrived, or waits until its memory is full. Messages that arrive before their receive are copied: long ones into blocks that are reused,
 * because new memory costs more than the copy (it is cleared, mapped page by page, and garbage-collected), short ones into private memory.
 */

import type { RequestParams, StreamRecvParams } from '../../api/contract/request.ts';
import { CreditCode } from '../../api/layout/control.ts';
import { readStream, STREAM_ASKED, STREAM_BYTES } from '../../api/layout/stream.ts';
import { bytesOf, checkLocal, hostBytes, pieceOf } from '../../api/memory/local.ts';
import { fragmentBytesOf } from '../../api/staging/fragment-pool.ts';
import { Status } from '../../ucs/type/status.ts';
import type { AmFrame } from '../../uct/api/iface.ts';
import { MemAccess } from '../../uct/api/memory-domain.ts';
import type { Connection } from '../base/connection.ts';
import { shortBytes } from '../base/message-packer.ts';
import { isObserved, WorkerCounter } from '../base/observation.ts';
import type { ReceiveRequest, SendRequest } from '../base/request/operation-requests.ts';
import { notInitialized, type Request } from '../base/request/request.ts';
import type { UcpCall, WorkerCore } from '../base/worker-core.ts';
import { KEPT_OVERHEAD_BYTES } from '../credit/credit.ts';
import type { LocalPiece } from '../mem/memory-handle.ts';
import type { Rendezvous } from '../rndv/rendezvous.ts';
import { OutgoingStream, postStreamCredit } from './outgoing.ts';

/** A message of the stream, or the rest of one. */
interface Chunk {
  readonly bytes: Uint8Array;
  /** Bytes of the peer's window that it uses; 0 for a requested message. */
  readonly cost: number;
  offset: number;
}

/** The stream of a connection: bytes that have arrived, receives that wait for them, and the sending side. */
interface StreamState {
  readonly outgoing: OutgoingStream;
  /** True if the sender waits for a request for bytes; and true if this side has sent one. */
  peerWaits: boolean;
  hasAsked: boolean;
  readonly chunks: Chunk[];
  readonly receives: ReceiveRequest[];
  /** True while a receive is copied to device memory: later receives wait. */
  busy: boolean;
  /** True if the connection is closed on this side: nothing more is received. */
  closed: boolean;
  byteLength: number;
}

export class Streams {
  readonly #host: WorkerCore;
  readonly #rendezvous: Rendezvous;
  readonly #states: Map<number, StreamState> = new Map();
  readonly #blocks: MessageBlocks = new MessageBlocks();

  constructor(host: WorkerCore, rendezvous: Rendezvous) {
    this.#host = host;
    this.#rendezvous = rendezvous;
  }

  /** Number of bytes that have arrived on a connection and were not received. */
  available(connection: Connection): number {
    return this.#states.get(connection.id)?.byteLength ?? 0;
  }

  /** See Endpoint.streamSendNbx. */
  send(call: UcpCall): Status | Request {
    const { connection, pieces, local, localOffset, byteLength, params } = call;
    if (pieces === undefined) checkLocal(this.#host.context, call, MemAccess.LOCAL_READ);
    if (connection.failure !== Status.OK) return connection.failure;
    if (pieces !== undefined) return this.#start(connection, pieces, params);
    const bytes = hostBytes(local);
    if (byteLength > 0 && call.isImmediate && !isObserved() && bytes !== undefined && !connection.hasPending) {
      const status = this.#stateOf(connection).outgoing.sendAtOnce(bytes, localOffset, byteLength);
      if (status !== Status.NO_RESOURCE) {
        this.#host.counters.count(WorkerCounter.STREAM_TX);
        return status;
      }
    }
    return this.#start(connection, [pieceOf(call)], params);
  }

  #start(connection: Connection, pieces: readonly LocalPiece[], params: RequestParams | undefined): Status | Request {
    const lane = connection.messageLane();
    const total = bytesOf(pieces);
    if (total === 0) return Status.OK;
    const request = this.#host.requests.take(this.#host.requests.sends);
    if (request === undefined) return Status.NO_RESOURCE;
    request.begin(connection, lane);
    request.pieces = pieces;
    request.byteLength = total;
    request.operation = 'stream';
    request.canceller = this.#cancelSend;
    const isShort = shortBytes(connection, pieces, STREAM_BYTES, total) !== undefined;
    request.protocolName = isShort ? 'eager/short' : 'eager/bcopy';
    this.#host.counters.count(WorkerCounter.STREAM_TX);
    request.starter = this.#stateOf(connection).outgoing.start;
    return this.#host.start(request, params);
  }

  /** See Endpoint.streamRecvNbx. @param request with its memory */
  receive(connection: Connection, request: ReceiveRequest, params: StreamRecvParams | undefined): Status | Request {
    if (connection.failure !== Status.OK && this.#stateOf(connection).byteLength === 0) {
      this.#host.requests.discard(request);
      return connection.failure;
    }
    request.waitAll = params?.waitAll === true;
    request.protocolName = 'stream/recv';
    request.starter = this.#startReceive;
    request.canceller = this.#cancelReceive;
    return this.#host.start(request, params);
  }

  readonly #startReceive = (request: ReceiveRequest): Status => {
    const { connection } = request;
    if (connection === undefined) return notInitialized();
    const state = this.#stateOf(connection);
    state.receives.push(request);
    this.#serve(state, connection);
    return Status.INPROGRESS;
  };

  /** See Endpoint.streamRecvData. */
  takeData(connection: Connection): Uint8Array | undefined {
    const state = this.#states.get(connection.id);
    if (state === undefined || state.busy || state.receives.length > 0) return undefined;
    const [chunk] = state.chunks;
    if (chunk === undefined) {
      ask(state, connection);
      return undefined;
    }
    const bytes = chunk.offset === 0 ? this.#blocks.lend(chunk.bytes) : chunk.bytes.subarray(chunk.offset);
    this.#consume(state, connection, chunk, bytes.byteLength);
    return bytes;
  }

  /** See Endpoint.streamDataRelease. */
  releaseData(bytes: Uint8Array): void {
    this.#blocks.takeBack(bytes);
  }

  /** Number of bytes that have arrived and that no receive has taken. */
  get heldBytes(): number {
    let bytes = 0;
    for (const { byteLength } of this.#states.values()) bytes += byteLength;
    return bytes;
  }

  onData(frame: AmFrame): void {
    const connection = this.#host.connectionOf(frame);
    if (connection === undefined) return;
    const state = this.#stateOf(connection);
    const { flags, start, byteLength: length } = readStream(frame);
    if (length <= 0) return;
    const isAsked = flags === STREAM_ASKED;
    const cost = isAsked ? 0 : length + KEPT_OVERHEAD_BYTES;
    // A message that was requested before the endpoint was closed.
    if (isAsked && !state.hasAsked) return;
    if (!isAsked && !connection.inbound.arrive(cost)) {
      this.#host.breaksProtocol(connection, 'it sent stream data without credit');
      return;
    }
    if (isAsked) state.hasAsked = false;
    this.#host.counters.count(WorkerCounter.STREAM_RX);
    if (state.closed) {
      // No receive will take the bytes, and the peer's close may wait for their acknowledgement.
      if (cost > 0) connection.inbound.release(cost);
      return;
    }
    const request = state.receives[0];
    const taken = request !== undefined && canTake(state, request) ? request.storeNext(frame, start, length) : 0;
    if (taken < length) {
      state.chunks.push({ bytes: this.#blocks.copy(frame.bytes, start + taken, start + length), offset: 0, cost });
      state.byteLength += length - taken;
    } else if (cost > 0) connection.inbound.release(cost);
    if (request !== undefined && taken > 0) this.#endFirst(state, request);
    this.#serve(state, connection);
    connection.inbound.settle();
  }

  /** Called when the peer has returned credit: sends that wait for it continue. */
  creditCame(connection: Connection): void {
    this.#states.get(connection.id)?.outgoing.resume();
  }

  /** Called when the peer has bytes but no credit. */
  peerWaits(connection: Connection): void {
    const state = this.#stateOf(connection);
    state.peerWaits = true;
    if (state.receives.length > 0 || state.closed) ask(state, connection);
  }

  /** Called when the peer requests a message, which needs no credit. */
  requested(connection: Connection): void {
    this.#states.get(connection.id)?.outgoing.requested();
  }

  /** True for a send that waits for credit and has sent nothing yet. */
  readonly #cancelSend = (request: SendRequest): boolean => {
    const { connection } = request;
    const isUnsent = connection !== undefined && this.#states.get(connection.id)?.outgoing.canCancel(request) === true;
    if (!isUnsent) this.#rendezvous.withdraw(request);
    return isUnsent;
  };

  /** Removes a receive that has no bytes yet; false for others. */
  readonly #cancelReceive = (request: ReceiveRequest): boolean => {
    const state = request.connection === undefined ? undefined : this.#states.get(request.connection.id);
    const index = state?.receives.indexOf(request) ?? -1;
    if (state === undefined || index < 0 || request.done > 0 || (index === 0 && state.busy)) return false;
    state.receives.splice(index, 1);
    return true;
  };

  /** Called when the connection has ended: receives that the arrived bytes do not complete end with its status. */
  connectionEnded(connection: Connection): void {
    const state = this.#states.get(connection.id);
    if (state === undefined || state.busy) return;
    for (const request of state.receives.splice(0)) request.end(connection.failure);
  }

  /** Drops a connection that is closed: its receives are cancelled. */
  forget(connection: Connection): void {
    this.cancelReceives(connection);
    const state = this.#states.get(connection.id);
    if (state !== undefined) this.#drop(state, connection, 0);
    this.#states.delete(connection.id);
  }

  /** Ends the receives of a connection that is being closed. A receive whose bytes are being copied to device memory ends when that ends. */
  cancelReceives(connection: Connection): void {
    const state = this.#states.get(connection.id);
    if (state === undefined) return;
    state.closed = true;
    for (const request of state.receives.splice(state.busy ? 1 : 0)) request.end(Status.CANCELED);
    this.#drop(state, connection, state.busy ? 1 : 0);
    ask(state, connection);
  }

  /** True while device memory is copied for a send or a receive. */
  isCopying(connection: Connection): boolean {
    const state = this.#states.get(connection.id);
    return state?.outgoing.isStaging === true || state?.busy === true;
  }

  #stateOf(connection: Connection): StreamState {
    const known = this.#states.get(connection.id);
    if (known !== undefined) return known;
    const state: StreamState = {
      outgoing: new OutgoingStream(this.#host, this.#rendezvous.staging, connection),
      peerWaits: false,
      hasAsked: false,
      chunks: [],
      receives: [],
      busy: false,
      closed: false,
      byteLength: 0,
    };
    this.#states.set(connection.id, state);
    return state;
  }

  /** Passes the bytes that have arrived to the receives, in order. */
  #serve(state: StreamState, connection: Connection): void {
    while (!state.busy && state.receives.length > 0) {
      const request = state.receives[0]!;
      // A zero-length receive needs no bytes.
      if (state.chunks.length === 0 && request.byteLength > 0) break;
      if (!request.isMapped) {
        dropFirst(state.receives);
        request.end(Status.INVALID_ADDR);
        continue;
      }
      if (request.isHost || request.byteLength === 0) this.#fill(state, request, connection);
      else if (!this.#stage(state, request, connection)) return;
      this.#endFirst(state, request);
    }
    if (connection.failure !== Status.OK) this.connectionEnded(connection);
    else if (state.receives.length > 0) ask(state, connection);
  }

  #endFirst(state: StreamState, request: ReceiveRequest): void {
    if (request.waitAll && request.done < request.byteLength) return;
    dropFirst(state.receives);
    request.messageBytes = request.done;
    request.end(Status.OK);
  }

  /** Copies chunks into host memory until either is used up. */
  #fill(state: StreamState, request: ReceiveRequest, connection: Connection): void {
    while (state.chunks.length > 0 && request.done < request.byteLength) {
      const chunk = state.chunks[0]!;
      const bytes = Math.min(chunk.bytes.byteLength - chunk.offset, request.byteLength - request.done);
      request.store(request.done, chunk, chunk.offset, bytes);
      this.#copied(state, connection, chunk, bytes);
      request.done += bytes;
    }
  }

  /** Copies one chunk into device memory; false if the stream continues when the copy has ended. */
  #stage(state: StreamState, request: ReceiveRequest, connection: Connection): boolean {
    const chunk = state.chunks[0]!;
    const bytes = Math.min(chunk.bytes.byteLength - chunk.offset, request.byteLength - request.done);
    if (bytes === 0) return true;
    state.busy = true;
    const { staging } = this.#rendezvous;
    staging.acquire((fragment, failure) => {
      if (fragment === undefined) {
        state.busy = false;
        dropFirst(state.receives);
        request.end(failure);
        this.#serve(state, connection);
        return;
      }
      fragmentBytesOf(fragment).set(chunk.bytes.subarray(chunk.offset, chunk.offset + bytes));
      const part = { pieces: request.pieces, from: request.done, byteLength: bytes };
      staging.write(part, fragment, (status) => {
        staging.release(fragment);
        state.busy = false;
        this.#copied(state, connection, chunk, bytes);
        request.done += bytes;
        if (status < 0 || state.closed) {
          dropFirst(state.receives);
          request.end(status < 0 ? status : Status.CANCELED);
        } else this.#endFirst(state, request);
        this.#serve(state, connection);
      });
    });
    return false;
  }

  /** Drops the chunks that no receive will take, except for the first `first`. */
  #drop(state: StreamState, connection: Connection, first: number): void {
    for (const { bytes, offset, cost } of state.chunks.splice(first)) {
      state.byteLength -= bytes.byteLength - offset;
      if (cost > 0) connection.inbound.release(cost);
    }
  }

  /** Called when bytes of a chunk are in the memory of a receive. */
  #copied(state: StreamState, connection: Connection, chunk: Chunk, bytes: number): void {
    this.#consume(state, connection, chunk, bytes);
    if (chunk.offset === chunk.bytes.byteLength) this.#blocks.give(chunk.bytes);
  }

  #consume(state: StreamState, connection: Connection, chunk: Chunk, bytes: number): void {
    chunk.offset += bytes;
    state.byteLength -= bytes;
    if (chunk.offset < chunk.bytes.byteLength || state.chunks[0] !== chunk) return;
    state.chunks.shift();
    if (chunk.cost > 0) connection.inbound.release(chunk.cost);
  }
}

/** True if bytes that arrive now belong to a receive into host memory, and need not be kept. */
function canTake({ chunks, busy }: StreamState, request: ReceiveRequest): boolean {
  return !busy && chunks.length === 0 && request.isHost && request.isMapped;
}

/** Requests one message from a peer without credit, if no chunk is kept: a receive takes it immediately, so it occupies hardly any memory. */
function ask(state: StreamState, connection: Connection): void {
  if (!state.peerWaits || state.hasAsked || state.chunks.length > 0) return;
  state.peerWaits = false;
  state.hasAsked = true;
  postStreamCredit(connection, CreditCode.STREAM_TAKE);
}

/** Removes the first receive. Does not use `shift` on the last element: in Node.js 24 it frees the array's memory, which the next `push` allocates again. */
function dropFirst(receives: ReceiveRequest[]): void {
  if (receives.length === 1) receives.pop();
  else receives.shift();
}

/** Minimum message length for a block. */
const BLOCK_BYTES_MIN = 4096;

/** Maximum number of free blocks: about a megabyte for messages of maximum length. */
const FREE_MAX = 16;

/** The blocks of the streams of one worker. */
export class MessageBlocks {
  /** Free blocks, the last one used at the end. Most messages have the maximum length of a transport, so most blocks have that length too. */
  readonly #free: Uint8Array[] = [];
  /** Blocks that the program has and may give back. */
  readonly #lent: WeakSet<Uint8Array> = new WeakSet();

  /** Copies a message into memory that has no other owner. */
  copy(bytes: Uint8Array, start: number, end: number): Uint8Array {
    if (end - start < BLOCK_BYTES_MIN) return bytes.slice(start, end);
    const block = this.#take(end - start);
    block.set(bytes.subarray(start, end));
    return block;
  }

  /** Takes back the memory of a message whose bytes were copied, or that the program has released. */
  give(block: Uint8Array): void {
    // A short message, or a block that the program has detached. If a block is detached later, its length matches no message, so it is evicted in turn.
    if (block.byteLength < BLOCK_BYTES_MIN) return;
    this.#free.push(block);
    if (this.#free.length > FREE_MAX) this.#free.shift();
  }

  /** Passes the memory of a message to the program, which may keep it for ever. */
  lend(block: Uint8Array): Uint8Array {
    if (block.byteLength >= BLOCK_BYTES_MIN) this.#lent.add(block);
    return block;
  }

  /** Takes back lent memory, once. Ignores other memory. */
  takeBack(block: Uint8Array): void {
    if (this.#lent.delete(block)) this.give(block);
  }

  #take(byteLength: number): Uint8Array {
    for (let i = this.#free.length - 1; i >= 0; i--) {
      const block = this.#free[i]!;
      if (block.byteLength !== byteLength) continue;
      this.#free.splice(i, 1);
      return block;
    }
    // Not cleared, as all of it is written next. A plain Uint8Array, since a program may get it.
    return new Uint8Array(Buffer.allocUnsafeSlow(byteLength).buffer);
  }
}
