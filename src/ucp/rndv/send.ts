/**
 * A message sent by rendezvous: its memory, its operations in flight, its end, and the windows that the receiver requests.
 *
 * ```
 * OFFERED --first write to the receiver--> WRITING --first ATP--> NAMED
 *    |                                        |                     |
 *    '----------------------------------------+---------------------+-- REPLY, failure or loss --> ENDING --nothing in flight--> ENDED
 * ```
 *
 * A request that ends for another reason takes the message from every state to ENDED.
 */

import { MessageId } from '../../api/layout/message.ts';
import { ATP_IN_TARGET, DATA_BYTES, writeAtp, writeData } from '../../api/layout/rendezvous.ts';
import { areHost, areMapped, bytesOf } from '../../api/memory/local.ts';
import { Operation } from '../../api/operation/call.ts';
import { CountedCompletion } from '../../api/operation/completion.ts';
import type { CopyDone } from '../../api/staging/device-copier.ts';
import type { Fragments } from '../../api/staging/fragment-pool.ts';
import { type Route, type Slice, TransferMachine, type TransferPort, Verb } from '../../api/staging/transfer.ts';
import { Status } from '../../ucs/type/status.ts';
import type { Connection } from '../base/connection.ts';
import { sendPieces } from '../base/message-packer.ts';
import { WorkerCounter } from '../base/observation.ts';
import { SendRequest } from '../base/request/operation-requests.ts';
import type { Request, RequestTransfer } from '../base/request/request.ts';
import type { WorkerCore } from '../base/worker-core.ts';
import { type LocalPiece, MemoryHandle } from '../mem/memory-handle.ts';
import type { RemoteKey } from '../mem/remote-key.ts';
import { moveRemote, type RemoteMove, transfersOf } from '../transfer/move.ts';
import type { Staging } from '../transfer/staging.ts';
import type { Transfer } from '../transfer/transfer.ts';
import type { OwnKey } from './own-key.ts';
import { type KeyedRange, releaseRanges } from './receive.ts';
import { carrierOf, nameProtocol, postReply } from './reply.ts';

/** See the diagram above. */
const SendState = {
  /** The receiver may read the memory, or request windows; windows may be sent in messages. */
  OFFERED: 0,
  /** Windows are written to memory of the receiver. */
  WRITING: 1,
  /** Like WRITING, and the receiver knows the carrier of the bytes. */
  NAMED: 2,
  /** The outcome is known: no further operations are started. */
  ENDING: 3,
  ENDED: 4,
} as const;
type SendState = (typeof SendState)[keyof typeof SendState];

/**
 * One message. It counts the peer, until the outcome is known, and the writes and windows in flight, for which transports or the worker read the memory or
 * a fragment.
 */
export class SendTransfer extends CountedCompletion implements RequestTransfer {
  override count = 1;
  readonly request: Request;
  readonly pieces: readonly LocalPiece[];
  /** The key of the memory, for a receiver that can read it. */
  readonly key: OwnKey | undefined;
  readonly byteLength: number;
  readonly isHost: boolean;
  /** Offset of the first byte that the receiver has not requested. */
  requested = 0;
  /** Memory of the receiver, if it has sent keys of it. */
  target: readonly KeyedRange[] | undefined = undefined;
  /** Number of fragments that are waited for. */
  waiting = 0;
  /** Windows in flight. */
  readonly windows: Set<WindowMachine> = new Set();
  state: SendState = SendState.OFFERED;
  /** The connection of the receiver and the id of its request, if it must be notified of the outcome. */
  #replyTo: Connection | undefined = undefined;
  #peerRequest = 0;

  constructor(request: Request, pieces: readonly LocalPiece[], key: OwnKey | undefined) {
    super();
    this.request = request;
    this.pieces = pieces;
    this.key = key;
    this.byteLength = bytesOf(pieces);
    this.isHost = areHost(pieces);
  }

  /** True if no request of the receiver has arrived yet. */
  get isUnanswered(): boolean {
    return this.state === SendState.OFFERED && this.requested === 0;
  }

  /** True if no further operations are started. */
  get isEnding(): boolean {
    return this.state >= SendState.ENDING;
  }

  /** The target as one range, to which windows are written; undefined for several ranges. */
  get window(): KeyedRange | undefined {
    return this.target?.length === 1 ? this.target[0] : undefined;
  }

