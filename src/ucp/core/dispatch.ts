/** The protocols of one worker, and the dispatch of messages to them. */

import { CreditCode, readCredit, readWithdraw } from '../../api/layout/control.ts';
import { HEADER_BYTES, MessageId } from '../../api/layout/message.ts';
import { readReply } from '../../api/layout/rendezvous.ts';
import { Status } from '../../ucs/type/status.ts';
import type { AmFrame } from '../../uct/api/iface.ts';
import { ActiveMessages, type WaitingData } from '../am/active-message.ts';
import { AtomicProtocol } from '../amo/atomics.ts';
import { waitingRequest } from '../base/request/request.ts';
import type { WorkerCore } from '../base/worker-core.ts';
import { RmaLists } from '../rma/list.ts';
import { RmaProtocol } from '../rma/put-get.ts';
import { EmulatedRma } from '../rma/software.ts';
import { Rendezvous } from '../rndv/rendezvous.ts';
import { postReply, readCarrier } from '../rndv/reply.ts';
import { Streams } from '../stream/stream.ts';
import { TagProtocol } from '../tag/tag.ts';
import type { Connections } from '../wireup/connections.ts';

export class Protocols {
  readonly rendezvous: Rendezvous;
  readonly tag: TagProtocol;
  readonly am: ActiveMessages;
  readonly streams: Streams;
  readonly rma: RmaProtocol;
  readonly lists: RmaLists;
  readonly atomics: AtomicProtocol;
  readonly #host: WorkerCore;
  readonly #connections: Connections;
  /** AM handlers by message id, except for the most frequent id. */
  readonly #amHandlers: (((frame: AmFrame) => void) | undefined)[] = [];

  constructor(host: WorkerCore<WaitingData>, connections: Connections) {
    this.#host = host;
    this.#connections = connections;
    this.rendezvous = new Rendezvous(host);
    this.tag = new TagProtocol(host, this.rendezvous);
    this.am = new ActiveMessages(host, this.rendezvous);
    this.streams = new Streams(host, this.rendezvous);
    const software = new EmulatedRma(host, this.rendezvous);
    this.rma = new RmaProtocol(host, software);
    this.lists = new RmaLists(
      host,
      software,
      (connection, notice, params) => this.am.notify(connection, notice, params),
      (connection, notice, puts) => this.am.notifyAfterPuts(connection, notice, puts),
    );
    this.atomics = new AtomicProtocol(host, this.rendezvous);
    this.#amHandlers[MessageId.TAG_SYNC] = (frame) => this.tag.onEager(frame, true);
    this.#amHandlers[MessageId.TAG_RTS] = (frame) => this.tag.onRts(frame);
    this.#amHandlers[MessageId.RTR] = (frame) => this.rendezvous.onRtr(frame);
    this.#amHandlers[MessageId.ATP] = (frame) => this.rendezvous.onAtp(frame);
    this.#amHandlers[MessageId.REPLY] = (frame) => this.#onReply(frame);
    this.#amHandlers[MessageId.AM_RTS] = (frame) => this.am.onRts(frame);
    this.#amHandlers[MessageId.STREAM] = (frame) => this.streams.onData(frame);
    this.#amHandlers[MessageId.PUT] = (frame) => software.onPut(frame);
    this.#amHandlers[MessageId.GET] = (frame) => software.onGet(frame);
    this.#amHandlers[MessageId.GET_READY] = (frame) => software.onGetReady(frame);
    this.#amHandlers[MessageId.ATOMIC] = (frame) => this.atomics.onAtomic(frame);
    this.#amHandlers[MessageId.CREDIT] = (frame) => this.#onCredit(frame);
    this.#amHandlers[MessageId.AM_VOID] = (frame) => this.am.onEager(frame, true);
    this.#amHandlers[MessageId.WITHDRAW] = (frame) => this.#onWithdraw(frame);
    this.#amHandlers[MessageId.WIREUP] = (frame) => this.#connections.onMessage(frame);
    this.#amHandlers[MessageId.CLOSE] = (frame) => this.#connections.onClose(frame);
  }

  /** Messages and bytes that have arrived and were not received yet, for statistics. */
  levels(): Record<'unexp_messages' | 'unexp_bytes' | 'stream_bytes' | 'am_bytes', number> {
    const { waiting, heldBytes } = this.tag.matcher;
    return {
      unexp_messages: waiting,
      unexp_bytes: heldBytes,
      stream_bytes: this.streams.heldBytes,
      am_bytes: this.am.heldBytes,
    };
  }

  /** Dispatches a message of any transport, the most frequent id first. Unknown and truncated messages are ignored. */
  onMessage(id: number, frame: AmFrame): void {
    if (frame.byteLength < (HEADER_BYTES[id] ?? Number.POSITIVE_INFINITY)) return;
    switch (id) {
      case MessageId.TAG:
        this.tag.onEager(frame, false);
        break;
      case MessageId.AM:
        this.am.onEager(frame);
        break;
      case MessageId.DATA:
        this.rendezvous.onData(frame);
        break;
      default:
        this.#control(id, frame);
    }
  }

  #control(id: number, frame: AmFrame): void {
    const take = this.#amHandlers[id];
    if (take !== undefined) take(frame);
  }

  #onCredit(frame: AmFrame): void {
    const connection = this.#host.connectionOf(frame);
    if (connection === undefined) return;
    const { code, returnedBytes, windowBytes } = readCredit(frame);
    if (code === CreditCode.STREAM_WAITS) this.streams.peerWaits(connection);
    else if (code === CreditCode.STREAM_TAKE) this.streams.requested(connection);
    else if (code === CreditCode.RETURN || code === CreditCode.HELD) {
      connection.credit.take(returnedBytes, windowBytes, code === CreditCode.HELD);
      this.streams.creditCame(connection);
    }
  }

  /** Handles a WITHDRAW of the peer. A message that was matched in the meantime, or that the program has taken, is received as usual. */
  #onWithdraw(frame: AmFrame): void {
    const connection = this.#host.connectionOf(frame);
    if (connection === undefined) return;
    const request = readWithdraw(frame);
    if (!this.tag.forget(connection, request) && !this.am.forget(connection, request)) return;
    postReply(connection, request, Status.CANCELED);
  }

  #onReply(frame: AmFrame): void {
    const { request: requested, status, low, high, carrier } = readReply(frame);
    const connection = this.#host.connectionOf(frame);
    const request = waitingRequest(connection, requested);
    connection?.takenBack.delete(requested);
    if (connection === undefined || request?.replyHandler === undefined || request.queued) return;
    if (carrier !== undefined) readCarrier(request, carrier);
    connection.forget(request);
    request.replyHandler(request, status, low, high);
  }
}
