/**
 * A worker: the interfaces of one context, their progress, and the requests over them. It moves no bytes and chooses no protocols.
 */

import type { Clock } from '../../ucs/clock.ts';
import { closedError, invalidParam, isUcxError, statusError, UcxError } from '../../ucs/error.ts';
import { ObjectPool } from '../../ucs/object-pool.ts';
import { systemRandomBytes } from '../../ucs/random.ts';
import { Ring } from '../../ucs/ring.ts';
import { Status } from '../../ucs/status.ts';
import type { Iface } from '../../uct/api/iface.ts';
import type { RemoteKey } from '../mem/remote-key.ts';
import { startRma } from '../rma/put-get.ts';
import { Endpoint, type EndpointWorker } from './endpoint.ts';
import type { Lane } from './lane.ts';
import { ProgressDriver } from './progress-driver.ts';
import { PromiseTier } from './promise-tier.ts';
import { Request, RequestKind, type RequestOwner, type RequestParams } from './request.ts';
import type { OpenMd, Resources } from './resources.ts';

/** Requests of one worker that may be in use; beyond it operations return NO_RESOURCE. */
export const REQUESTS_MAX = 4096;
/** Bytes of a worker address. */
const ADDRESS_BYTES = 16;

/** An interface with the memory domain it belongs to. */
interface OpenIface {
  readonly iface: Iface;
  readonly md: OpenMd;
}

/** The context behind a worker. */
export interface WorkerContext {
  readonly resources: Resources;
  readonly clock: Clock;
  /** See UCX_PROGRESS_SPIN. */
  readonly progressSpinNs: number;
  unpackRkey(packed: Uint8Array): RemoteKey;
  forget(worker: Worker): void;
}

/** A worker. */
export class Worker implements RequestOwner, EndpointWorker {
  readonly context: WorkerContext;
  /** Awaited operations of this worker. */
  readonly promises: PromiseTier;
  readonly #address: Uint8Array = systemRandomBytes(ADDRESS_BYTES);
  readonly #ifaces: readonly OpenIface[];
  readonly #pool: ObjectPool<Request> = new ObjectPool(REQUESTS_MAX, () => new Request(this));
  /** Requests that found no resources, in order: they are started again by progress. */
  readonly #queued: Ring<Request> = new Ring(REQUESTS_MAX);
  readonly #endpoints: Set<Endpoint> = new Set();
  #closed = false;
  #closing: Promise<void> | undefined;