  /** Releases the keys of the target if no windows are written there, because the number of kept keys is bounded. */
  dropUselessTarget(connection: Connection): void {
    if (this.target === undefined || this.window?.rkey.parts.some((part) => part !== undefined) === true) return;
    releaseRanges(connection, this.target);
    this.target = undefined;
  }

  onReply(status: Status): void {
    this.end(status);
  }

  onAbandoned(status: Status): void {
    this.end(status);
  }

  /** Ends the message after the end or failure of the peer. The request ends when nothing reads its memory any more. */
  end(status: Status): void {
    if (this.isEnding) return;
    this.state = SendState.ENDING;
    this.#stopWindows();
    this.complete(status);
  }

  /**
   * Withdraws the message from a peer that cannot reply: ends the request, and revokes the peer's access to its memory. False if the peer has requested
   * bytes, or the key cannot be revoked.
   */
  takeBack({ takenBack }: Connection): boolean {
    const { request } = this;
    if (!this.isUnanswered || this.key?.revoke() === false) return false;
    takenBack.add(request.requestId);
    request.end(Status.CANCELED);
    return true;
  }

  #stopWindows(): void {
    for (const window of this.windows) window.stop(Status.CANCELED);
  }

  /** Ends both sides of the message: the receiver is notified when nothing writes to its memory any more. */
  endBoth(connection: Connection, peerRequest: number, status: Status): void {
    if (this.isEnding) return;
    this.#replyTo = connection;
    this.#peerRequest = peerRequest;
    // The new request id makes later messages of the peer ignored; flushes and closes wait for the end.
    if (this.request.requestId !== 0) connection.renew(this.request);
    this.end(status);
  }

  /** Called when the message has ended and nothing is in flight: ends the request. */
  onComplete(): void {
    this.state = SendState.ENDED;
    if (this.#replyTo !== undefined) {
      postReply(this.#replyTo, this.#peerRequest, this.failure, this.request);
    }
    this.request.end(this.failure);
  }

  /** Releases the resources of the message, also if it is cancelled. */
  onEnded(): void {
    this.state = SendState.ENDED;
    this.#stopWindows();
    this.key?.release();
    if (this.target !== undefined) releaseRanges(this.request.connection!, this.target, this.failure < 0);
    this.target = undefined;
  }
}

/*
 * A window that the receiver of a rendezvous has requested. It is written directly from the memory of the message if a lane reaches that; by the card of
 * the message if the receiver's memory is mapped into this process; otherwise from fragments. If no lane writes to the receiver's memory, it is sent in
 * messages.
 */

/** A request for a window. */
export interface RequestedWindow {
  /** Request id of the receiver. */
  readonly peerRequest: number;
  /** Range of the message. */
  readonly from: number;
  readonly byteLength: number;
}

/** Memory of the receiver to which the window may be written. */
interface Destination {
  readonly rkey: RemoteKey;
  /** Offset at which the window begins. */
  readonly offset: number;
  /** True for the receive memory itself, false for a fragment. */
  readonly isTarget: boolean;
}

/** The transfers that write a range to a destination. */
interface Write {
  readonly to: Destination;
  readonly transfers: readonly Transfer[];
}

/** A range of the message, and the memory that contains it: that of the message, or a fragment. */
interface Part {
  /** Range of the message. */
  readonly from: number;
  readonly byteLength: number;
  /** Memory from which the range is sent, and the offset of its first byte. */
  readonly pieces: readonly LocalPiece[];
  readonly start: number;
  /** The device whose bytes are in the fragment. */
  readonly origin: number | undefined;
}

/** A requested window, and the key of the receiver's fragment for it. */
interface OpenedWindow {
  readonly connection: Connection;
  readonly requested: RequestedWindow;
  readonly fragmentKey: RemoteKey | undefined;
}

/** A fragment; undefined for a slice that is sent from the memory of the message. */
type Fragment = MemoryHandle | undefined;
type SendVerb = typeof Verb.PUT | typeof Verb.SEND | typeof Verb.COPY;
type WindowMachine = TransferMachine<Fragment, SendVerb>;

/** The routes of a window, in order of preference. */
const ROUTES = {
  /** Lanes write it from the memory of the message. */
  written: { drain: Verb.PUT },
  /** Host memory is sent in messages. */
  sent: { drain: Verb.SEND },
  /** Its card copies it to receiver memory that is mapped into this process. */
  mapped: { drain: Verb.COPY },
  /** Device memory is copied to fragments, which lanes write or messages carry. */
  staged: { fill: Verb.COPY, drain: Verb.PUT },
} as const;

