/**
 * Receives of the streams of one worker. This engine queues them, because libucp cannot cancel stream receives. Arrived bytes are taken from libucp at
 * once, because it drops them when the endpoint fails, and copied by the next receive.
 *
 * ```
 * STARTING --the call returns--> WAITING --bytes, failure, cancellation: the request ends too--> ENDED
 * '---- the same: the call returns the result -------------------------------------------------^
 * ```
 */

import type { Request, StreamRecvParams } from '../../api/contract/request.ts';
import { bytesOf, eachPart, type GivenMemory, type Piece, type PieceOf, piecesOf } from '../../api/memory/local.ts';
import { addressOf, allocateScratch, memcpy, type ScratchBlock } from '../../sys/index.ts';
import { joinWords } from '../../ucs/type/int64.ts';
import { Status } from '../../ucs/type/status.ts';
import { MemAccess } from '../../uct/api/memory-domain.ts';
import type { DataReceives } from '../device/receives.ts';
import type { WorkerCore } from '../engine/worker-core.ts';
import { type LocalMemory, pin } from '../mem/memory-handle.ts';
import { addressIn, checkKept, isHost } from '../request/local.ts';
import { STREAM_RECEIVE, TRANSPORT, type UcpRequest } from '../request/request.ts';

/** Mask for the number of progress calls: streams are checked at every 64th one even if libucp reports no events. */
const QUIET_TURNS_MASK = 63;

/** State of a receive: see the diagram above. */
const ReceiveState = { STARTING: 0, WAITING: 1, ENDED: 2 } as const;
type ReceiveState = (typeof ReceiveState)[keyof typeof ReceiveState];

/** A pending receive. */
class StreamReceive {
  readonly request: UcpRequest;
  readonly pieces: readonly Piece<LocalMemory>[];
  readonly waitAll: boolean;
  /** Bytes received. */
  done = 0;
  state: ReceiveState = ReceiveState.STARTING;
  status: Status = Status.OK;

  constructor(request: UcpRequest, pieces: readonly Piece<LocalMemory>[], waitAll: boolean) {
    this.request = request;
    this.pieces = pieces;
    this.waitAll = waitAll;
  }

  get hasEnded(): boolean {
    return this.state === ReceiveState.ENDED;
  }

  end(status: Status): void {
    const isStarting = this.state === ReceiveState.STARTING;
    this.state = ReceiveState.ENDED;
    this.status = status;
    this.request.receivedBytes = this.done;
    if (!isStarting) this.request.end(status);
  }
}

/** The streams of one worker that have receives. */
export class StreamReceives {
  /** Memory to which libucp writes a byte count. */
  readonly length: ScratchBlock = allocateScratch(8);
  readonly receives: DataReceives;
  readonly #streams: Set<EndpointStream> = new Set();
  #turns = 0;

  constructor(receives: DataReceives) {
    this.receives = receives;
  }

