/** Skeleton */

import type { AmMessage } from '../ucp/api/active-message.ts';
import { piecesOf, scatter } from '../ucp/api/local-bytes.ts';
import type { Request, RequestParams } from '../ucp/api/request.ts';
import type { WordOperation } from '../ucp/api/word-operation.ts';
import { UcxError } from '../ucs/error.ts';
import { Status } from '../ucs/status.ts';
import type { EngineEndpoint, EngineWorker } from './engine.ts';
import type { LocalBuffer, LocalMemory } from './memory-handle.ts';
import type { UcpRemoteKey } from './remote-key.ts';
import type { UcpRequest } from './request.ts';

export class DeviceTransfers {
  readonly #worker: EngineWorker;
  constructor(worker: EngineWorker) {
    this.#worker = worker;
  }
  get isIdle(): boolean {
    return true;
  }
  describe(_request: UcpRequest): void {
    throw new UcxError({ code: 'ERR_UNSUPPORTED', status: Status.UNSUPPORTED, message: 'memory of cards' });
  }
  put(
    _e: EngineEndpoint,
    _l: LocalMemory,
    _o: number,
    _n: number,
    _r: UcpRemoteKey,
    _ro: number,
    _p?: RequestParams,
  ): Status | Request {
    return Status.UNSUPPORTED;
  }
  get(
    _e: EngineEndpoint,
    _l: LocalMemory,
    _o: number,
    _n: number,
    _r: UcpRemoteKey,
    _ro: number,
    _p?: RequestParams,
  ): Status | Request {
    return Status.UNSUPPORTED;
  }
  atomic(_e: EngineEndpoint, _c: WordOperation, _r: UcpRemoteKey, _o: number, _p?: RequestParams): Status | Request {
    return Status.UNSUPPORTED;
  }
  flush(endpoint: EngineEndpoint, params?: RequestParams): Status | Request {
    return endpoint.flushUcp(params);
  }
  copyOut(message: AmMessage, local: LocalBuffer, localOffset: number, params?: RequestParams): Status | Request {
    const pieces = piecesOf<LocalMemory>(this.#worker.context, local, localOffset, message.byteLength);
    const request = this.#worker.requests.beginComposite('am/libucp');
    if (request === undefined) return Status.NO_RESOURCE;
    message.isReceived = true;
    scatter(pieces, 0, message.byteLength, message.source, message.dataOffset);
    request.receivedBytes = message.byteLength;
    return this.#worker.requests.endedAtOnce(request, Status.OK, params);
  }
  endpointClosed(_endpoint: EngineEndpoint): void {}
  close(): void {}
}