export class SendWindow implements TransferPort<Fragment, SendVerb> {
  readonly #host: WorkerCore;
  readonly #staging: Staging;
  readonly #transfer: SendTransfer;
  readonly #connection: Connection;
  readonly #requested: RequestedWindow;
  /** The key of the receiver's fragment; released at the end. */
  readonly #fragmentKey: RemoteKey | undefined;
  /** Where the window may be written, in order of preference. */
  readonly #destinations: readonly Destination[];
  /** How lanes write the window directly from the memory of the message, if they can. */
  readonly #written: Write | undefined;
  readonly #machine: WindowMachine;

  constructor(
    host: WorkerCore,
    staging: Staging,
    transfer: SendTransfer,
    { connection, requested, fragmentKey }: OpenedWindow,
  ) {
    this.#host = host;
    this.#staging = staging;
    this.#transfer = transfer;
    this.#connection = connection;
    this.#requested = requested;
    this.#fragmentKey = fragmentKey;
    const { from, byteLength } = requested;
    const { window: target } = transfer;
    const destinations: Destination[] = [];
    if (target !== undefined) destinations.push({ rkey: target.rkey, offset: target.offset + from, isTarget: true });
    if (fragmentKey !== undefined) destinations.push({ rkey: fragmentKey, offset: 0, isTarget: false });
    this.#destinations = destinations;
    this.#written = this.#writeOf(this.#partOf({ fragment: undefined, from, length: byteLength }));
    this.#machine = new TransferMachine<Fragment, SendVerb>(this, this.#route(), [from, byteLength]);
  }

