/**
 * Messages of a stream that leave out of mapped memory, without a copy (uct_ep_am_zcopy), and the end of the sends that they belong to: when transports do not use
 * their memory any more. How much may be sent is decided before.
 */

import { MessageId } from '../../api/layout/message.ts';
import { STREAM_BYTES, writeStream } from '../../api/layout/stream.ts';
import { Status } from '../../ucs/type/status.ts';
import type { Completion } from '../../uct/api/iface.ts';
import type { ProtocolHost } from '../base/protocol-host.ts';
import type { SendRequest } from '../base/request/message-request.ts';
import type { Connection, Request } from '../base/request/request.ts';
import { NO_MEMORY, RequestEntry } from '../base/request/rma-request.ts';
import { setMappedEntry } from '../mem/mapped-entry.ts';

/** Bytes of a message from which its copy takes longer than the list of its memory, as measured over tcp: see UCX_ZCOPY_THRESH. */
const ZCOPY_BYTES_MIN = 32_768;

/** A message in a transport. Used again after its end. */
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

/** The messages of one connection. */
export class ZcopyMessages {
  readonly #host: ProtocolHost;
  readonly #connection: Connection;
  readonly #onCredit: () => void;
  readonly #spare: ZcopyMessage[] = [];
  /** The list of the message that is being sent: transports do not keep it. */
  readonly #iov: readonly [RequestEntry] = [new RequestEntry()];

  /** @param onCredit called when credit comes back of a message that the peer does not receive */
  constructor(host: ProtocolHost, connection: Connection, onCredit: () => void) {
    this.#host = host;
    this.#connection = connection;
    this.#onCredit = onCredit;
  }

  /**
   * Sends the next bytes of a send.
   * @param cost the credit that the message takes
   * @returns OK, NO_RESOURCE or a failure; UNSUPPORTED if the bytes have to be copied
   */
  send(request: SendRequest, byteLength: number, cost: number): Status {
    const { amLane, zcopyThreshold = ZCOPY_BYTES_MIN } = this.#connection;
    const { pieces, done } = request;
    const zcopyMax = amLane?.iface.attributes.am.zcopyBytesMax ?? 0;
    if (byteLength < zcopyThreshold || STREAM_BYTES + byteLength > zcopyMax || pieces.length > 1)
      return Status.UNSUPPORTED;
    const { memory, offset } = pieces[0]!;
    const { context } = this.#host;
    const isMapped = setMappedEntry(this.#iov[0], memory, offset + done, byteLength, amLane!.md.index, context);
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
    // The peer discards a message whose memory was lost before it left.
    this.#connection.credit.bytes += cost;
    this.#onCredit();
  }
}

/**
 * All bytes of a send have been passed on, or no more of them are because of `status`.
 * @returns like Request.start: INPROGRESS while transports use its memory
 */
export function passedOn(request: SendRequest, status: Status): Status {
  if (request.count === 1) return request.failure || status;
  request.isPassedOn = true;
  request.complete(status);
  return Status.INPROGRESS;
}

/** Ends a send whose peer is gone, when transports do not use its memory any more. */
function endUnused(request: Request, status: Status): void {
  const send = request as SendRequest;
  if (send.isPassedOn) return;
  send.isPassedOn = true;
  send.release?.();
  send.release = undefined;
  send.complete(status);
}
