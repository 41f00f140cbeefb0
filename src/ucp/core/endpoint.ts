/**
 * An endpoint: a connection to a worker, and the operations over it in both tiers. Which protocol runs is chosen in proto/, how
 * put and get run is in rma/.
 */

import { closedError, invalidParam } from '../../ucs/error.ts';
import { Status } from '../../ucs/status.ts';
import type { LocalMemory } from '../mem/memory-handle.ts';
import { MemoryHandle } from '../mem/memory-handle.ts';
import type { RemoteKey } from '../mem/remote-key.ts';
import { type Explanation, explainPlan } from '../proto/explain.ts';
import { Operation, Protocol } from '../proto/selection.ts';
import { checkLocal, checkRemote, chooseCandidate, describeLocal, describeRma, planFor } from '../rma/put-get.ts';
import type { Lane } from './lane.ts';
import type { PromiseTier } from './promise-tier.ts';
import type { Request, RequestParams } from './request.ts';
import type { Rejection } from './resources.ts';

/** Options of an awaited operation. */
export interface TransferOptions {
  /** Byte of the local memory to start at. Default 0. */
  readonly localOffset?: number;
  /** Bytes to move. Default: what the local memory has from `localOffset` on. */
  readonly byteLength?: number;
  /** Byte of the remote memory to start at. Default 0. */
  readonly remoteOffset?: number;
  /** Remote address instead of `remoteOffset`: an address inside the remote memory. */
  readonly remoteAddress?: bigint;
  readonly signal?: AbortSignal;
}

/** What an awaited operation tells about itself. */
export interface TransferResult {
  readonly byteLength: number;
  /** Transport, device and protocol that moved the bytes; undefined where there was nothing to move. */
  readonly transport: string | undefined;
  readonly device: string | undefined;
  readonly protocol: string | undefined;
}

/** The worker behind an endpoint. */
export interface EndpointWorker {
  readonly context: {
    unpackRkey(packed: Uint8Array): RemoteKey;
    readonly resources: { readonly rejections: readonly Rejection[] };
  };
  readonly promises: PromiseTier;
  /** True while some request waits for resources; later ones queue up behind it. */
  readonly hasQueued: boolean;
  newRequest(): Request | undefined;
  /** Gives back a request that was never started. */
  discard(request: Request): void;
  start(request: Request, params: RequestParams | undefined): Status | Request;
  flushLanes(lanes: readonly Lane[], params: RequestParams | undefined): Status | Request;
  forget(endpoint: Endpoint): void;
}

/** A connection. */
export class Endpoint {
  readonly #worker: EndpointWorker;
  readonly #lanes: readonly Lane[];
  #closed = false;
  #closing: Promise<void> | undefined;

  /** Made by Worker.endpoint. */
  constructor(worker: EndpointWorker, lanes: readonly Lane[]) {
    this.#worker = worker;
    this.#lanes = lanes;
  }

  get closed(): boolean {
    return this.#closed;
  }

  /** For the worker, which flushes them all. */
  get lanes(): readonly Lane[] {
    return this.#lanes;
  }

