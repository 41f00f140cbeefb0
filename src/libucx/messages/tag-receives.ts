/** Receives and probes of tagged messages of one worker. libucp matches them. */

import { type Request, TAG_MASK_FULL, type Tag, TagInfo, tagLow } from '../../api/contract/request.ts';
import type { TagMessage } from '../../api/contract/worker.ts';
import { allocateScratch } from '../../sys/index.ts';
import { invalidParam } from '../../ucs/type/error.ts';
import { Status } from '../../ucs/type/status.ts';
import { MemAccess } from '../../uct/api/memory-domain.ts';
import { UCP_TAG_RECV_INFO } from '../c/abi.ts';
import type { WorkerCore } from '../engine/worker-core.ts';
import type { UcxCall } from '../mem/remote-key.ts';
import { RequestKind, type UcpRequest } from '../request/request.ts';

/** A message that a probe has found; a message that it has removed can be received. */
class TakenMessage extends TagInfo implements TagMessage {
  /** The libucp handle; 0 if the message was received, or was not removed. */
  handle: number;

  constructor(senderTag: bigint, byteLength: number, handle: number) {
    super(senderTag, byteLength);
    this.handle = handle;
  }
}

export class TagReceives {
  readonly #core: WorkerCore;

  constructor(core: WorkerCore) {
    this.#core = core;
  }

  /** See Worker.tagRecvNbx. */
  receive(call: UcxCall, tag: Tag, mask: Tag): Status | Request {
    tagLow('tag', tag);
    if (mask !== TAG_MASK_FULL) tagLow('mask', mask);
    const { functions, handle, buffers, requests } = this.#core;
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
    const { functions, handle } = this.#core;
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
      throw invalidParam('message', 'must be a message that tagProbe removed and that was not received yet', message);
    }
    const { params } = call;
    const request = this.#begin(call);
    if (request === undefined) return Status.NO_RESOURCE;
    const { functions, handle, requests } = this.#core;
    const { handle: taken } = message;
    message.handle = 0;
    const { address, count } = request;
    const started = functions.ucp_tag_msg_recv_nbx(handle, address, count, taken, requests.parameters.address);
    return requests.receiveStarted(request, started, params);
  }

  #begin(call: UcxCall): UcpRequest | undefined {
    return this.#core.buffers.begin(RequestKind.TAG_RECV, 'tag/libucp', call, MemAccess.LOCAL_WRITE);
  }
}

/** Records the tag that a receive waits for, for snapshots: libucp does not report it. */
function wants(request: UcpRequest, tag: Tag, mask: Tag): void {
  request.wantedTag = tag;
  request.wantedMask = mask;
}
