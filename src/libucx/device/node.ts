/** Put and get by the transports of the node, between memory on this machine: the request of the native engine behind one of this engine. */

import type { MemoryHandle } from '../../ucp/api/memory.ts';
import type { Request, RequestParams } from '../../ucp/api/request.ts';
import { isUcxError } from '../../ucs/type/error.ts';
import { Status } from '../../ucs/type/status.ts';
import { UcpMemory } from '../mem/memory-handle.ts';
import type { UcpRequest } from '../request/request.ts';
import { DeviceOperation, type OperationTracker } from './operation.ts';
import type { RemoteTransfer } from './transfer.ts';

/** A put or get. */
export class NodeTransfer extends DeviceOperation {
  readonly #transfer: RemoteTransfer;
  #isStarted = false;
  #isUnderWay = false;

  constructor(tracker: OperationTracker, request: UcpRequest, transfer: RemoteTransfer) {
    super(tracker, transfer.endpoint, request);
    this.#transfer = transfer;
  }

  protected override advance(): void {
    if (!this.#isStarted && this.failure === Status.OK) this.#begin();
    if (!this.#isUnderWay && (this.#isStarted || this.failure !== Status.OK)) this.end();
  }

  #begin(): void {
    this.#isUnderWay = true;
    const started = this.#startOnNode();
    if (typeof started === 'number') this.#isUnderWay = false;
    if (started === Status.NO_RESOURCE) {
      this.wake();
      return;
    }
    this.#isStarted = true;
    if (typeof started === 'number' && started < 0) this.failure = started;
  }

  #startOnNode(): Status | Request {
    const { isPut, local, localOffset, byteLength, rkey, remoteOffset, endpoint } = this.#transfer;
    const near: MemoryHandle | Uint8Array = local instanceof UcpMemory ? local.node : local;
    const params: RequestParams = { noImmediateCompletion: true, callback: this.#onEnd };
    try {
      const node = endpoint.nodeEndpoint!;
      return isPut
        ? node.putNbx(near, localOffset, byteLength, rkey.node!, remoteOffset, params)
        : node.getNbx(near, localOffset, byteLength, rkey.node!, remoteOffset, params);
    } catch (error) {
      this.request!.error = error;
      return isUcxError(error) ? (error.status as Status) : Status.IO_ERROR;
    }
  }

  readonly #onEnd = (ended: Request, status: Status): void => {
    const request = this.request!;
    request.transport = ended.transport;
    request.device = ended.device;
    request.protocol = ended.protocol;
    request.error = ended.error;
    ended.free();
    if (status < 0) this.failure = status;
    this.#isUnderWay = false;
    if (this.#isStarted) this.wake();
  };
}