  /** Transports and devices of the lanes, such as `gaudi_cpy/gaudi0`. */
  get transports(): readonly string[] {
    return this.#lanes.map(({ iface }) => {
      const { transport, device } = iface.attributes.resource;
      return `${transport}/${device}`;
    });
  }

  /**
   * Writes local bytes to remote memory (ucp_put_nbx). Local completion: OK or the end of the request means that the local memory can be
   * used again; flush waits for remote completion.
   * @param local host bytes or mapped memory; must not change, nor be detached or transferred, until the request has ended
   * @param byteLength bytes; 0 moves nothing
   * @param remoteOffset byte of the memory behind `rkey`
   * @returns OK, a request in progress, or NO_RESOURCE when as many requests as the worker has are in use
   * @throws UcxError ERR_INVALID_PARAM, ERR_CLOSED, ERR_UNREACHABLE; nothing has moved then
   */
  putNbx(
    local: LocalMemory,
    localOffset: number,
    byteLength: number,
    rkey: RemoteKey,
    remoteOffset: number,
    params?: RequestParams,
  ): Status | Request {
    return this.#rma(Operation.PUT, local, localOffset, byteLength, rkey, remoteOffset, params);
  }

  /** Reads remote memory into local memory (ucp_get_nbx): the bytes are there when OK is returned or the request has ended. See {@link putNbx}. */
  getNbx(
    local: LocalMemory,
    localOffset: number,
    byteLength: number,
    rkey: RemoteKey,
    remoteOffset: number,
    params?: RequestParams,
  ): Status | Request {
    return this.#rma(Operation.GET, local, localOffset, byteLength, rkey, remoteOffset, params);
  }

  /**
   * Waits until everything started before has reached remote memory (ucp_ep_flush_nbx).
   * @returns OK when that is so, a request in progress, the failure of an earlier put, or NO_RESOURCE
   */
  flushNbx(params?: RequestParams): Status | Request {
    this.#checkOpen();
    return this.#worker.flushLanes(this.#lanes, params);
  }

  /**
   * Unpacks a remote key for this endpoint (ucp_ep_rkey_unpack).
   * @throws UcxError ERR_RKEY_MALFORMED, ERR_RKEY_STALE, ERR_RKEY_FORGED
   */
  unpackRkey(packed: Uint8Array): RemoteKey {
    this.#checkOpen();
    return this.#worker.context.unpackRkey(packed);
  }

  /** Lists the candidates for an operation, the chosen ones by size, and why the others were rejected. */
  explain(operation: 'put' | 'get', local: LocalMemory, rkey: RemoteKey): Explanation {
    this.#checkOpen();
    checkLocal(this.#worker.context, local, 0, 0);
    checkRemote(this.#worker.context, rkey, 0, 0);
    const index = operation === 'put' ? Operation.PUT : Operation.GET;
    const resources = this.#lanes.map(({ iface }) => iface.attributes.resource);
    return explainPlan({
      operation: index,
      localType: local instanceof MemoryHandle ? local.memoryType : 0,
      remoteType: rkey.memoryType,
      plan: planFor(index, local, rkey, this.#lanes),
      resources,
      unavailable: this.#worker.context.resources.rejections,
    });
  }

  /**
   * Writes local bytes to remote memory and waits until they are there.
   * @throws UcxError as {@link putNbx}, and for a transfer that failed; AbortError when `signal` fires: a transfer on its way is not
   *   recalled, the promise settles when it no longer touches the local memory
   */
  put(local: LocalMemory, rkey: RemoteKey, options: TransferOptions = {}): Promise<TransferResult> {
    return this.#worker.promises.whole(() => this.#awaitRma(Operation.PUT, local, rkey, options));
  }

  /** Reads remote memory into local memory. See {@link put}. */
  get(local: LocalMemory, rkey: RemoteKey, options: TransferOptions = {}): Promise<TransferResult> {
    return this.#worker.promises.whole(() => this.#awaitRma(Operation.GET, local, rkey, options));
  }

  /** Waits until everything started before has reached remote memory. */
  async flush(options: { readonly signal?: AbortSignal } = {}): Promise<void> {
    this.#checkOpen();
    await this.#worker.promises.run('flush', options.signal, (params) => this.flushNbx(params));
  }

  /** Flushes and closes. Idempotent; a failure of earlier operations is not reported here. */
  close(): Promise<void> {
    this.#closing ??= this.#close();
    return this.#closing;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.close();
  }

  async #close(): Promise<void> {
    this.#closed = true;
    await this.#worker.promises.settle((params) => this.#worker.flushLanes(this.#lanes, params));
    this.#worker.forget(this);
    for (const { endpoint } of this.#lanes) endpoint.close();
  }

  #rma(
    operation: Operation,
    local: LocalMemory,
    localOffset: number,
    byteLength: number,
    rkey: RemoteKey,
    remoteOffset: number,
    params: RequestParams | undefined,
  ): Status | Request {
    if (this.#closed) throw closedError('endpoint');
    checkLocal(this.#worker.context, local, localOffset, byteLength);
    checkRemote(this.#worker.context, rkey, remoteOffset, byteLength);
    if (byteLength === 0) return Status.OK;
    const plan = planFor(operation, local, rkey, this.#lanes);
    const candidate = chooseCandidate(plan, operation, local, rkey, byteLength);
    const lane = this.#lanes[candidate.lane]!;
    const immediate = params === undefined || params.noImmediateCompletion !== true;
    if (operation === Operation.PUT && candidate.protocol === Protocol.SHORT && immediate && !this.#worker.hasQueued) {
      const bytes = local instanceof MemoryHandle ? local.bytes! : local;
      const part = rkey.parts[lane.md.index]!;
      const status = lane.endpoint.putShort(bytes, localOffset, byteLength, remoteOffset, part);
      if (status !== Status.NO_RESOURCE) return status;
    }
    const request = this.#worker.newRequest();
    if (request === undefined) return Status.NO_RESOURCE;
    describeRma(request, operation, lane, candidate.protocol, rkey, remoteOffset);
    try {
      describeLocal(request, local, localOffset, byteLength);
    } catch (error) {
      this.#worker.discard(request);
      throw error;
    }
    return this.#worker.start(request, params);
  }

  async #awaitRma(
    operation: Operation,
    local: LocalMemory,
    rkey: RemoteKey,
    options: TransferOptions,
  ): Promise<TransferResult> {
    this.#checkOpen();
    const localOffset = options.localOffset ?? 0;
    checkLocal(this.#worker.context, local, 0, 0);
    const byteLength = options.byteLength ?? Math.max(0, local.byteLength - localOffset);
    checkRemote(this.#worker.context, rkey, 0, 0);
    const { remoteAddress } = options;
    if (remoteAddress !== undefined && typeof remoteAddress !== 'bigint') {
      throw invalidParam('remoteAddress', 'must be a bigint', remoteAddress);
    }
    const remoteOffset =
      remoteAddress === undefined ? (options.remoteOffset ?? 0) : Number(remoteAddress - rkey.address);
    const name = operation === Operation.PUT ? 'put' : 'get';
    const { lane, protocol } = await this.#worker.promises.run(name, options.signal, (params) =>
      this.#rma(operation, local, localOffset, byteLength, rkey, remoteOffset, params),
    );
    // Only the lane that carried it, and also on an endpoint that is being closed: it finishes what was started on it.
    if (operation === Operation.PUT && lane !== undefined) {
      await this.#worker.promises.run(name, undefined, (params) => this.#worker.flushLanes([lane], params));
    }
    const resource = lane?.iface.attributes.resource;
    return { byteLength, transport: resource?.transport, device: resource?.device, protocol };
  }

  #checkOpen(): void {
    if (this.#closed) throw closedError('endpoint');
  }
}
