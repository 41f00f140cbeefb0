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

/** The states of a message: see the diagram above. */
const SendState = {
  /** The receiver may read the memory, or ask for windows; windows may go in messages. */
  OFFERED: 0,
  /** Windows are written to memory of the receiver. */
  WRITING: 1,
  /** The same, and the receiver knows what carries the bytes. */
  NAMED: 2,
  /** The outcome is known: nothing more is started. */
  ENDING: 3,
  /** The request has ended. */
  ENDED: 4,
} as const;
type SendState = (typeof SendState)[keyof typeof SendState];

/**
 * One message. One part is the peer, until the outcome is known; the others are writes and windows in flight: transports, or the worker itself, read the
 * memory or a fragment.
 */
export class SendTransfer extends CountedCompletion implements RequestTransfer {
  override count = 1;
  readonly request: Request;
  readonly pieces: readonly LocalPiece[];
  /** The key of the memory, for a receiver that can read it. */
  readonly key: OwnKey | undefined;
  readonly byteLength: number;
  readonly isHost: boolean;
  /** First byte that the receiver has not asked for. */
  asked = 0;
  /** The memory of the receiver, if it has given keys of it. */
  target: readonly KeyedRange[] | undefined = undefined;
  /** Fragments that are waited for. */
  waiting = 0;
  /** Windows in flight. */
  readonly windows: Set<WindowMachine> = new Set();
  state: SendState = SendState.OFFERED;
  /** The receiver and its request, if it must be notified of the outcome. */
  #answerTo: Connection | undefined = undefined;
  #peerRequest = 0;

  constructor(request: Request, pieces: readonly LocalPiece[], key: OwnKey | undefined) {
    super();
    this.request = request;
    this.pieces = pieces;
    this.key = key;
    this.byteLength = bytesOf(pieces);
    this.isHost = areHost(pieces);
  }

  /** Whether the receiver has not asked for anything yet, as far as is known here. */
  get isUnanswered(): boolean {
    return this.state === SendState.OFFERED && this.asked === 0;
  }

  /** Nothing more is started. */
  get isEnding(): boolean {
    return this.state >= SendState.ENDING;
  }

  /** The one range of the target, to which windows are written; undefined for several. */
  get window(): KeyedRange | undefined {
    return this.target?.length === 1 ? this.target[0] : undefined;
  }

  /** Releases the keys of the target if no window is written there: the number of kept keys is bounded. */
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

  /** Ends the message, because the peer has ended it or is gone. The request ends when nothing reads its memory any more. */
  end(status: Status): void {
    if (this.isEnding) return;
    this.state = SendState.ENDING;
    this.#stopWindows();
    this.complete(status);
  }

  /**
   * Takes the message back from a peer that cannot answer: the request ends, and the peer cannot read its memory any more. False if the peer has asked for
   * bytes, or the key cannot be taken back.
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

  /** Ends both sides of the message: the receiver is notified when nothing writes its memory any more. */
  endBoth(connection: Connection, peerRequest: number, status: Status): void {
    if (this.isEnding) return;
    this.#answerTo = connection;
    this.#peerRequest = peerRequest;
    // Messages of the peer to the old request id are ignored from here on; flushes and closes wait for the end.
    if (this.request.requestId !== 0) connection.renew(this.request);
    this.end(status);
  }

