/**
 * The sending side of a stream: requests in order, message by message, as far as there is credit. A send without credit waits in its stream instead of in
 * the queue of its connection, so that it does not delay other operations. Messages from mapped memory are zero-copy (uct_ep_am_zcopy): such sends end
 * when transports have released the memory.
 */

import { CreditCode, writeCredit } from '../../api/layout/control.ts';
import { NO_ENDPOINT } from '../../api/layout/frame.ts';
import { MessageId } from '../../api/layout/message.ts';
import { STREAM_ASKED, STREAM_BYTES, writeStream } from '../../api/layout/stream.ts';
import { areHost, areMapped } from '../../api/memory/local.ts';
import { Status } from '../../ucs/type/status.ts';
import type { Completion } from '../../uct/api/iface.ts';
import type { Connection } from '../base/connection.ts';
import { sendMessage, sendPieces } from '../base/message-packer.ts';
import { WorkerCounter } from '../base/observation.ts';
import { NO_MEMORY, RequestEntry, SendRequest } from '../base/request/operation-requests.ts';
import type { Request } from '../base/request/request.ts';
import type { WorkerCore } from '../base/worker-core.ts';
import { KEPT_OVERHEAD_BYTES } from '../credit/credit.ts';
import type { LocalPiece, MemoryHandle } from '../mem/memory-handle.ts';
import type { Staging } from '../transfer/staging.ts';
import { setMappedEntry } from '../transfer/transfer.ts';

/** Bytes of a send for which there is credit, in messages of at most `messageBytes`. */
interface Allowance {
  readonly byteLength: number;
  readonly messageBytes: number;
  readonly cost: number;
  /** True for the one message that the peer has requested, which needs no credit. */
  readonly isAsked: boolean;
}

export class OutgoingStream {
  readonly #host: WorkerCore;
  readonly #staging: Staging;
  readonly #connection: Connection;
  /** Sends that wait for credit, or behind such sends, in order. */
  readonly #waiting: SendRequest[] = [];
  /** True while device memory is sent, fragment by fragment: later sends wait. */
  #isStaging = false;
  /** The request that represents such a send while it waits for credit. */
  #short: SendRequest | undefined;
  /** Number of bytes for which that request waits. */
  #shortBytes = 0;
  /** True if the peer has requested one message, which needs no credit. */
  #isAsked = false;
  /** True if the peer was notified that this side waits for such a request. */
  #hasNotified = false;
  readonly #pump: SendRequest;
  readonly #zcopies: ZcopyMessages;

  constructor(host: WorkerCore, staging: Staging, connection: Connection) {
    this.#host = host;
    this.#staging = staging;
    this.#connection = connection;
    this.#pump = new SendRequest(host);
    this.#zcopies = new ZcopyMessages(host, connection, () => this.resume());
  }

  /** True while device memory is copied. */
  get isStaging(): boolean {
    return this.#isStaging;
  }