  /** Made by Context.worker. */
  constructor(context: WorkerContext) {
    this.context = context;
    this.#ifaces = context.resources.mds.flatMap((md) =>
      md.resources.map((resource) => ({ md, iface: md.md.openIface(resource) })),
    );
    const driver = new ProgressDriver(this, context.clock, context.progressSpinNs);
    this.promises = new PromiseTier(driver, () => this.ifaces);
  }

  get closed(): boolean {
    return this.#closed;
  }

  /** The interfaces, for tools and for sleeping. */
  get ifaces(): readonly Iface[] {
    return this.#ifaces.map(({ iface }) => iface);
  }

  get hasQueued(): boolean {
    return this.#queued.length > 0;
  }

  /** Requests in use. */
  get requestsInUse(): number {
    return this.#pool.inUse;
  }

  /** The address by which endpoints are made: opaque bytes. */
  address(): Uint8Array {
    return this.#address.slice();
  }

  /**
   * Connects to a worker.
   * @param address of this worker itself
   * @throws UcxError ERR_UNREACHABLE for an address of another worker: no transport here leaves the process; ERR_CLOSED
   */
  endpoint(address: Uint8Array): Endpoint {
    this.#checkOpen();
    if (!(address instanceof Uint8Array))
      throw invalidParam('address', 'must be a Uint8Array from Worker.address', address);
    if (address.byteLength !== ADDRESS_BYTES || !address.every((byte, i) => byte === this.#address[i])) {
      throw new UcxError({
        code: 'ERR_UNREACHABLE',
        status: Status.UNREACHABLE,
        message: 'the address is not that of this worker, and the transports of this release do not leave the process',
      });
    }
    const lanes: Lane[] = this.#ifaces.map(({ iface, md }) => ({ iface, md, endpoint: iface.connect(iface.address) }));
    const endpoint = new Endpoint(this, lanes);
    this.#endpoints.add(endpoint);
    return endpoint;
  }

  /**
   * Drives everything outstanding (ucp_worker_progress). Callbacks run inside; it must not be called from them.
   * @returns number of operations that ended or started
   */
  progress(): number {
    let count = 0;
    for (let i = 0; i < this.#ifaces.length; i++) {
      const { iface } = this.#ifaces[i]!;
      if (iface.outstanding > 0) count += iface.progress();
    }
    if (this.#queued.length > 0) count += this.#restartQueued();
    return count;
  }

  /** Waits until everything started before on any endpoint has reached remote memory (ucp_worker_flush_nbx). */
  flushNbx(params?: RequestParams): Status | Request {
    this.#checkOpen();
    return this.flushLanes(
      [...this.#endpoints].flatMap((endpoint) => endpoint.lanes),
      params,
    );
  }

  /** The awaited form of {@link flushNbx}. */
  async flush(options: { readonly signal?: AbortSignal } = {}): Promise<void> {
    await this.promises.run('flush', options.signal, (params) => this.flushNbx(params));
  }

  /** Closes endpoints and interfaces; what has not ended by then is cancelled. Idempotent, never fails. */
  close(): Promise<void> {
    this.#closing ??= this.#close();
    return this.#closing;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.close();
  }

  /** Forgets a closed endpoint. */
  forget(endpoint: Endpoint): void {
    this.#endpoints.delete(endpoint);
  }

  /** A request, or undefined at the bound. */
  newRequest(): Request | undefined {
    this.#checkOpen();
    return this.#pool.get();
  }

  freeRequest(request: Request): void {
    if (request.kind === RequestKind.NONE) throw invalidParam('request', 'must not be freed twice', request.protocol);
    if (!request.isCompleted) throw statusError(Status.BUSY, 'free a request that has not ended');
    this.#recycle(request);
  }

  cancelRequest(request: Request): boolean {
    // A flush that one lane has already taken ends by itself.
    if (!request.queued || request.count > 1) return false;
    for (let i = this.#queued.length; i > 0; i--) {
      const head = this.#queued.shift()!;
      if (head !== request) this.#queued.push(head);
    }
    request.end(Status.CANCELED);
    return true;
  }

  /** Starts a described request; see Endpoint.putNbx for what is returned. */
  start(request: Request, params: RequestParams | undefined): Status | Request {
    const status = this.hasQueued ? Status.NO_RESOURCE : tryStart(request);
    if (request.error !== undefined) {
      const { error } = request;
      this.discard(request);
      throw error;
    }
    const wantsRequest = params?.noImmediateCompletion === true;
    if (status === Status.INPROGRESS || status === Status.NO_RESOURCE || wantsRequest) {
      request.callback = params?.callback;
      request.userData = params?.userData;
    }
    if (status === Status.INPROGRESS) return request;
    if (status === Status.NO_RESOURCE) {
      request.queued = true;
      this.#queued.push(request);
      return request;
    }
    request.end(status);
    // The callback may have freed it.
    if (request.kind === RequestKind.NONE) return status;
    if (wantsRequest) return request;
    this.#recycle(request);
    return status;
  }

  /** Gives back a request that was never started. */
  discard(request: Request): void {
    request.callback = undefined;
    request.end(Status.CANCELED);
    this.#recycle(request);
  }

  /** Flushes lanes: OK at once when nothing is on its way. */
  flushLanes(lanes: readonly Lane[], params: RequestParams | undefined): Status | Request {
    let failure: Status = Status.OK;
    let isPending = this.hasQueued;
    for (let i = 0; i < lanes.length; i++) {
      const status = lanes[i]!.endpoint.flush(undefined);
      if (status === Status.INPROGRESS) isPending = true;
      else if (failure === Status.OK) failure = status;
    }
    if (!isPending && params?.noImmediateCompletion !== true) return failure;
    const request = this.newRequest();
    if (request === undefined) return Status.NO_RESOURCE;
    request.begin(RequestKind.FLUSH);
    request.lane = undefined;
    request.lanes = lanes;
    // A lane reports its failure once: what the look at it took belongs to this flush.
    request.failure = failure;
    return this.start(request, params);
  }

  async #close(): Promise<void> {
    for (const endpoint of this.#endpoints) await endpoint.close();
    await this.promises.idle();
    this.#closed = true;
    for (const { iface } of this.#ifaces) iface.close();
    for (let head = this.#queued.shift(); head !== undefined; head = this.#queued.shift()) head.end(Status.CANCELED);
    this.context.forget(this);
  }

  #recycle(request: Request): void {
    request.kind = RequestKind.NONE;
    request.callback = undefined;
    request.userData = undefined;
    request.error = undefined;
    this.#pool.put(request);
  }

  #restartQueued(): number {
    let started = 0;
    for (let head = this.#queued.peek(); head !== undefined; head = this.#queued.peek()) {
      const status = tryStart(head);
      if (status === Status.NO_RESOURCE) break;
      this.#queued.shift();
      head.queued = false;
      started += 1;
      if (status !== Status.INPROGRESS) head.end(status);
    }
    return started;
  }

  #checkOpen(): void {
    if (this.#closed) throw closedError('worker');
  }
}

/** Starts a request; what a transport throws becomes its status, with the error kept in the request. */
function tryStart(request: Request): Status {
  try {
    return request.kind === RequestKind.FLUSH ? startFlush(request) : startRma(request);
  } catch (error) {
    request.error = error;
    return isUcxError(error) ? error.status : Status.IO_ERROR;
  }
}

/** Starts the flush of the lanes that are left; those without resources stay for the next time. */
function startFlush(request: Request): Status {
  const left: Lane[] = [];
  for (const lane of request.lanes) {
    request.count += 1;
    const status = lane.endpoint.flush(request);
    if (status === Status.INPROGRESS) continue;
    request.count -= 1;
    if (status === Status.NO_RESOURCE) left.push(lane);
    else if (status < 0) request.failure = status;
  }
  request.lanes = left;
  if (left.length > 0) return Status.NO_RESOURCE;
  request.count -= 1;
  return request.count > 0 ? Status.INPROGRESS : request.failure;
}
