/**
 * The rendezvous: how long messages and memory that no transport reaches move once both ends know each other. The receiver reads the memory of the
 * sender if a lane can; else it asks for the bytes, and the sender writes them into its memory if a lane can, or sends them window by window.
 *
 * Requests name each other by Connection.expect; whatever a peer says about a request that it has no business with is ignored.
 */

import { isUcxError } from '../../ucs/error.ts';
import { Status } from '../../ucs/status.ts';
import type { AmFrame } from '../../uct/api/iface.ts';
import { highOf, joinWords, MessageId } from '../core/message.ts';
import { sendPieces } from '../core/message-packer.ts';
import type { ProtocolHost } from '../core/protocol-host.ts';
import { type Connection, Request, RequestKind } from '../core/request.ts';
import { WorkerCounter } from '../core/worker-counters.ts';
import { areHost, areMapped, bytesOf, type Piece, scatter } from '../mem/local-bytes.ts';
import type { MemoryHandle } from '../mem/memory-handle.ts';
import type { RemoteKey } from '../mem/remote-key.ts';
import { Operation } from '../proto/selection.ts';
import { canMove, describeTransfer, type RmaPlace } from './internal-rma.ts';
import { type OwnKey, ownKey } from './own-key.ts';
import { Staging } from './staging.ts';

/** Words of the headers here. */
const RTR_WORDS = 10;
const DATA_WORDS = 4;
const REPLY_WORDS = 6;
/** Windows of one message that are under way at the same time: the next is filled while one is emptied. */
const WINDOWS_MAX = 2;

const HEADER = new Int32Array(RTR_WORDS);

/** What a sender keeps: the memory that is read, and its key. */
export interface SendState {
  readonly pieces: readonly Piece[];
  readonly key: OwnKey | undefined;
}

/** A window that is being filled. */
interface Window {
  readonly offset: number;
  readonly byteLength: number;
  /** Where device memory is staged; undefined for host memory. */
  readonly fragment: MemoryHandle | undefined;
  received: number;
}

/** What a receiver keeps. */
interface ReceiveState {
  readonly connection: Connection;
  readonly peerRequest: number;
  readonly pieces: readonly Piece[];
  readonly total: number;
  readonly isHost: boolean;
  /** Key of the own memory, for a sender that can write it. */
  key: OwnKey | undefined;
  readonly windows: Window[];
  /** First byte that nobody has asked for. */
  asked: number;
  finished: number;
  /** The receive is over: fragments that it still waits for go back. */
  ended: boolean;
}

/** Where the data of a message is, as its sender says. */
export interface RemoteData {
  readonly packedKey: Uint8Array | undefined;
  readonly keyOffset: number;
}

/** The rendezvous of one worker. */
export class Rendezvous {
  readonly staging: Staging;
  readonly #host: ProtocolHost;

  constructor(host: ProtocolHost) {
    this.#host = host;
    this.staging = new Staging(host);
  }