  /** Sends a message of host memory if no send is queued before it; NO_RESOURCE if it needs a request. */
  sendAtOnce(bytes: Uint8Array, offset: number, byteLength: number): Status {
    const connection = this.#connection;
    const cost = byteLength + KEPT_OVERHEAD_BYTES;
    if (this.#waiting.length > 0 || this.#isStaging || connection.credit.bytes < cost) return Status.NO_RESOURCE;
    if (STREAM_BYTES + byteLength > connection.amBcopyMax) return Status.NO_RESOURCE;
    const header = writeStream(connection.remoteId, 0);
    const status = sendMessage(connection, MessageId.STREAM, header, bytes, offset, byteLength);
    if (status === Status.OK) connection.credit.bytes -= cost;
    return status;
  }

  /** The starter of a send. */
  readonly start = (request: SendRequest): Status => {
    const connection = this.#connection;
    if (connection.remoteId === NO_ENDPOINT) return Status.NO_RESOURCE;
    if (this.#waiting.length > 0 || this.#isStaging) return this.#wait(request);
    if (!areHost(request.pieces)) return this.#stage(request);
    return this.#sendRest(request) ?? this.#wait(request);
  };

  /** Called when there is credit. */
  resume(): void {
    this.#hasNotified = false;
    this.#drain();
  }

  /** Called when the peer requests one message, which needs no credit. */
  requested(): void {
    this.#isAsked = true;
    this.resume();
  }

  /** True for a send that waits for credit and has sent nothing yet: it can be cancelled. */
  canCancel(request: SendRequest): boolean {
    return request.done === 0 && this.#waiting.includes(request);
  }

  /** Queues a request until there is credit. If the connection ends, the request ends like others that wait for the peer. */
  #wait(request: SendRequest): Status {
    this.#waiting.push(request);
    request.release = () => {
      const index = this.#waiting.indexOf(request);
      if (index >= 0) this.#waiting.splice(index, 1);
    };
    this.#connection.expect(request);
    return Status.INPROGRESS;
  }

  /** Sends the waiting requests, now or when there are resources. */
  #drain(): void {
    const pump = this.#pump;
    if (this.#connection.failure !== Status.OK || pump.queued) return;
    if (this.#waiting.length === 0 && this.#short === undefined) return;
    pump.begin(this.#connection, undefined);
    pump.starter = this.#sendWaiting;
    this.#connection.run(pump);
  }

  readonly #sendWaiting = (): Status => {
    for (;;) {
      if (this.#short !== undefined) {
        if (this.#messageOf(this.#shortBytes) === undefined) return Status.OK;
        this.#short.end(Status.OK);
        continue;
      }
      const request = this.#isStaging ? undefined : this.#waiting[0];
      if (request === undefined) return Status.OK;
      if (!areHost(request.pieces)) {
        this.#unwait(request);
        this.#stage(request);
        continue;
      }
      const status = this.#sendRest(request);
      if (status === undefined) return Status.OK;
      if (status === Status.NO_RESOURCE) return status;
      if (status === Status.INPROGRESS) this.#unwait(request);
      else request.end(status);
    }
  };

  /** Removes the first waiting request, which then ends. */
  #unwait(request: SendRequest): void {
    this.#waiting.shift();
    request.release = undefined;
    this.#connection.forget(request);
  }

  /** Continues to send host memory where the request stopped. Returns like Request.start, or undefined if it has to wait for credit. */
  #sendRest(request: SendRequest): Status | undefined {
    const status = this.#sendMessages(request);
    return status === undefined || status === Status.NO_RESOURCE ? status : passedOn(request, status);
  }

  #sendMessages(request: SendRequest): Status | undefined {
    const connection = this.#connection;
    if (connection.failure !== Status.OK) return connection.failure;
    if (!areMapped(request.pieces)) return Status.INVALID_ADDR;
    while (request.done < request.byteLength) {
      const message = this.#messageOf(request.byteLength - request.done);
      if (message === undefined) return undefined;
      const status = this.#sendMessage(request, message);
      if (status !== Status.OK) return status;
      this.#take(message);
      request.done += message.byteLength;
    }
    return Status.OK;
  }

