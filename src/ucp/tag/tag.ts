/** Tagged messages: sends, receives and probes. */

import { type RequestParams, TAG_MASK_FULL, type Tag, TagInfo, tagHigh, tagLow } from '../../api/contract/request.ts';
import type { TagMessage } from '../../api/contract/worker.ts';
import { NO_ENDPOINT } from '../../api/layout/frame.ts';
import { MessageId } from '../../api/layout/message.ts';
import {
  readTag,
  readTagRts,
  TAG_BYTES,
  TAG_RTS_BYTES,
  type TagOffer,
  writeTag,
  writeTagRts,
} from '../../api/layout/tag.ts';
import { areHost, areMapped, bytesOf, checkLocal, cut, isRangeOfBytes, pieceOf } from '../../api/memory/local.ts';
import { invalidParam } from '../../ucs/type/error.ts';
import { joinBig } from '../../ucs/type/int64.ts';
import { Status } from '../../ucs/type/status.ts';
import type { AmFrame } from '../../uct/api/iface.ts';
import { MemAccess } from '../../uct/api/memory-domain.ts';
import type { Connection } from '../base/connection.ts';
import { lacksCredit, sendMessage, sendPieces, shortBytes } from '../base/message-packer.ts';
import { WorkerCounter } from '../base/observation.ts';
import type { MessageBytes, ReceiveRequest, SendRequest } from '../base/request/operation-requests.ts';
import type { Request } from '../base/request/request.ts';
import type { UcpCall, WorkerCore } from '../base/worker-core.ts';
import { type InboundWindow, KEPT_OVERHEAD_BYTES } from '../credit/credit.ts';
import type { Lane } from '../lane/lanes.ts';
import { type LocalBuffer, type LocalMemory, type LocalPiece, plainBytesOf } from '../mem/memory-handle.ts';
import type { RemoteData, Rendezvous } from '../rndv/rendezvous.ts';
import { postReply } from '../rndv/reply.ts';
import { READ_BYTES, rendezvousFrom } from '../transfer/plan.ts';
import { TagMatcher, UnexpectedMessage } from './matching.ts';

/** An eager message that arrived before its receive. */
interface EagerContent {
  readonly kind: 'eager';
  readonly bytes: Uint8Array;
  /** Connection of a synchronous send that waits for its match, and the id of its request. */
  readonly connection: Connection | undefined;
  readonly replyTo: number;
}

/** A rendezvous offer that arrived before its receive. */
interface RendezvousContent {
  readonly kind: 'rendezvous';
  readonly connection: Connection;
  readonly peerRequest: number;
  readonly packedKey: Uint8Array | undefined;
  readonly keyOffset: number;
}

type Content = EagerContent | RendezvousContent;

/** A message that its sender offers by rendezvous. */
interface Offer {
  readonly byteLength: number;
  readonly peerRequest: number;
  readonly data: RemoteData;
}

/** A probed message that was removed from the matching: only tagMessageRecvNbx can receive it. */
class TakenMessage extends TagInfo implements TagMessage {
  message: UnexpectedMessage<Content> | undefined;

  constructor(message: UnexpectedMessage<Content>, isTaken: boolean) {
    const { tagLow: low, tagHigh: high, byteLength } = message;
    super(joinBig(low, high), byteLength);
    this.message = isTaken ? message : undefined;
  }
}

export class TagProtocol {
  readonly matcher: TagMatcher<Content> = new TagMatcher();
  readonly #host: WorkerCore;
  readonly #rendezvous: Rendezvous;

  constructor(host: WorkerCore, rendezvous: Rendezvous) {
    this.#host = host;
    this.#rendezvous = rendezvous;
  }