  /** The key of memory that a peer may read; undefined for several pieces, or where no lane could use it. */
  keyOf(connection: Connection, pieces: readonly Piece[], roomBytes: number): OwnKey | undefined {
    const [piece] = pieces;
    if (pieces.length !== 1 || piece === undefined) return undefined;
    const key = ownKey(this.#host.context, connection, piece);
    if (key === undefined || key.packed.byteLength <= roomBytes) return key;
    key.release();
    return undefined;
  }

  /** Makes a request the sender of a rendezvous: it ends with the answer of the peer. */
  offer(request: Request, pieces: readonly Piece[], key: OwnKey | undefined): void {
    request.transfer = { pieces, key } satisfies SendState;
    if (key !== undefined) request.release = () => key.release();
    request.replyHandler = endWith;
  }

  /** Receives `pieces` from the peer's request, then answers it and ends `request`. */
  receive(
    request: Request,
    connection: Connection,
    peerRequest: number,
    pieces: readonly Piece[],
    data: RemoteData,
  ): void {
    request.connection = connection;
    const total = bytesOf(pieces);
    if (connection.failure !== Status.OK) {
      request.end(connection.failure);
      return;
    }
    if (total === 0) {
      this.reply(connection, peerRequest, Status.OK);
      request.end(Status.OK);
      return;
    }
    if (this.#readRemote(request, connection, peerRequest, pieces, data)) return;
    const state: ReceiveState = {
      connection,
      peerRequest,
      pieces,
      total,
      isHost: areHost(pieces),
      key: undefined,
      windows: [],
      asked: 0,
      finished: 0,
      ended: false,
    };
    request.transfer = state;
    this.#host.counters.count(WorkerCounter.RNDV_AM);
    nameProtocol(request, 'rndv/am');
    request.lane = connection.amLane;
    request.replyHandler = (receiver, status) => {
      this.#endReceive(receiver, state, status, false);
    };
    request.abandon = (receiver, status) => this.#endReceive(receiver, state, status, false);
    // A get through messages has asked already.
    if (request.wireId === 0) connection.expect(request);
    else connection.renew(request);
    state.key = this.#keyToWrite(connection, pieces);
    this.#askMore(request, state);
  }

  /** The peer asks for a window of a message that this worker sends. */
  onRtr(frame: AmFrame): void {
    const { words, offset, byteLength, bytes } = frame;
    const at = offset >> 2;
    const connection = this.#host.connectionById(words[at]!);
    const request = connection?.waiting.get(words[at + 1]!);
    const state = request?.transfer as SendState | undefined;
    if (connection === undefined || request === undefined || request.queued) return;
    if (state?.pieces === undefined || 'windows' in state) return;
    const peerRequest = words[at + 2]!;
    const from = joinWords(words[at + 4]!, words[at + 5]!);
    const length = joinWords(words[at + 6]!, words[at + 7]!);
    if (from + length > bytesOf(state.pieces) || length > this.staging.fragmentBytes) return;
    const keyBytes = byteLength - RTR_WORDS * 4;
    if (keyBytes > 0) {
      const start = offset + RTR_WORDS * 4;
      const packed = bytes.slice(start, start + keyBytes);
      const keyOffset = joinWords(words[at + 8]!, words[at + 9]!);
      if (this.#writeRemote(request, state, connection, peerRequest, packed, keyOffset)) return;
    }
    this.#sendWindow(request, state, connection, peerRequest, from, length);
  }

  /** Bytes of a message that this worker receives. */
  onData(frame: AmFrame): void {
    const { words, offset, byteLength, bytes } = frame;
    const at = offset >> 2;
    const connection = this.#host.connectionById(words[at]!);
    const request = connection?.waiting.get(words[at + 1]!);
    const state = request?.transfer as ReceiveState | undefined;
    if (request === undefined || state?.windows === undefined) return;
    const from = joinWords(words[at + 2]!, words[at + 3]!);
    const length = byteLength - DATA_WORDS * 4;
    const window = state.windows.find((open) => from >= open.offset && from + length <= open.offset + open.byteLength);
    if (window === undefined || length <= 0 || window.received + length > window.byteLength) return;
    const start = offset + DATA_WORDS * 4;
    if (window.fragment === undefined) scatter(state.pieces, from, length, bytes, start);
    else window.fragment.bytes!.set(bytes.subarray(start, start + length), from - window.offset);
    window.received += length;
    if (window.received === window.byteLength) this.#windowFull(request, state, window);
  }

  /** Answers a request of the peer. @param by the request that moved the bytes of the peer's request: the peer is told what carried them */
  reply(connection: Connection, peerRequest: number, status: Status, low = 0, high = 0, by?: Request): void {
    HEADER[0] = connection.remoteId;
    HEADER[1] = peerRequest;
    HEADER[2] = status;
    HEADER[3] = 0;
    HEADER[4] = low;
    HEADER[5] = high;
    const names =
      by === undefined ? undefined : Buffer.from([by.transport, by.device, by.protocol].join('/'), 'latin1');
    connection.post(MessageId.REPLY, HEADER, REPLY_WORDS, names);
  }

  /** Reads the sender's memory if a lane can: true when the receive is under way or over. */
  #readRemote(
    request: Request,
    connection: Connection,
    peerRequest: number,
    pieces: readonly Piece[],
    { packedKey, keyOffset }: RemoteData,
  ): boolean {
    if (packedKey === undefined) return false;
    const rkey = this.#unpack(packedKey, connection);
    if (rkey === undefined) return false;
    const places = pieces.map((piece) => placeOf(piece, rkey, keyOffset));
    const reaches = places.every(
      (place) => place.remoteOffset + place.byteLength <= rkey.byteLength && canMove(connection, Operation.GET, place),
    );
    if (!reaches) {
      connection.rkeys.release(rkey);
      return false;
    }
    let left = places.length;
    let failure: Status = Status.OK;
    const done = (status: Status): void => {
      if (status < 0 && failure === Status.OK) failure = status;
      left -= 1;
      if (left > 0) return;
      connection.rkeys.release(rkey, failure < 0);
      this.reply(connection, peerRequest, failure, 0, 0, request);
      request.end(failure);
    };
    this.#host.counters.count(WorkerCounter.RNDV_GET_ZCOPY);
    nameProtocol(request, 'rndv/get');
    for (const place of places) this.#move(request, connection, Operation.GET, place, done);
    return true;
  }

  /** Writes the receiver's memory if a lane can: true when the transfer is under way or over. */
  #writeRemote(
    request: Request,
    state: SendState,
    connection: Connection,
    peerRequest: number,
    packed: Uint8Array,
    keyOffset: number,
  ): boolean {
    const [piece] = state.pieces;
    const rkey = this.#unpack(packed, connection);
    if (rkey === undefined) return false;
    const place = piece === undefined ? undefined : placeOf(piece, rkey, keyOffset);
    const reaches =
      place !== undefined &&
      state.pieces.length === 1 &&
      place.remoteOffset + place.byteLength <= rkey.byteLength &&
      canMove(connection, Operation.PUT, place);
    if (!reaches) {
      connection.rkeys.release(rkey);
      return false;
    }
    connection.forget(request);
    this.#host.counters.count(WorkerCounter.RNDV_PUT_ZCOPY);
    nameProtocol(request, 'rndv/put');
    const end = (status: Status): void => {
      connection.rkeys.release(rkey, status < 0);
      this.reply(connection, peerRequest, status, 0, 0, request);
      request.end(status);
    };
    this.#move(request, connection, Operation.PUT, place, (status) => {
      // The receiver may be told only when the bytes are there.
      if (status < 0) end(status);
      else this.#flushLane(request, connection, end);
    });
    return true;
  }

  #flushLane(request: Request, connection: Connection, done: (status: Status) => void): void {
    const flush = new Request(this.#host);
    flush.begin(RequestKind.FLUSH);
    flush.connection = connection;
    flush.lane = request.lane;
    flush.starter = flushOwnLane;
    flush.callback = (_flush, status) => done(status);
    connection.run(flush);
  }

  #move(
    request: Request,
    connection: Connection,
    operation: Operation,
    place: RmaPlace,
    done: (status: Status) => void,
  ): void {
    if (place.byteLength === 0) {
      done(Status.OK);
      return;
    }
    try {
      const transfer = describeTransfer(this.#host, connection, operation, place, done);
      request.lane = transfer.lane;
      connection.run(transfer);
    } catch (error) {
      request.error = error;
      done(Status.IO_ERROR);
    }
  }

  /** A key of the peer for the lanes alone; undefined for one that no lane can use. */
  #unpack(packed: Uint8Array, connection: Connection): RemoteKey | undefined {
    try {
      const unpack = (): RemoteKey => this.#host.context.unpackRkey(packed, connection, { messages: false });
      return connection.rkeys.acquire(packed, unpack);
    } catch {
      // Whatever is wrong with the key of the peer: the bytes can still come in messages.
      return undefined;
    }
  }

  /** The key of memory that a sender may write; undefined where it cannot have one: then the bytes come in messages. */
  #keyToWrite(connection: Connection, pieces: readonly Piece[]): OwnKey | undefined {
    try {
      return this.keyOf(connection, pieces, connection.amBcopyMax - RTR_WORDS * 4);
    } catch (error) {
      if (!isUcxError(error)) throw error;
      return undefined;
    }
  }

  /** Asks for windows as long as there are bytes and room. */
  #askMore(request: Request, state: ReceiveState): void {
    while (state.asked < state.total && state.windows.length < WINDOWS_MAX) {
      const offset = state.asked;
      const byteLength = Math.min(this.staging.fragmentBytes, state.total - offset);
      state.asked += byteLength;
      if (state.isHost) this.#ask(request, state, { offset, byteLength, fragment: undefined, received: 0 });
      else {
        const placeholder: Window = { offset, byteLength: 0, fragment: undefined, received: 0 };
        state.windows.push(placeholder);
        this.staging.acquireToReceive((fragment) => {
          state.windows.splice(state.windows.indexOf(placeholder), 1);
          // The receive may have ended while it waited for the fragment.
          if (state.ended) this.staging.releaseReceived(fragment);
          else this.#ask(request, state, { offset, byteLength, fragment, received: 0 });
        });
      }
    }
  }

  #ask(request: Request, state: ReceiveState, window: Window): void {
    const { connection, key } = state;
    state.windows.push(window);
    this.#host.counters.count(WorkerCounter.RNDV_RTR);
    HEADER[0] = connection.remoteId;
    HEADER[1] = state.peerRequest;
    HEADER[2] = request.wireId;
    HEADER[3] = 0;
    HEADER[4] = window.offset | 0;
    HEADER[5] = highOf(window.offset);
    HEADER[6] = window.byteLength | 0;
    HEADER[7] = highOf(window.byteLength);
    const keyOffset = key?.offset ?? 0;
    HEADER[8] = keyOffset | 0;
    HEADER[9] = highOf(keyOffset);
    // The sender needs the key once; it decides at the first window.
    connection.post(MessageId.RTR, HEADER, RTR_WORDS, window.offset === 0 ? key?.packed : undefined);
  }

  #windowFull(request: Request, state: ReceiveState, window: Window): void {
    const { fragment } = window;
    if (fragment === undefined) {
      this.#windowDone(request, state, window, areMapped(state.pieces) ? Status.OK : Status.INVALID_ADDR);
      return;
    }
    this.staging.write(state.pieces, window.offset, fragment, window.byteLength, (status) => {
      this.#windowDone(request, state, window, status);
    });
  }

  #windowDone(request: Request, state: ReceiveState, window: Window, status: Status): void {
    const index = state.windows.indexOf(window);
    if (index >= 0) state.windows.splice(index, 1);
    if (window.fragment !== undefined) this.staging.releaseReceived(window.fragment);
    if (state.ended) return;
    state.finished += window.byteLength;
    if (status < 0 || state.finished === state.total) this.#endReceive(request, state, status, true);
    else this.#askMore(request, state);
  }

  /** @param answer whether the peer waits for an answer */
  #endReceive(request: Request, state: ReceiveState, status: Status, answer: boolean): void {
    state.ended = true;
    state.key?.release();
    // Fragments that are being written go back when that ends.
    for (const window of state.windows.splice(0)) {
      if (window.fragment !== undefined && window.received < window.byteLength) {
        this.staging.releaseReceived(window.fragment);
      }
    }
    if (answer) this.reply(state.connection, state.peerRequest, status);
    request.end(status);
  }

  #sendWindow(
    request: Request,
    state: SendState,
    connection: Connection,
    peerRequest: number,
    from: number,
    byteLength: number,
  ): void {
    nameProtocol(request, 'rndv/am');
    if (!areMapped(state.pieces)) {
      this.#failSend(request, connection, peerRequest, Status.INVALID_ADDR);
      return;
    }
    if (areHost(state.pieces)) {
      this.#pump(request, connection, peerRequest, state.pieces, from, from, byteLength, () => {});
      return;
    }
    this.staging.acquire((fragment) => {
      if (request.transfer !== state) {
        this.staging.release(fragment);
        return;
      }
      this.staging.read(state.pieces, from, fragment, byteLength, (status) => {
        if (status < 0 || request.transfer !== state) {
          this.staging.release(fragment);
          if (request.transfer === state) this.#failSend(request, connection, peerRequest, status);
          return;
        }
        const staged: Piece[] = [{ memory: fragment, offset: 0, byteLength, start: 0 }];
        this.#pump(request, connection, peerRequest, staged, 0, from, byteLength, () => this.staging.release(fragment));
      });
    });
  }

  /** Ends both sides of a message whose memory cannot be read. */
  #failSend(request: Request, connection: Connection, peerRequest: number, status: Status): void {
    this.reply(connection, peerRequest, status);
    connection.forget(request);
    request.onAbandoned(status);
  }

  /** Sends a window in as many messages as it takes, going on when there is room. */
  #pump(
    sender: Request,
    connection: Connection,
    peerRequest: number,
    pieces: readonly Piece[],
    from: number,
    position: number,
    byteLength: number,
    release: () => void,
  ): void {
    const pump = new Request(this.#host);
    pump.begin(RequestKind.MESSAGE);
    pump.connection = connection;
    pump.pieces = pieces;
    pump.callback = release;
    const frameBytes = connection.amBcopyMax - DATA_WORDS * 4;
    const { transfer } = sender;
    pump.starter = () => {
      while (pump.done < byteLength) {
        if (sender.transfer !== transfer) return Status.CANCELED;
        const bytes = Math.min(frameBytes, byteLength - pump.done);
        const at = position + pump.done;
        HEADER[0] = connection.remoteId;
        HEADER[1] = peerRequest;
        HEADER[2] = at | 0;
        HEADER[3] = highOf(at);
        const status = sendPieces(connection, MessageId.DATA, HEADER, DATA_WORDS, pieces, from + pump.done, bytes);
        if (status !== Status.OK) return status;
        pump.done += bytes;
      }
      return Status.OK;
    };
    connection.run(pump);
  }
}

/** A put or get through messages keeps its own name, whatever way its bytes take. */
function nameProtocol(request: Request, name: string): void {
  if (request.kind !== RequestKind.RMA) request.protocolName = name;
}

function endWith(request: Request, status: Status): void {
  request.end(status);
}

function placeOf(piece: Piece, rkey: RemoteKey, keyOffset: number): RmaPlace {
  const { memory, offset, byteLength, start } = piece;
  return { local: memory, localOffset: offset, byteLength, rkey, remoteOffset: keyOffset + start };
}

function flushOwnLane(request: Request): Status {
  return request.lane === undefined ? Status.OK : request.lane.endpoint.flush(request);
}