  #sendMessage(request: SendRequest, { byteLength, cost, isAsked }: Allowance): Status {
    const status = isAsked ? Status.UNSUPPORTED : this.#zcopies.send(request, byteLength, cost);
    return status === Status.UNSUPPORTED ? this.#send(request.pieces, request.done, byteLength, isAsked) : status;
  }

  #send(pieces: readonly LocalPiece[], from: number, byteLength: number, isAsked: boolean): Status {
    const header = writeStream(this.#connection.remoteId, isAsked ? STREAM_ASKED : 0);
    return sendPieces(this.#connection, MessageId.STREAM, header, pieces, from, byteLength);
  }

  /** The next message for `rest` bytes; undefined without credit. If credit may take long, the peer is notified. */
  #messageOf(rest: number): Allowance | undefined {
    const { credit, amBcopyMax } = this.#connection;
    const frameBytes = amBcopyMax - STREAM_BYTES;
    const isAsked = this.#isAsked;
    // No message is longer than the longest one for which a sender may wait for credit.
    const messageBytes = isAsked
      ? frameBytes
      : Math.min(frameBytes, Math.floor(credit.waitBytesMax) - KEPT_OVERHEAD_BYTES);
    const byteLength = Math.min(rest, messageBytes);
    if (isAsked) return { byteLength, messageBytes, cost: 0, isAsked };
    const cost = byteLength + KEPT_OVERHEAD_BYTES;
    if (byteLength > 0 && credit.bytes >= cost) return { byteLength, messageBytes, cost, isAsked };
    this.#lack(byteLength <= 0 || credit.isLongFor(cost));
    return undefined;
  }

  /** All messages for `rest` bytes for which there is credit now. */
  #messagesOf(rest: number): Allowance | undefined {
    const first = this.#messageOf(rest);
    if (first === undefined || first.isAsked) return first;
    const { messageBytes } = first;
    const count = Math.floor(this.#connection.credit.bytes / (messageBytes + KEPT_OVERHEAD_BYTES));
    const byteLength = Math.max(first.byteLength, Math.min(rest, count * messageBytes));
    return { ...first, byteLength, cost: byteLength + Math.ceil(byteLength / messageBytes) * KEPT_OVERHEAD_BYTES };
  }

  #take({ cost, isAsked }: Allowance): void {
    if (isAsked) this.#isAsked = false;
    this.#connection.credit.bytes -= cost;
  }

  /** Notifies the peer, once, that this side lacks credit, if waiting alone may not bring any. */
  #lack(isLong: boolean): void {
    const { credit } = this.#connection;
    if (credit.isFirstLack()) this.#host.counters.count(WorkerCounter.TX_NO_CREDIT);
    if (this.#hasNotified || !isLong) return;
    this.#hasNotified = true;
    postStreamCredit(this.#connection, CreditCode.STREAM_WAITS);
  }

  /**
   * Sends device memory in order, part by part through host memory. A part gets its credit before its fragment, because releasing fragments must not
   * depend on a peer.
   */
  #stage(request: SendRequest): Status {
    const connection = this.#connection;
    const staging = this.#staging;
    this.#isStaging = true;
    const end = (status: Status): void => {
      this.#isStaging = false;
      request.end(status);
      this.#drain();
    };
    const next = (): void => {
      if (request.done === request.byteLength || connection.failure !== Status.OK) {
        end(connection.failure);
        return;
      }
      const rest = Math.min(staging.fragmentBytes, request.byteLength - request.done);
      const piece = this.#messagesOf(rest);
      if (piece === undefined) {
        this.#awaitCredit(rest, (status) => (status < 0 ? end(status) : next()));
        return;
      }
      this.#take(piece);
      staging.acquire((fragment, failure) => {
        if (fragment === undefined) {
          this.#giveBack(piece);
          end(failure);
          return;
        }
        const part = { pieces: request.pieces, from: request.done, byteLength: piece.byteLength };
        staging.read(part, fragment, (status) => {
          const done = (sent: Status): void => {
            staging.release(fragment);
            if (sent < 0) {
              end(sent);
              return;
            }
            request.done += piece.byteLength;
            next();
          };
          if (status < 0) {
            this.#giveBack(piece);
            done(status);
          } else this.#sendPiece(fragment, piece, done);
        });
      });
    };
    next();
    return Status.INPROGRESS;
  }

  /** Returns unused credit. */
  #giveBack({ cost, isAsked }: Allowance): void {
    if (isAsked) this.#isAsked = true;
    this.#connection.credit.bytes += cost;
  }

  /** Waits until the first message of `byteLength` bytes can be sent. If the connection ends, the wait ends like other requests that wait for the peer. */
  #awaitCredit(byteLength: number, done: (status: Status) => void): void {
    const short = new SendRequest(this.#host);
    short.begin(this.#connection, undefined);
    short.callback = (_short, status) => done(status);
    short.release = () => {
      this.#short = undefined;
    };
    this.#short = short;
    this.#shortBytes = byteLength;
    this.#connection.expect(short);
  }

  /** Sends the bytes of a fragment, in messages that have credit. */
  #sendPiece(fragment: MemoryHandle, piece: Allowance, done: (status: Status) => void): void {
    const { byteLength, messageBytes, isAsked } = piece;
    const part = new SendRequest(this.#host);
    part.begin(this.#connection, undefined);
    part.callback = (_part, status) => done(status);
    const pieces = [{ memory: fragment, offset: 0, byteLength, start: 0 }];
    part.starter = () => {
      if (this.#connection.failure !== Status.OK) return this.#connection.failure;
      while (part.done < byteLength) {
        const bytes = Math.min(messageBytes, byteLength - part.done);
        const status = this.#send(pieces, part.done, bytes, isAsked);
        if (status !== Status.OK) return status;
        part.done += bytes;
      }
      return Status.OK;
    };
    this.#connection.run(part);
  }
}

/** Minimum length of zero-copy messages: longer ones take longer to copy than to pass as a list, as measured over tcp; see UCX_ZCOPY_THRESH. */
const ZCOPY_BYTES_MIN = 32_768;

/** A message in a transport. Reused after its end. */
class ZcopyMessage implements Completion {
  count = 1;
  failure: Status = Status.OK;
  request: SendRequest | undefined = undefined;
  cost = 0;
  readonly #onEnd: (message: ZcopyMessage) => void;

  constructor(onEnd: (message: ZcopyMessage) => void) {
    this.#onEnd = onEnd;
  }

  onComplete(): void {
    this.#onEnd(this);
  }
}

/** The zero-copy messages of one connection. */
class ZcopyMessages {
  readonly #host: WorkerCore;
  readonly #connection: Connection;
  readonly #onCredit: () => void;
  readonly #spare: ZcopyMessage[] = [];
  /** The list of the message that is being sent: transports do not keep it. */
  readonly #iov: readonly [RequestEntry] = [new RequestEntry()];

  /** @param onCredit called when a message was lost and its credit is available again */
  constructor(host: WorkerCore, connection: Connection, onCredit: () => void) {
    this.#host = host;
    this.#connection = connection;
    this.#onCredit = onCredit;
  }

  /**
   * Sends the next bytes of a send.
   * @param cost credit of the message
   * @returns OK, NO_RESOURCE or a failure; UNSUPPORTED if the bytes must be copied
   */
  send(request: SendRequest, byteLength: number, cost: number): Status {
    const { amLane, zcopyThreshold = ZCOPY_BYTES_MIN } = this.#connection;
    const { pieces, done } = request;
    const zcopyMax = amLane?.iface.attributes.am.zcopyBytesMax ?? 0;
    if (byteLength < zcopyThreshold || STREAM_BYTES + byteLength > zcopyMax || pieces.length > 1)
      return Status.UNSUPPORTED;
    const { memory, offset } = pieces[0]!;
    const range = { local: memory, localOffset: offset + done, byteLength };
    const isMapped = setMappedEntry(this.#iov[0], range, amLane!.md.index, this.#host.context.memory);
    return isMapped ? this.#start(request, cost) : Status.UNSUPPORTED;
  }

  #start(request: SendRequest, cost: number): Status {
    const { id, remoteId, trace, amLane } = this.#connection;
    const message = this.#spare.pop() ?? new ZcopyMessage((ended) => this.#ended(ended));
    message.request = request;
    message.cost = cost;
    request.count += 1;
    request.abandon = endUnused;
    const header = writeStream(remoteId, 0);
    const [entry] = this.#iov;
    const status = amLane!.endpoint.amZcopy!(MessageId.STREAM, header, header.length, this.#iov, message);
    entry.memory = NO_MEMORY;
    if (status === Status.INPROGRESS) {
      trace?.sent(id, MessageId.STREAM, header, entry.byteLength);
      return Status.OK;
    }
    request.count -= 1;
    message.request = undefined;
    this.#spare.push(message);
    return status;
  }

  #ended(message: ZcopyMessage): void {
    const { request, cost, failure } = message;
    message.count = 1;
    message.failure = Status.OK;
    message.request = undefined;
    this.#spare.push(message);
    request?.complete(failure);
    if (failure === Status.OK) return;
    // The peer discards a message whose memory was lost before it was sent.
    this.#connection.credit.bytes += cost;
    this.#onCredit();
  }
}

/**
 * Called when all bytes of a send were passed on, or no more of them will be, because of `status`.
 * @returns like Request.start: INPROGRESS while transports use the memory
 */
function passedOn(request: SendRequest, status: Status): Status {
  if (request.count === 1) return request.failure || status;
  request.isPassedOn = true;
  request.complete(status);
  return Status.INPROGRESS;
}

/** Ends a send after the peer has failed, once transports do not use its memory any more. */
function endUnused(request: Request, status: Status): void {
  const send = request as SendRequest;
  if (send.isPassedOn) return;
  send.isPassedOn = true;
  send.release?.();
  send.release = undefined;
  send.complete(status);
}

/** Sends a CREDIT message for the stream of a connection. */
export function postStreamCredit(connection: Connection, code: number): void {
  connection.post(MessageId.CREDIT, writeCredit(connection.remoteId, code, 0, 0));
}
