/**
 * Receives and probes of tagged messages of one worker. libucp does the matching. Receives the data of an active message over libucp. Arrival of
 * messages is in arrivals.ts.
 */

import { lengthOf } from '../../api/awaited/endpoint.ts';
import type { ReceivedMessage } from '../../api/awaited/messages.ts';
import {
  type Request,
  type RequestParams,
  TAG_MASK_FULL,
  type Tag,
  TagInfo,
  tagLow,
} from '../../api/contract/request.ts';
import type { TagMessage } from '../../api/contract/worker.ts';
import { type GivenMemory, isList } from '../../api/memory/local.ts';
import { allocateScratch } from '../../sys/index.ts';
import { invalidParam, outsideOf } from '../../ucs/type/error.ts';
import { Status } from '../../ucs/type/status.ts';
import { MemAccess } from '../../uct/api/memory-domain.ts';
import { UCP_TAG_RECV_INFO } from '../c/abi.ts';
import type { EngineEndpoint, EngineWorker } from '../engine/engine.ts';
import type { LocalMemory } from '../mem/memory-handle.ts';
import type { UcxCall } from '../mem/remote-key.ts';
import type { Descriptor } from '../request/arrivals.ts';
import { cutList } from '../request/local.ts';
import { type RequestEndpoint, RequestKind, type UcpRequest } from '../request/request.ts';

/** A message that a probe has removed from matching. */
class TakenMessage extends TagInfo implements TagMessage {
  /** Handle of libucp; 0 once it was received, and for one that was only probed. */
  handle: number;

  constructor(senderTag: bigint, byteLength: number, handle: number) {
    super(senderTag, byteLength);
    this.handle = handle;
  }
}

/** The receives. */
export class TagReceives {
  readonly #worker: EngineWorker;

  constructor(worker: EngineWorker) {
    this.#worker = worker;
  }

  /** See Worker.tagRecvNbx. */
  receive(call: UcxCall, tag: Tag, mask: Tag): Status | Request {
    tagLow('tag', tag);
    if (mask !== TAG_MASK_FULL) tagLow('mask', mask);
    const { functions, handle, buffers, requests } = this.#worker;
    const { local, localOffset, byteLength, params } = call;
    if (requests.canStartWithoutRequest(RequestKind.TAG_RECV, call.isImmediate)) {
      const plain = buffers.plainAddress(local, localOffset, byteLength);
      if (plain >= 0) {
        const param = requests.parameters.plainFor(local);
        const received = functions.ucp_tag_recv_nbx(handle, plain, byteLength, tag, mask, param);
        const request = requests.startedWithoutRequest(RequestKind.TAG_RECV, received, 'tag/libucp', call);
        if (typeof request !== 'number') wants(request as UcpRequest, tag, mask);
        return request;
      }
    }
    const request = this.#begin(call);
    if (request === undefined) return Status.NO_RESOURCE;
    wants(request, tag, mask);
    const { address, count } = request;
    const started = functions.ucp_tag_recv_nbx(handle, address, count, tag, mask, requests.parameters.address);
    return requests.receiveStarted(request, started, params);
  }

  /** See Worker.tagProbe. */
  probe(tag: Tag, mask: Tag, remove: boolean): TagMessage | undefined {
    tagLow('tag', tag);
    tagLow('mask', mask);
    const { functions, handle } = this.#worker;
    using info = allocateScratch(UCP_TAG_RECV_INFO.size);
    const message = functions.ucp_tag_probe_nb(handle, tag, mask, remove ? 1 : 0, info.address);
    if (message === 0) return undefined;
    const { sender_tag, length } = UCP_TAG_RECV_INFO.at;
    const byteLength = Number(info.view.getBigUint64(length, true));
    return new TakenMessage(info.view.getBigUint64(sender_tag, true), byteLength, remove ? message : 0);
  }

  /** See Worker.tagMessageRecvNbx. */
  receiveMessage(call: UcxCall, message: TagMessage): Status | Request {
    if (!(message instanceof TakenMessage) || message.handle === 0) {
      throw invalidParam('message', 'must be a message that tagProbe took out and that has not been received', message);
    }
    const { params } = call;
    const request = this.#begin(call);
    if (request === undefined) return Status.NO_RESOURCE;
    const { functions, handle, requests } = this.#worker;
    const { handle: taken } = message;
    message.handle = 0;
    const { address, count } = request;
    const started = functions.ucp_tag_msg_recv_nbx(handle, address, count, taken, requests.parameters.address);
    return requests.receiveStarted(request, started, params);
  }

  #begin(call: UcxCall): UcpRequest | undefined {
    return this.#worker.buffers.begin(RequestKind.TAG_RECV, 'tag/libucp', call, MemAccess.LOCAL_WRITE);
  }
}

/** Notes for snapshots which message a receive waits for: libucp does not tell. */
function wants(request: UcpRequest, tag: Tag, mask: Tag): void {
  request.wantedTag = tag;
  request.wantedMask = mask;
}

/**
 * See AmMessageBase.receiveNbx. @returns also the status with which the sender's endpoint has failed: its data cannot be received any more
 * @throws UcxError ERR_INVALID_PARAM for memory that is too short; the data can then be received again
 */
export function receiveMessageData(
  worker: EngineWorker,
  message: ReceivedMessage,
  given: GivenMemory<LocalMemory>,
  { params, access }: { readonly params: RequestParams | undefined; readonly access: number },
): Status | Request {
  const { local, localOffset, byteLength } = given;
  const { arrivals, buffers, devices, functions, handle, requests } = worker;
  const room = isList(local) ? lengthOf(local) : byteLength;
  if (!Number.isSafeInteger(room)) throw invalidParam('byteLength', 'must be an integer of 0 or more', room);
  if (room < message.byteLength) {
    throw outsideOf('local memory', 'byteLength', { offset: 0, byteLength: message.byteLength, size: room });
  }
  const { waiting } = message;
  if (waiting === undefined) return devices.copyOut(message, given, params, access);
  const cut = isList(local) ? cutList(local, message.byteLength) : local;
  const target = { local: cut, localOffset, byteLength: message.byteLength };
  const sender = message.sender as (EngineEndpoint & RequestEndpoint) | undefined;
  if (sender !== undefined && sender.status !== Status.OK) {
    buffers.check(target, access);
    // libucp would wait for the sender, which has gone, until the endpoint is closed here.
    message.isReceived = true;
    message.waiting = undefined;
    arrivals.release(waiting as Descriptor);
    return sender.status;
  }
  const request = buffers.begin(RequestKind.AM_RECV, 'am/libucp', target, access);
  if (request === undefined) return Status.NO_RESOURCE;
  request.endpoint = sender;
  message.isReceived = true;
  message.waiting = undefined;
  const { address, count } = request;
  const descriptor = arrivals.take(waiting as Descriptor);
  const started = functions.ucp_am_recv_data_nbx(handle, descriptor, address, count, requests.parameters.address);
  if (started === 0) request.receivedBytes = message.byteLength;
  return requests.started(request, started, params);
}