  /**
   * Sends a few bytes of host memory without a request, if possible.
   * @returns OK or a failure if the send has ended; NO_RESOURCE if it needs a request, whose start also checks the arguments
   */
  tryShort(connection: Connection, local: LocalBuffer, localOffset: number, byteLength: number, tag: Tag): Status {
    const bytes = plainBytesOf(local, this.#host.context);
    if (bytes === undefined || !isRangeOfBytes(bytes, localOffset, byteLength)) return Status.NO_RESOURCE;
    const cost = byteLength + KEPT_OVERHEAD_BYTES;
    const isShort = TAG_BYTES + byteLength <= connection.amShortMax;
    if (!isShort || !connection.canSendAtOnce(cost)) return Status.NO_RESOURCE;
    if (!this.#isEager(connection, local as LocalMemory, byteLength)) return Status.NO_RESOURCE;
    const header = writeTag(connection.remoteId, 0, tagLow('tag', tag), tagHigh(tag));
    const status = sendMessage(connection, MessageId.TAG, header, bytes, localOffset, byteLength);
    if (status === Status.NO_RESOURCE) return status;
    connection.credit.bytes -= cost;
    this.#host.counters.count(WorkerCounter.TX_EAGER);
    return status;
  }

  /** See Endpoint.tagSendNbx and tagSendSyncNbx. */
  send(call: UcpCall, tag: Tag): Status | Request {
    call.tagLow = tagLow('tag', tag);
    call.tagHigh = tagHigh(tag);
    const { connection, pieces } = call;
    if (pieces === undefined) checkLocal(this.#host.context, call, MemAccess.LOCAL_READ);
    if (connection.failure !== Status.OK) return connection.failure;
    return this.#start(call, connection.messageLane(), pieces ?? [pieceOf(call)]);
  }

  /**
   * Posts a receive: see Worker.tagRecvNbx. The tags come from the program, and are checked.
   * @param request with its memory
   */
  receive(
    request: ReceiveRequest,
    tag: Tag,
    mask: Tag | undefined,
    params: RequestParams | undefined,
  ): Status | Request {
    const isExact = mask === undefined || mask === TAG_MASK_FULL;
    request.tagLow = tagLow('tag', tag);
    request.tagHigh = tagHigh(tag);
    request.maskLow = isExact ? -1 : tagLow('mask', mask);
    request.maskHigh = isExact ? -1 : tagHigh(mask);
    request.starter = this.#startReceive;
    request.canceller = this.#cancelReceive;
    request.protocolName = 'tag/recv';
    return this.#host.start(request, params);
  }

  /** See Worker.tagProbe. */
  probe(tag: Tag, mask: Tag | undefined, remove: boolean): TagMessage | undefined {
    const maskLow = mask === undefined ? -1 : tagLow('mask', mask);
    const maskHigh = mask === undefined ? -1 : tagHigh(mask);
    const message = this.matcher.peek(tagLow('tag', tag), tagHigh(tag), maskLow, maskHigh);
    if (message === undefined) return undefined;
    if (remove) this.matcher.remove(message);
    return new TakenMessage(message, remove);
  }

  /** Receives a message that a probe has removed: see Worker.tagMessageRecvNbx. @param take provides the request, with its memory */
  receiveMessage(
    probed: TagMessage,
    take: () => ReceiveRequest | undefined,
    params: RequestParams | undefined,
  ): Status | Request {
    if (!(probed instanceof TakenMessage) || probed.message === undefined) {
      throw invalidParam('message', 'must come from tagProbe with remove, and must not be received twice', probed);
    }
    const request = take();
    if (request === undefined) return Status.NO_RESOURCE;
    const { message } = probed;
    probed.message = undefined;
    request.protocolName = 'tag/recv';
    request.starter = () => {
      this.#deliver(request, message);
      return Status.INPROGRESS;
    };
    return this.#host.start(request, params);
  }

  /** Drops a message of a peer that waits for its receive; false if no message has this number. */
  forget(peer: Connection, request: number): boolean {
    const message = this.matcher.find(({ content }) => {
      const number = content.kind === 'eager' ? content.replyTo : content.peerRequest;
      return content.connection === peer && number === request;
    });
    if (message === undefined) return false;
    this.matcher.remove(message);
    return true;
  }

  onEager(frame: AmFrame, sync: boolean): void {
    const { bytes } = frame;
    const { request: replyTo, tagLow: low, tagHigh: high, start, byteLength: length } = readTag(frame);
    const connection = this.#host.connectionOf(frame);
    if (connection === undefined) return;
    const cost = length + KEPT_OVERHEAD_BYTES;
    const { inbound } = connection;
    if (!inbound.arrive(cost)) {
      this.#host.breaksProtocol(connection, 'it sent a tagged message without credit');
      return;
    }
    const request = this.matcher.expected(low, high);
    if (request === undefined) {
      this.#host.counters.count(WorkerCounter.TAG_RX_EAGER_UNEXP);
      const sender = sync ? connection : undefined;
      const kept = { kind: 'eager', bytes: bytes.slice(start, start + length), connection: sender, replyTo } as const;
      this.#keepEager(inbound, low, high, kept);
      inbound.settle();
      return;
    }
    this.#host.counters.count(WorkerCounter.TAG_RX_EAGER_EXP);
    request.senderLow = low;
    request.senderHigh = high;
    if (sync) postReply(connection, replyTo, Status.OK);
    this.#deliverBytes(request, frame, start, length);
    inbound.release(cost);
  }

  onRts(frame: AmFrame): void {
    const connection = this.#host.connectionOf(frame);
    if (connection === undefined) return;
    const rts = readTagRts(frame);
    const { tagLow, tagHigh, byteLength } = rts;
    const request = this.matcher.expected(tagLow, tagHigh);
    this.#host.counters.count(request === undefined ? WorkerCounter.TAG_RX_RNDV_UNEXP : WorkerCounter.TAG_RX_RNDV_EXP);
    if (request !== undefined) {
      request.senderLow = tagLow;
      request.senderHigh = tagHigh;
      this.#deliverOffer(request, connection, { byteLength, peerRequest: rts.request, data: rts });
    } else if (connection.inbound.keepOffer()) this.#keepOffer(connection, rts);
    else this.#host.breaksProtocol(connection, 'it offered more messages than a worker has requests');
  }

  /** Ends all waiting receives and messages, for a worker that closes. */
  close(): void {
    for (const request of this.matcher.drain().receives) request.end(Status.CANCELED);
  }

  #keepEager(window: InboundWindow, tagLow: number, tagHigh: number, content: EagerContent): void {
    const { byteLength } = content.bytes;
    const cost = byteLength + KEPT_OVERHEAD_BYTES;
    this.matcher.keep(
      new UnexpectedMessage<Content>({ tagLow, tagHigh, byteLength, content, heldBytes: byteLength, window, cost }),
    );
  }

  #keepOffer(connection: Connection, rts: TagOffer): void {
    const { request: peerRequest, tagLow, tagHigh, byteLength, keyOffset } = rts;
    const packedKey = rts.packedKey?.slice();
    this.matcher.keep(
      new UnexpectedMessage<Content>({
        tagLow,
        tagHigh,
        byteLength,
        content: { kind: 'rendezvous', connection, peerRequest, packedKey, keyOffset },
        heldBytes: packedKey?.byteLength ?? 0,
        window: connection.inbound,
        cost: 0,
      }),
    );
  }

  /** Sends a message whose memory is checked, with a request. */
  #start(call: UcpCall, lane: Lane, pieces: readonly LocalPiece[]): Status | Request {
    const { connection, isSync } = call;
    const isHost = areHost(pieces);
    const request = this.#host.requests.take(this.#host.requests.sends);
    if (request === undefined) return Status.NO_RESOURCE;
    request.begin(connection, lane);
    request.canceller = this.#withdraw;
    request.operation = 'tag';
    request.pieces = pieces;
    request.byteLength = bytesOf(pieces);
    request.tagLow = call.tagLow;
    request.tagHigh = call.tagHigh;
    const total = request.byteLength;
    // A list that fits into a frame is sent eagerly: reading many short elements one by one takes longer.
    const memory = pieces.length === 1 ? pieces[0]?.memory : undefined;
    const fits = TAG_BYTES + total <= connection.amBcopyMax && this.#isEager(connection, memory, total);
    if (total === 0 || (isHost && fits)) {
      request.starter = isSync ? this.#startSync : this.#startEager;
      const isShort = shortBytes(connection, pieces, TAG_BYTES, total) !== undefined;
      if (isSync) request.protocolName = isShort ? 'eager_sync/short' : 'eager_sync/bcopy';
      else request.protocolName = isShort ? 'eager/short' : 'eager/bcopy';
    } else {
      this.#host.counters.count(WorkerCounter.TX_RNDV);
      request.starter = this.#startRts;
      request.protocolName = 'rndv';
    }
    return this.#host.start(request, call.params);
  }

