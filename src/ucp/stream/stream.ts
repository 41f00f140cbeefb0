/**
 * Streams: bytes in order from one endpoint to its peer, without boundaries. A send of any length goes in as many messages as it takes; a
 * receive takes what is there, or waits until it is full.
 */

import { Status } from '../../ucs/status.ts';
import type { AmFrame } from '../../uct/api/iface.ts';
import { areHost, areMapped, bytesOf, hostBytes, piecesOf, scatter } from '../api/local-bytes.ts';
import type { RequestParams, StreamRecvParams } from '../api/request.ts';
import { MessageId, NO_ENDPOINT } from '../core/message.ts';
import { sendMessage, sendPieces } from '../core/message-packer.ts';
import { isObserved } from '../core/observation.ts';
import type { ProtocolHost } from '../core/protocol-host.ts';
import { type Connection, Request, RequestKind } from '../core/request.ts';
import { WorkerCounter } from '../core/worker-counters.ts';
import type { LocalBuffer, MemoryHandle } from '../mem/memory-handle.ts';
import type { Rendezvous } from '../rndv/rendezvous.ts';

const STREAM_WORDS = 2;
const HEADER = new Int32Array(STREAM_WORDS);

/** A message of the stream, or what is left of it. */
interface Chunk {
  readonly bytes: Uint8Array;
  offset: number;
}

/** One direction of a connection: what arrived, and who waits for it. */
interface StreamState {
  readonly chunks: Chunk[];
  readonly receives: StreamReceive[];
  /** A receive is being written into device memory: those behind it wait. */
  busy: boolean;
  /** Device memory is being sent, fragment by fragment: what is sent after it waits. */
  sending: boolean;
  /** The connection is closed here: nothing more is received. */
  closed: boolean;
  byteLength: number;
}

interface StreamReceive {
  readonly request: Request;
  readonly waitAll: boolean;
}

/** The streams of one worker. */
export class Streams {
  readonly #host: ProtocolHost;
  readonly #rendezvous: Rendezvous;
  readonly #states: Map<number, StreamState> = new Map();

  constructor(host: ProtocolHost, rendezvous: Rendezvous) {
    this.#host = host;
    this.#rendezvous = rendezvous;
  }

  /** Bytes that have arrived on a connection and were not received. */
  available(connection: Connection): number {
    return this.#states.get(connection.id)?.byteLength ?? 0;
  }