  start(): void {
    const transfer = this.#transfer;
    transfer.count += 1;
    transfer.windows.add(this.#machine);
    this.#machine.advance();
  }

  /** Writes a slice by lanes, or sends it in messages if lanes cannot write it. */
  put(slice: Slice<Fragment>, done: CopyDone): void {
    const part = this.#partOf(slice);
    const write = slice.fragment === undefined ? this.#written : this.#writeOf(part);
    if (write === undefined) {
      this.send(slice, done);
      return;
    }
    const { to, transfers } = write;
    this.#write(part, to, done, (written) => moveRemote(this.#host, this.#transfer.request, transfers, written));
  }

  send(slice: Slice<Fragment>, done: CopyDone): void {
    nameProtocol(this.#transfer.request, 'rndv/am');
    this.#pump(this.#partOf(slice), done);
  }

  /** Copies a slice into its fragment, or to the mapped memory of the receiver. */
  copy(slice: Slice<Fragment>, done: CopyDone): void {
    const { fragment, from, length: byteLength } = slice;
    const to = this.#mappedDestination();
    if (fragment !== undefined) this.#staging.read({ pieces: this.#transfer.pieces, from, byteLength }, fragment, done);
    else if (to === undefined) done(Status.INVALID_ADDR);
    else this.#write(this.#partOf(slice), to, done, (written) => this.#writeMapped(slice, to.rkey, to.offset, written));
  }

  stopped(status: Status, error: unknown): void {
    if (error !== undefined) this.#transfer.request.error ??= error;
    this.#transfer.endBoth(this.#connection, this.#requested.peerRequest, status);
  }

  ended(status: Status): void {
    const transfer = this.#transfer;
    transfer.windows.delete(this.#machine);
    if (this.#fragmentKey !== undefined) this.#connection.rkeys.release(this.#fragmentKey);
    if (status < 0) transfer.endBoth(this.#connection, this.#requested.peerRequest, status);
    transfer.complete(Status.OK);
  }

  #route(): Route<Fragment, SendVerb> {
    const { byteLength } = this.#requested;
    const whole = { sliceLength: byteLength, depth: 1 };
    if (this.#written !== undefined) return { ...ROUTES.written, ...whole };
    if (this.#transfer.isHost) return { ...ROUTES.sent, ...whole };
    if (this.#mappedDestination() !== undefined) return { ...ROUTES.mapped, ...whole };
    const { fragmentBytes, windowsMax } = this.#staging;
    return { ...ROUTES.staged, fragments: this.#fragments(), sliceLength: fragmentBytes, depth: windowsMax };
  }

  /** The fragments from which this worker sends; counts how many of them the message waits for. */
  #fragments(): Fragments<Fragment> {
    const transfer = this.#transfer;
    return {
      acquire: (run) => {
        transfer.waiting += 1;
        this.#staging.acquire((fragment, failure) => {
          transfer.waiting -= 1;
          run(fragment, failure);
        });
      },
      release: (fragment) => this.#staging.release(fragment!),
    };
  }

  #partOf({ fragment, from, length: byteLength }: Slice<Fragment>): Part {
    const { pieces } = this.#transfer;
    if (fragment === undefined) return { from, byteLength, pieces, start: from, origin: undefined };
    const copied = [{ memory: fragment, offset: 0, byteLength, start: 0 }];
    return { from, byteLength, pieces: copied, start: 0, origin: deviceAt(pieces, from) };
  }

  /** Writes a range, and notifies the receiver. */
  #write(part: Part, to: Destination, done: CopyDone, write: (written: CopyDone) => void): void {
    const transfer = this.#transfer;
    if (transfer.state === SendState.OFFERED) {
      transfer.state = SendState.WRITING;
      this.#host.counters.count(WorkerCounter.RNDV_PUT_MTYPE_ZCOPY);
    }
    nameProtocol(transfer.request, 'rndv/put-pipeline');
    write((status, error) => {
      if (status === Status.OK && !transfer.isEnding) this.#announce(part, to);
      done(status, error);
    });
  }

  /** Sends a range in messages; continues when there are resources. */
  #pump({ from, byteLength, pieces, start }: Part, done: CopyDone): void {
    const transfer = this.#transfer;
    const connection = this.#connection;
    const pump = new SendRequest(this.#host);
    pump.begin(connection, undefined);
    pump.pieces = pieces;
    const frameBytes = connection.amBcopyMax - DATA_BYTES;
    pump.callback = (_pump, status) => done(status);
    pump.starter = () => {
      if (!areMapped(pieces)) return Status.INVALID_ADDR;
      while (pump.done < byteLength) {
        if (transfer.isEnding) return Status.CANCELED;
        const bytes = Math.min(frameBytes, byteLength - pump.done);
        const header = writeData(connection.remoteId, this.#requested.peerRequest, from + pump.done);
        const status = sendPieces(connection, MessageId.DATA, header, pieces, start + pump.done, bytes);
        if (status !== Status.OK) return status;
        pump.done += bytes;
      }
      return Status.OK;
    };
    connection.run(pump);
  }

  /** Notifies the receiver that a range was written. */
  #announce({ from, byteLength }: Part, { isTarget }: Destination): void {
    const transfer = this.#transfer;
    const isNamed = transfer.state === SendState.NAMED;
    const flags = isTarget ? ATP_IN_TARGET : 0;
    const fields = { request: this.#requested.peerRequest, from, byteLength, flags };
    const header = writeAtp(this.#connection.remoteId, fields);
    this.#connection.post(MessageId.ATP, header, isNamed ? undefined : carrierOf(transfer.request));
    transfer.state = SendState.NAMED;
  }

  /** How lanes write a range from the memory that contains it; undefined if they cannot. */
  #writeOf(part: Part): Write | undefined {
    for (const to of this.#destinations) {
      const transfers = transfersOf(this.#host, this.#moveOf(part, to));
      if (transfers !== undefined) return { to, transfers };
    }
    return undefined;
  }

  /** Memory of the receiver that is mapped into this process (ucp_rkey_ptr). */
  #mappedDestination(): Destination | undefined {
    return this.#destinations.find(({ rkey }) => rkey.bytes !== undefined);
  }

  #writeMapped({ from, length: byteLength }: Slice<Fragment>, rkey: RemoteKey, offset: number, done: CopyDone): void {
    const { bytes } = rkey;
    if (bytes === undefined || !rkey.live) {
      done(Status.INVALID_ADDR);
      return;
    }
    const { request, pieces } = this.#transfer;
    request.lane = this.#connection.lanes.find(({ md }) => rkey.parts[md.index]?.bytes !== undefined);
    const at = offset + from - this.#requested.from;
    this.#staging.read({ pieces, from, byteLength }, bytes.subarray(at, at + byteLength), done);
  }

  #moveOf({ from, start, byteLength, pieces, origin }: Part, { rkey, offset }: Destination): RemoteMove {
    const connection = this.#connection;
    return {
      operation: Operation.PUT,
      connection,
      pieces,
      from: start,
      byteLength,
      rkey,
      offset: offset + from - this.#requested.from,
      origin,
    };
  }
}

/** The device that contains a byte of a message; undefined for host memory. */
function deviceAt(pieces: readonly LocalPiece[], at: number): number | undefined {
  const memory = pieces.find(({ start, byteLength }) => at < start + byteLength)?.memory;
  return memory instanceof MemoryHandle ? memory.sysDevice : undefined;
}