  /** True if a message that fits into a frame is sent eagerly. */
  #isEager(connection: Connection, memory: LocalMemory | undefined, byteLength: number): boolean {
    if (byteLength < READ_BYTES || memory === undefined) return byteLength < connection.rendezvousThreshold;
    return byteLength < rendezvousFrom(this.#host.context, connection, memory);
  }

  readonly #startEager = (request: SendRequest, connection: Connection): Status => {
    const status = this.#sendEager(request, connection, MessageId.TAG);
    if (status === Status.OK) this.#host.counters.count(WorkerCounter.TX_EAGER);
    return status;
  };

  /** A synchronous send ends when the peer replies that its message was matched. */
  readonly #startSync = (request: SendRequest, connection: Connection): Status => {
    if (connection.remoteId === NO_ENDPOINT) return Status.NO_RESOURCE;
    if (request.requestId === 0) {
      // Without credit, the message is offered instead.
      if (!connection.canOffer) return Status.NO_RESOURCE;
      request.replyHandler = endWith;
      connection.expect(request);
    }
    const status = this.#sendEager(request, connection, MessageId.TAG_SYNC);
    if (status !== Status.OK) return status;
    this.#host.counters.count(WorkerCounter.TX_EAGER_SYNC);
    return Status.INPROGRESS;
  };

  /** Sends a message with its data; without credit, offers it by rendezvous or waits. */
  #sendEager(request: SendRequest, connection: Connection, messageId: number): Status {
    if (connection.remoteId === NO_ENDPOINT) return Status.NO_RESOURCE;
    const cost = request.byteLength + KEPT_OVERHEAD_BYTES;
    if (connection.credit.bytes < cost) {
      if (!lacksCredit(connection.credit, cost, this.#host.counters)) return Status.NO_RESOURCE;
      this.#host.counters.count(WorkerCounter.TX_RNDV);
      request.starter = this.#startRts;
      request.protocolName = 'rndv';
      return this.#startRts(request, connection);
    }
    if (!areMapped(request.pieces)) return Status.INVALID_ADDR;
    const header = writeTag(connection.remoteId, request.requestId, request.tagLow, request.tagHigh);
    const status = sendPieces(connection, messageId, header, request.pieces, 0, request.byteLength);
    if (status === Status.OK) connection.credit.bytes -= cost;
    return status;
  }

  readonly #startRts = (request: SendRequest, connection: Connection): Status => {
    if (connection.remoteId === NO_ENDPOINT) return Status.NO_RESOURCE;
    if (!this.#rendezvous.offerKeyed(request, connection, TAG_RTS_BYTES)) return Status.NO_RESOURCE;
    const { requestId, tagLow, tagHigh, byteLength, key } = request;
    const rts = { request: requestId, tagLow, tagHigh, byteLength, keyOffset: key?.offset ?? 0 };
    const header = writeTagRts(connection.remoteId, rts);
    const status = sendMessage(connection, MessageId.TAG_RTS, header, key?.packed, 0, key?.packed.byteLength ?? 0);
    return status === Status.OK ? Status.INPROGRESS : status;
  };

  readonly #cancelReceive = (request: ReceiveRequest): boolean => this.matcher.cancel(request);

  /** Sends a WITHDRAW to the peer; its reply ends the request. */
  readonly #withdraw = (request: SendRequest): boolean => {
    this.#rendezvous.withdraw(request);
    return false;
  };

  readonly #startReceive = (request: ReceiveRequest): Status => {
    const { tagLow: low, tagHigh: high, maskLow, maskHigh } = request;
    const message = this.matcher.peek(low, high, maskLow, maskHigh);
    if (message === undefined) this.matcher.post(request);
    else {
      this.matcher.remove(message);
      this.#deliver(request, message);
    }
    return Status.INPROGRESS;
  };

  #deliver(request: ReceiveRequest, message: UnexpectedMessage<Content>): void {
    const { content } = message;
    request.senderLow = message.tagLow;
    request.senderHigh = message.tagHigh;
    if (content.kind === 'eager') {
      const { connection, replyTo } = content;
      if (connection !== undefined) postReply(connection, replyTo, Status.OK);
      this.#deliverBytes(request, content, 0, message.byteLength);
      return;
    }
    const { connection, peerRequest } = content;
    this.#deliverOffer(request, connection, { byteLength: message.byteLength, peerRequest, data: content });
  }

  /** Fetches a message that its sender offers by rendezvous. */
  #deliverOffer(request: ReceiveRequest, connection: Connection, { byteLength, peerRequest, data }: Offer): void {
    this.#host.counters.count(WorkerCounter.TAG_RX);
    request.messageBytes = byteLength;
    if (byteLength > request.byteLength) {
      postReply(connection, peerRequest, Status.OK);
      request.end(Status.MESSAGE_TRUNCATED);
      return;
    }
    const { asPieces } = request;
    const pieces = byteLength === request.byteLength ? asPieces : cut(asPieces, byteLength);
    this.#rendezvous.receive({ request, connection, peerRequest, pieces }, data);
  }

  #deliverBytes(request: ReceiveRequest, message: MessageBytes, start: number, length: number): void {
    this.#host.counters.count(WorkerCounter.TAG_RX);
    request.messageBytes = length;
    if (length > request.byteLength) {
      request.end(Status.MESSAGE_TRUNCATED);
      return;
    }
    if (request.bytes === undefined) {
      const arrived = { bytes: message.bytes, start, byteLength: length };
      this.#rendezvous.staging.deliver(request.pieces, arrived, (status) => request.end(status));
      return;
    }
    if (!request.isMapped) {
      request.end(Status.INVALID_ADDR);
      return;
    }
    request.store(0, message, start, length);
    request.end(Status.OK);
  }
}

function endWith(request: Request, status: Status): void {
  request.end(status);
}
