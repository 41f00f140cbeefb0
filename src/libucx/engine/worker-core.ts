/** State shared by the modules of a worker: its libucp handle, its requests and local memory, and the native worker. */

import type { PromiseTier } from '../../api/awaited/promises.ts';
import { AM_HEADER_BYTES_MAX } from '../../api/contract/active-message.ts';
import type { Request, RequestParams } from '../../api/contract/request.ts';
import type { Piece } from '../../api/memory/local.ts';
import { Call } from '../../api/operation/call.ts';
import type { ProgressDriver } from '../../api/progress/progress-driver.ts';
import type { CopyingWorker } from '../../api/staging/device-copier.ts';
import { allocateScratch, type ScratchBlock } from '../../sys/index.ts';
import { checkStatus } from '../../ucs/type/error.ts';
import { Status } from '../../ucs/type/status.ts';
import { UCP_FEATURE } from '../c/abi.ts';
import type { LibucpFunctions } from '../c/functions.ts';
import type { LocalMemory } from '../mem/memory-handle.ts';
import type { UcxCall } from '../mem/remote-key.ts';
import { LocalRanges } from '../request/local.ts';
import { RequestKind, type UcpRequest } from '../request/request.ts';
import { Requests } from '../request/requests.ts';
import type { EngineContext } from './engine.ts';
import { Teardown } from './teardown.ts';

/** The members of the API worker that its modules use. */
export interface CoreWorker {
  readonly handle: number;
  readonly clientId: bigint;
  readonly promises: PromiseTier;
  readonly driver: ProgressDriver;
}

export class WorkerCore {
  readonly context: EngineContext;
  readonly functions: LibucpFunctions;
  readonly handle: number;
  readonly clientId: bigint;
  readonly promises: PromiseTier;
  readonly driver: ProgressDriver;
  readonly requests: Requests;
  readonly buffers: LocalRanges;
  /** The arguments of the operation that is being started: see Call. */
  readonly call: UcxCall = new Call();
  readonly teardown: Teardown;
  readonly native: CopyingWorker;
  /** Memory for the header of the message that is being sent. */
  headers: ScratchBlock;

  /**
   * @param events onDue: progress has work that libucp does not report; onStarted: an operation continues after its call
   * @param initDatatype see {@link LocalRanges}
   */
  constructor(
    context: EngineContext,
    worker: CoreWorker,
    events: Readonly<Record<'onDue' | 'onStarted', () => void>>,
    initDatatype: (request: UcpRequest, pieces: readonly Piece<LocalMemory>[], byteLength: number) => number,
  ) {
    this.context = context;
    this.functions = context.libucp.functions;
    this.handle = worker.handle;
    this.clientId = worker.clientId;
    this.promises = worker.promises;
    this.driver = worker.driver;
    this.headers = allocateScratch(AM_HEADER_BYTES_MAX);
    // Progress of this worker drives it.
    this.native = context.native.worker({ progress: 'manual' });
    this.native.observation.isTold = false;
    const onFreed = (): void => this.promises.requestFreed();
    this.requests = new Requests(this.functions, this.handle, context, { ...events, onFreed });
    this.buffers = new LocalRanges(context, this.requests, initDatatype);
    this.teardown = new Teardown(context.clock, this.promises);
  }

  /** Whether its endpoints can send close messages to peers of this engine. */
  get sendsCloseMessages(): boolean {
    return (this.context.features & UCP_FEATURE.AM) !== 0;
  }

  /** Memory for message headers, until the next call: the memory in use now belongs to a request. */
  takeHeader(): ScratchBlock {
    const block = this.headers;
    this.headers = allocateScratch(AM_HEADER_BYTES_MAX);
    return block;
  }

  /** Flushes only the operations passed to libucp. */
  flushUcp(params: RequestParams | undefined): Status | Request {
    const { requests } = this;
    const request = requests.begin(RequestKind.SEND, 'flush');
    if (request === undefined) return Status.NO_RESOURCE;
    requests.polling.followWalk(request);
    const flushed = this.functions.ucp_worker_flush_nbx(this.handle, requests.parameters.address);
    return requests.started(request, flushed, params);
  }

  /** Orders the operations passed to libucp before later ones. */
  fenceUcp(): void {
    checkStatus(this.functions.ucp_worker_fence(this.handle), 'ucp_worker_fence');
  }
}