  /** @param events number of events that libucp has reported */
  progress(events: number): number {
    this.#turns = (this.#turns + 1) & QUIET_TURNS_MASK;
    if (this.#streams.size === 0 || (events === 0 && this.#turns !== 0)) return 0;
    let count = 0;
    for (const stream of this.#streams) {
      stream.collect();
      count += stream.serve();
    }
    return count;
  }

  /** Checks, before sleeping, whether bytes for pending receives have arrived. */
  checkReady(): boolean {
    for (const stream of this.#streams) if (stream.isReady) return true;
    return false;
  }

  /** Registers a stream: its bytes are collected from now on. */
  add(stream: EndpointStream): void {
    this.#streams.add(stream);
  }

  remove(stream: EndpointStream): void {
    this.#streams.delete(stream);
  }

  close(): void {
    this.length.free();
  }
}

/** Received bytes, which libucp keeps until they are released. */
interface Chunk {
  readonly address: number;
  readonly byteLength: number;
  /** A copy of the bytes, if the memory at the address is not that of libucp. */
  readonly copy?: Uint8Array;
}

/** The receive side of the stream of one endpoint. */
export class EndpointStream {
  readonly #core: WorkerCore;
  readonly #streams: StreamReceives;
  readonly #ep: number;
  readonly #receives: StreamReceive[] = [];
  /** Chunks from libucp in order, and the number of consumed bytes of the first one. */
  readonly #chunks: Chunk[] = [];
  #chunkUsed = 0;
  /** Whether bytes are being copied to a card. */
  #isCopying = false;
  /** Status of the failed endpoint, or CANCELED if it is closing: bytes that arrived before can still be received. */
  #failure: Status = Status.OK;
  /** Whether the libucp handle is not used any more. */
  #isDetached = false;
  /** Whether unreceived bytes were dropped. */
  #isClosed = false;

  constructor(core: WorkerCore, streams: StreamReceives, ep: number) {
    this.#core = core;
    this.#streams = streams;
    this.#ep = ep;
  }

  /** Whether bytes have arrived that no receive has consumed. */
  get hasBytes(): boolean {
    return this.#chunks.length > 0 || this.#fetch();
  }

  /** Whether bytes for a pending receive have arrived. */
  get isReady(): boolean {
    return this.#receives.length > 0 && this.hasBytes;
  }

  /** Takes the arrived bytes from libucp. */
  collect(): void {
    while (this.#fetch());
  }

  /** See Endpoint.streamRecvNbx. */
  receive(given: GivenMemory<LocalMemory>, params: StreamRecvParams | undefined): Status | Request {
    const { context, requests } = this.#core;
    const { local } = given;
    const pieces = piecesOf<LocalMemory>(context, given, MemAccess.LOCAL_WRITE);
    for (const { memory } of pieces) checkKept(memory);
    if (this.#failure !== Status.OK && !this.hasBytes) return this.#failure;
    const request = requests.beginComposite(STREAM_RECEIVE);
    if (request === undefined) return Status.NO_RESOURCE;
    request.transport = TRANSPORT;
    request.byteLength = bytesOf(pieces);
    request.pinned = local;
    pin(local);
    const receive = new StreamReceive(request, pieces, params?.waitAll === true);
    request.abandon = () => this.#abandon(receive);
    this.#receives.push(receive);
    this.#streams.add(this);
    this.serve();
    if (receive.hasEnded) return requests.endedAtOnce(request, receive.status, params);
    receive.state = ReceiveState.WAITING;
    return requests.adopt(request, params);
  }

  /** Takes arrived bytes; undefined if there are none, or if receives are pending. */
  take(): Uint8Array | undefined {
    if (this.#receives.length > 0 || !this.hasBytes) return undefined;
    const { address, byteLength } = this.#chunks[0]!;
    const bytes = new Uint8Array(byteLength - this.#chunkUsed);
    memcpy(addressOf(bytes), address + this.#chunkUsed, bytes.byteLength);
    this.#release();
    return bytes;
  }

  /** Copies arrived bytes to the receives, in order. @returns number of receives that ended */
  serve(): number {
    let count = 0;
    while (!this.#isCopying && this.#receives.length > 0) {
      const receive = this.#receives[0]!;
      if (receive.request.byteLength === 0) {
        this.#endFirst(Status.OK);
        count += 1;
        continue;
      }
      if (!this.hasBytes) break;
      const bytes = Math.min(this.#chunks[0]!.byteLength - this.#chunkUsed, receive.request.byteLength - receive.done);
      const isDone = receive.pieces.every(({ memory }) => isHost(memory))
        ? this.#copyToHost(receive, bytes)
        : this.#copyToCards(receive, bytes);
      if (!isDone) break;
      count += this.#advance(receive, bytes);
    }
    if (this.#failure !== Status.OK && !this.#isCopying) count += this.#endAll(this.#failure);
    return count;
  }

  /**
   * Stops using the libucp handle, which becomes invalid: copies the arrived bytes.
   * @param isFreed whether the handle is invalid already, so that the bytes still in libucp are lost
   */
  detach(isFreed: boolean): void {
    if (this.#isDetached) return;
    if (!isFreed) this.collect();
    this.#isDetached = true;
    for (const [index, { address, byteLength }] of this.#chunks.entries()) {
      const copy = new Uint8Array(byteLength);
      memcpy(addressOf(copy), address, byteLength);
      if (!isFreed) this.#core.functions.ucp_stream_data_release(this.#ep, address);
      this.#chunks[index] = { address: addressOf(copy), byteLength, copy };
    }
  }

  fail(status: Status): void {
    this.#failure = status;
    this.serve();
  }

  /** Cancels the receives of an endpoint that is closing. A receive whose bytes are being copied to a card ends with the copy. */
  cancelAll(): void {
    if (this.#failure === Status.OK) this.#failure = Status.CANCELED;
    for (const receive of this.#receives.splice(this.#isCopying ? 1 : 0)) receive.end(Status.CANCELED);
  }

  /** Drops unreceived bytes. */
  close(): void {
    this.#isClosed = true;
    while (this.#chunks.length > 0) this.#release();
    this.#streams.remove(this);
  }

  #fetch(): boolean {
    if (this.#isClosed || this.#isDetached) return false;
    const { length } = this.#streams;
    const chunk = this.#core.functions.ucp_stream_recv_data_nb(this.#ep, length.address);
    if (chunk <= 0) return false;
    this.#chunks.push({
      address: chunk,
      byteLength: joinWords(length.words[0]!, length.words[1]!),
    });
    return true;
  }

  #consume(bytes: number): void {
    this.#chunkUsed += bytes;
    if (this.#chunkUsed === this.#chunks[0]!.byteLength) this.#release();
  }

  #release(): void {
    const { address, copy } = this.#chunks.shift()!;
    if (copy === undefined) this.#core.functions.ucp_stream_data_release(this.#ep, address);
    this.#chunkUsed = 0;
  }

  #copyToHost(receive: StreamReceive, bytes: number): boolean {
    eachPart(receive.pieces, receive.done, bytes, (memory, offset, byteLength, at) => {
      memcpy(addressIn(memory, offset), this.#chunks[0]!.address + this.#chunkUsed + at, byteLength);
    });
    return true;
  }

  /** Copies a chunk to device memory; returns false if that is in progress, or could not start. */
  #copyToCards(receive: StreamReceive, bytes: number): boolean {
    const source = new Uint8Array(bytes);
    if (bytes > 0) memcpy(addressOf(source), this.#chunks[0]!.address + this.#chunkUsed, bytes);
    const target: PieceOf<LocalMemory>[] = [];
    eachPart(receive.pieces, receive.done, bytes, (memory, offset, byteLength) => {
      target.push({ memory, offset, byteLength });
    });
    const arrived = { source, dataOffset: 0, byteLength: bytes, isReceived: false };
    const callback = (ended: Request, status: Status): void => {
      ended.free();
      this.#isCopying = false;
      if (status < 0) this.#endFirst(status);
      else this.#advance(receive, bytes);
      this.serve();
    };
    const given = { local: target, localOffset: 0, byteLength: bytes };
    // The memory was checked when the receive began.
    const started = this.#core.requests.runInner(() => this.#streams.receives.copyOut(arrived, given, { callback }, 0));
    this.#isCopying = typeof started !== 'number';
    if (typeof started === 'number' && started < 0 && started !== Status.NO_RESOURCE) this.#endFirst(started);
    return started === Status.OK;
  }

  /** Advances a receive after bytes were copied to it. @returns 1 if it has ended, else 0 */
  #advance(receive: StreamReceive, bytes: number): number {
    receive.done += bytes;
    if (!this.#isClosed) this.#consume(bytes);
    const isFull = receive.done === receive.request.byteLength;
    if (!isFull && (receive.waitAll || this.hasBytes)) return 0;
    this.#endFirst(Status.OK);
    return 1;
  }

  #endFirst(status: Status): void {
    this.#receives.shift()!.end(status);
  }

  #endAll(status: Status): number {
    const receives = this.#receives.splice(0);
    for (const receive of receives) receive.end(status);
    return receives.length;
  }

  /** Cancels a receive that has received nothing yet. */
  #abandon(receive: StreamReceive): boolean {
    const at = this.#receives.indexOf(receive);
    if (at < 0 || receive.done > 0 || (at === 0 && this.#isCopying)) return false;
    this.#receives.splice(at, 1);
    receive.end(Status.CANCELED);
    return true;
  }
}