  /** See Endpoint.streamSendNbx. */
  send(
    connection: Connection,
    local: LocalBuffer,
    localOffset: number,
    byteLength: number,
    params: RequestParams | undefined,
  ): Status | Request {
    const pieces = piecesOf(this.#host.context, local, localOffset, byteLength);
    const total = bytesOf(pieces);
    if (connection.failure !== Status.OK) return connection.failure;
    connection.checkMessages();
    if (total === 0) return Status.OK;
    const isImmediate = params?.noImmediateCompletion !== true && !isObserved();
    const [first] = pieces;
    const bytes = pieces.length === 1 ? hostBytes(first!.memory) : undefined;
    const state = this.#stateOf(connection);
    const isFree = !connection.hasPending && !state.sending && connection.remoteId !== NO_ENDPOINT;
    if (isImmediate && bytes !== undefined && isFree) {
      if (STREAM_WORDS * 4 + total <= connection.amBcopyMax) {
        setHeader(connection);
        const offset = first!.offset;
        const status = sendMessage(connection, MessageId.STREAM, HEADER, STREAM_WORDS, bytes, offset, total);
        if (status !== Status.NO_RESOURCE) {
          this.#host.counters.count(WorkerCounter.STREAM_TX);
          return status;
        }
      }
    }
    const request = this.#host.newRequest();
    if (request === undefined) return Status.NO_RESOURCE;
    request.begin(RequestKind.MESSAGE);
    request.connection = connection;
    request.lane = connection.amLane;
    request.pieces = pieces;
    request.byteLength = total;
    request.protocolName = 'stream/eager';
    this.#host.counters.count(WorkerCounter.STREAM_TX);
    const isHost = areHost(pieces);
    request.starter = () => {
      if (state.sending) return Status.NO_RESOURCE;
      return isHost ? sendRest(request) : this.#sendStaged(request, state);
    };
    return this.#host.start(request, params);
  }

  /** See Endpoint.streamRecvNbx. */
  receive(
    connection: Connection,
    local: LocalBuffer,
    localOffset: number,
    byteLength: number,
    params: StreamRecvParams | undefined,
  ): Status | Request {
    const pieces = piecesOf(this.#host.context, local, localOffset, byteLength);
    const state = this.#stateOf(connection);
    if (connection.failure !== Status.OK && state.byteLength === 0) return connection.failure;
    const request = this.#host.newRequest();
    if (request === undefined) return Status.NO_RESOURCE;
    request.begin(RequestKind.RECEIVE);
    request.connection = connection;
    request.lane = connection.amLane;
    request.pieces = pieces;
    request.byteLength = bytesOf(pieces);
    request.protocolName = 'stream/recv';
    request.starter = () => {
      state.receives.push({ request, waitAll: params?.waitAll === true });
      this.#serve(state, connection);
      return Status.INPROGRESS;
    };
    return this.#host.start(request, params);
  }

  /** Takes what has arrived, without a copy (ucp_stream_recv_data_nb); undefined when nothing has. */
  takeData(connection: Connection): Uint8Array | undefined {
    const state = this.#states.get(connection.id);
    if (state === undefined || state.busy || state.receives.length > 0) return undefined;
    const chunk = state.chunks.shift();
    if (chunk === undefined) return undefined;
    const bytes = chunk.bytes.subarray(chunk.offset);
    state.byteLength -= bytes.byteLength;
    return bytes;
  }

  /** Bytes that have arrived and that no receive has taken. */
  get heldBytes(): number {
    let bytes = 0;
    for (const { byteLength } of this.#states.values()) bytes += byteLength;
    return bytes;
  }

  onData(frame: AmFrame): void {
    const { offset, byteLength, bytes } = frame;
    const connection = this.#host.connectionOf(frame);
    if (connection === undefined) return;
    const state = this.#stateOf(connection);
    const start = offset + STREAM_WORDS * 4;
    const length = byteLength - STREAM_WORDS * 4;
    if (length <= 0) return;
    this.#host.counters.count(WorkerCounter.STREAM_RX);
    state.chunks.push({ bytes: bytes.slice(start, start + length), offset: 0 });
    state.byteLength += length;
    this.#serve(state, connection);
  }

  /** Takes a receive back that has got nothing yet; false for others. */
  cancel(request: Request): boolean {
    const state = request.connection === undefined ? undefined : this.#states.get(request.connection.id);
    const index = state?.receives.findIndex((receive) => receive.request === request) ?? -1;
    if (state === undefined || index < 0 || request.done > 0 || (index === 0 && state.busy)) return false;
    state.receives.splice(index, 1);
    return true;
  }

  /** The connection has ended: receives that what has arrived does not end, end with its status. */
  connectionEnded(connection: Connection): void {
    const state = this.#states.get(connection.id);
    if (state === undefined || state.busy) return;
    for (const { request } of state.receives.splice(0)) request.end(connection.failure);
  }

  /** Forgets a connection that is closed: its receives are cancelled. */
  forget(connection: Connection): void {
    this.cancelReceives(connection);
    this.#states.delete(connection.id);
  }

  /** Ends the receives of a connection that is being closed. One whose bytes are on their way into device memory ends with them. */
  cancelReceives(connection: Connection): void {
    const state = this.#states.get(connection.id);
    if (state === undefined) return;
    state.closed = true;
    for (const { request } of state.receives.splice(state.busy ? 1 : 0)) request.end(Status.CANCELED);
  }

  /** True while device memory is copied for a send or a receive. */
  isCopying(connection: Connection): boolean {
    const state = this.#states.get(connection.id);
    return state?.sending === true || state?.busy === true;
  }

  #stateOf(connection: Connection): StreamState {
    const known = this.#states.get(connection.id);
    if (known !== undefined) return known;
    const state: StreamState = { chunks: [], receives: [], busy: false, sending: false, closed: false, byteLength: 0 };
    this.#states.set(connection.id, state);
    return state;
  }

  /** Gives what has arrived to the receives, in order. */
  #serve(state: StreamState, connection: Connection): void {
    while (!state.busy && state.chunks.length > 0 && state.receives.length > 0) {
      const { request, waitAll } = state.receives[0]!;
      if (!areMapped(request.pieces!)) {
        state.receives.shift();
        request.end(Status.INVALID_ADDR);
        continue;
      }
      if (areHost(request.pieces!)) this.#fill(state, request);
      else if (!this.#stage(state, request, connection)) return;
      this.#endFirst(state, request, waitAll);
    }
    if (connection.failure !== Status.OK) this.connectionEnded(connection);
  }

  #endFirst(state: StreamState, request: Request, waitAll: boolean): void {
    if (waitAll && request.done < request.byteLength) return;
    state.receives.shift();
    request.receivedBytes = request.done;
    request.end(Status.OK);
  }

  /** Copies chunks into host memory until one of both is used up. */
  #fill(state: StreamState, request: Request): void {
    while (state.chunks.length > 0 && request.done < request.byteLength) {
      const chunk = state.chunks[0]!;
      const bytes = Math.min(chunk.bytes.byteLength - chunk.offset, request.byteLength - request.done);
      scatter(request.pieces!, request.done, bytes, chunk.bytes, chunk.offset);
      this.#consume(state, chunk, bytes);
      request.done += bytes;
    }
  }