  /** Called when the message has ended and nothing is in flight: ends the request. */
  onComplete(): void {
    this.state = SendState.ENDED;
    if (this.#answerTo !== undefined) {
      postReply(this.#answerTo, this.#peerRequest, this.failure, this.request);
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
 * A window that the receiver of a rendezvous has asked for: written to where it asked for it, from the memory of the message if a lane reaches that,
 * by the card of the message if the memory of the receiver is mapped into this process, else from fragments; in messages if no lane writes the memory
 * of the receiver.
 */

/** What the receiver has asked for. */
export interface AskedWindow {
  /** Request of the receiver. */
  readonly peerRequest: number;
  /** First byte of the message, and how many. */
  readonly from: number;
  readonly byteLength: number;
}

/** Memory of the receiver that the window may be written to. */
interface Destination {
  readonly rkey: RemoteKey;
  /** Byte of it at which the window begins. */
  readonly offset: number;
  /** It is the memory that is received into, not a fragment. */
  readonly isTarget: boolean;
}

/** The transfers that write a part to a destination. */
interface Write {
  readonly to: Destination;
  readonly transfers: readonly Transfer[];
}

/** The bytes of a slice, and where they are: in the memory of the message, or in a fragment. */
interface Part {
  /** First byte of the message, and how many. */
  readonly from: number;
  readonly byteLength: number;
  /** Memory from which it is sent, and the byte of that memory at which it begins. */
  readonly pieces: readonly LocalPiece[];
  readonly start: number;
  /** The device whose bytes a fragment has. */
  readonly origin: number | undefined;
}

/** A window that a peer has asked for, and the key of its fragment for the window. */
interface WindowOfPeer {
  readonly connection: Connection;
  readonly asked: AskedWindow;
  readonly fragmentKey: RemoteKey | undefined;
}

/** A fragment; undefined for a slice that is sent from the memory of the message. */
type Fragment = MemoryHandle | undefined;
type SendVerb = typeof Verb.PUT | typeof Verb.SEND | typeof Verb.COPY;
type WindowMachine = TransferMachine<Fragment, SendVerb>;

/** The routes of a window, the best first. */
const ROUTES = {
  /** Lanes write it from the memory of the message. */
  written: { drain: Verb.PUT },
  /** Host memory goes in messages. */
  sent: { drain: Verb.SEND },
  /** Its card copies it to memory of the receiver that is mapped into this process. */
  mapped: { drain: Verb.COPY },
  /** From device memory to fragments, and from there by lanes or in messages. */
  staged: { fill: Verb.COPY, drain: Verb.PUT },
} as const;

/** One window. */
export class SendWindow implements TransferPort<Fragment, SendVerb> {
  readonly #host: WorkerCore;
  readonly #staging: Staging;
  readonly #transfer: SendTransfer;
  readonly #connection: Connection;
  readonly #asked: AskedWindow;
  /** The key of the fragment of the receiver: released at the end. */
  readonly #fragmentKey: RemoteKey | undefined;
  /** Where the window may be written, the best first. */
  readonly #destinations: readonly Destination[];
  /** How lanes write the window from the memory of the message, if they do. */
  readonly #written: Write | undefined;
  readonly #machine: WindowMachine;

  constructor(
    host: WorkerCore,
    staging: Staging,
    transfer: SendTransfer,
    { connection, asked, fragmentKey }: WindowOfPeer,
  ) {
    this.#host = host;
    this.#staging = staging;
    this.#transfer = transfer;
    this.#connection = connection;
    this.#asked = asked;
    this.#fragmentKey = fragmentKey;
    const { from, byteLength } = asked;
    const { window: target } = transfer;
    const destinations: Destination[] = [];
    if (target !== undefined) destinations.push({ rkey: target.rkey, offset: target.offset + from, isTarget: true });
    if (fragmentKey !== undefined) destinations.push({ rkey: fragmentKey, offset: 0, isTarget: false });
    this.#destinations = destinations;
    this.#written = this.#writeOf(this.#partOf({ fragment: undefined, from, length: byteLength }));
    this.#machine = new TransferMachine<Fragment, SendVerb>(this, this.#route(), [from, byteLength]);
  }

  /** Sends the window. */
  start(): void {
    const transfer = this.#transfer;
    transfer.count += 1;
    transfer.windows.add(this.#machine);
    this.#machine.advance();
  }

  /** Writes a slice by lanes; one that they do not write goes in messages. */
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
    this.#transfer.endBoth(this.#connection, this.#asked.peerRequest, status);
  }

  ended(status: Status): void {
    const transfer = this.#transfer;
    transfer.windows.delete(this.#machine);
    if (this.#fragmentKey !== undefined) this.#connection.rkeys.release(this.#fragmentKey);
    if (status < 0) transfer.endBoth(this.#connection, this.#asked.peerRequest, status);
    transfer.complete(Status.OK);
  }

  #route(): Route<Fragment, SendVerb> {
    const { byteLength } = this.#asked;
    const whole = { sliceLength: byteLength, depth: 1 };
    if (this.#written !== undefined) return { ...ROUTES.written, ...whole };
    if (this.#transfer.isHost) return { ...ROUTES.sent, ...whole };
    if (this.#mappedDestination() !== undefined) return { ...ROUTES.mapped, ...whole };
    const { fragmentBytes, windowsMax } = this.#staging;
    return { ...ROUTES.staged, fragments: this.#fragments(), sliceLength: fragmentBytes, depth: windowsMax };
  }

  /** The fragments that this worker sends from, and how many of them the message waits for. */
  #fragments(): Fragments<Fragment> {
    const transfer = this.#transfer;
    return {
      acquire: (run) => {
        transfer.waiting += 1;
        this.#staging.acquire((fragment, refusal) => {
          transfer.waiting -= 1;
          run(fragment, refusal);
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

  /** Writes a part, and tells the receiver that it is there. */
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

  /** Sends a part in as many messages as it takes, going on when there is room. */
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
        const header = writeData(connection.remoteId, this.#asked.peerRequest, from + pump.done);
        const status = sendPieces(connection, MessageId.DATA, header, pieces, start + pump.done, bytes);
        if (status !== Status.OK) return status;
        pump.done += bytes;
      }
      return Status.OK;
    };
    connection.run(pump);
  }

  /** Tells the receiver that a part has been written. */
  #announce({ from, byteLength }: Part, { isTarget }: Destination): void {
    const transfer = this.#transfer;
    const isNamed = transfer.state === SendState.NAMED;
    const flags = isTarget ? ATP_IN_TARGET : 0;
    const fields = { request: this.#asked.peerRequest, from, byteLength, flags };
    const header = writeAtp(this.#connection.remoteId, fields);
    this.#connection.post(MessageId.ATP, header, isNamed ? undefined : carrierOf(transfer.request));
    transfer.state = SendState.NAMED;
  }

  /** How lanes write a part from the memory that it is in; undefined if they do not. */
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
    const at = offset + from - this.#asked.from;
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
      offset: offset + from - this.#asked.from,
      origin,
    };
  }
}

/** The device with a byte of a message; undefined for host memory. */
function deviceAt(pieces: readonly LocalPiece[], at: number): number | undefined {
  const memory = pieces.find(({ start, byteLength }) => at < start + byteLength)?.memory;
  return memory instanceof MemoryHandle ? memory.sysDevice : undefined;
}