  /** Copies one chunk into device memory; false, since it goes on when that has ended. */
  #stage(state: StreamState, request: Request, connection: Connection): boolean {
    const chunk = state.chunks[0]!;
    const bytes = Math.min(chunk.bytes.byteLength - chunk.offset, request.byteLength - request.done);
    if (bytes === 0) return true;
    state.busy = true;
    const { staging } = this.#rendezvous;
    staging.acquire((fragment) => {
      fragment.bytes!.set(chunk.bytes.subarray(chunk.offset, chunk.offset + bytes));
      staging.write(request.pieces!, request.done, fragment, bytes, (status) => {
        staging.release(fragment);
        state.busy = false;
        this.#consume(state, chunk, bytes);
        request.done += bytes;
        const waitAll = state.receives[0]!.waitAll;
        if (status < 0 || state.closed) {
          state.receives.shift();
          request.end(status < 0 ? status : Status.CANCELED);
        } else this.#endFirst(state, request, waitAll);
        this.#serve(state, connection);
      });
    });
    return false;
  }

  #consume(state: StreamState, chunk: Chunk, bytes: number): void {
    chunk.offset += bytes;
    state.byteLength -= bytes;
    if (chunk.offset === chunk.bytes.byteLength) state.chunks.shift();
  }

  /** Sends device memory: fragment by fragment through host memory, in order. */
  #sendStaged(request: Request, state: StreamState): Status {
    const connection = request.connection!;
    if (connection.remoteId === NO_ENDPOINT) return Status.NO_RESOURCE;
    state.sending = true;
    const end = (status: Status): void => {
      state.sending = false;
      request.end(status);
    };
    const { staging } = this.#rendezvous;
    const pieces = request.pieces!;
    const next = (): void => {
      if (request.done === request.byteLength || connection.failure !== Status.OK) {
        end(connection.failure);
        return;
      }
      staging.acquire((fragment) => {
        const bytes = Math.min(staging.fragmentBytes, request.byteLength - request.done);
        staging.read(pieces, request.done, fragment, bytes, (status) => {
          if (status < 0) {
            staging.release(fragment);
            end(status);
            return;
          }
          this.#sendFragment(connection, fragment, bytes, (sent) => {
            staging.release(fragment);
            if (sent < 0) {
              end(sent);
              return;
            }
            request.done += bytes;
            next();
          });
        });
      });
    };
    next();
    return Status.INPROGRESS;
  }

  #sendFragment(
    connection: Connection,
    fragment: MemoryHandle,
    byteLength: number,
    done: (status: Status) => void,
  ): void {
    const part = new Request(this.#host);
    part.begin(RequestKind.MESSAGE);
    part.connection = connection;
    part.pieces = [{ memory: fragment, offset: 0, byteLength, start: 0 }];
    part.byteLength = byteLength;
    part.starter = sendRest;
    part.callback = (_part, status) => done(status);
    connection.run(part);
  }
}

function setHeader(connection: Connection): void {
  HEADER[0] = connection.remoteId;
  HEADER[1] = 0;
}

/** Sends what is left, message by message; goes on where it stopped. */
function sendRest(request: Request): Status {
  const connection = request.connection!;
  if (connection.remoteId === NO_ENDPOINT) return Status.NO_RESOURCE;
  const frameBytes = connection.amBcopyMax - STREAM_WORDS * 4;
  if (!areMapped(request.pieces!)) return Status.INVALID_ADDR;
  while (request.done < request.byteLength) {
    const bytes = Math.min(frameBytes, request.byteLength - request.done);
    setHeader(connection);
    const status = sendPieces(connection, MessageId.STREAM, HEADER, STREAM_WORDS, request.pieces!, request.done, bytes);
    if (status !== Status.OK) return status;
    request.done += bytes;
  }
  return Status.OK;
}
