/** Put, get and flush of endpoints: one path without a request for short puts and gets, and one with a request for everything else. */

import { GET_ACCESSES, PUT_ACCESSES } from '../../api/contract/memory.ts';
import type { RequestParams } from '../../api/contract/request.ts';
import { checkLocal } from '../../api/memory/local.ts';
import { checkRemote } from '../../api/memory/owned.ts';
import { Operation } from '../../api/operation/call.ts';
import { ENDED_IN_CALL } from '../../api/operation/completion.ts';
import { Status } from '../../ucs/type/status.ts';
import type { Connection } from '../base/connection.ts';
import { isObserved } from '../base/observation.ts';
import { start } from '../base/queued.ts';
import type { RmaRequest } from '../base/request/operation-requests.ts';
import type { Request } from '../base/request/request.ts';
import type { UcpCall, WorkerCore } from '../base/worker-core.ts';
import type { Lane } from '../lane/lanes.ts';
import { type LocalMemory, plainBytesOf } from '../mem/memory-handle.ts';
import type { RemoteKey, ShortPath } from '../mem/remote-key.ts';
import { type Candidate, Protocol } from '../proto/selection.ts';
import { chooseCandidate, planFor } from '../transfer/plan.ts';
import { carriersOf, initLocal, initRma, initTransfer, startCopiedPut, type Transfer } from '../transfer/transfer.ts';
import { initFlush, tryFlush } from './flush.ts';
import type { EmulatedRma } from './software.ts';

/** The parts of an undivided transfer. */
const NO_PARTS: readonly Transfer[] = [];

export class RmaProtocol {
  readonly #host: WorkerCore;
  readonly #software: EmulatedRma;

  constructor(host: WorkerCore, software: EmulatedRma) {
    this.#host = host;
    this.#software = software;
  }

  /**
   * Puts a few bytes of host memory without a request, if a lane can. Does not check arguments: the transport checks ranges, and {@link start} reports the
   * reason of a failure, and creates a missing plan.
   * @returns OK if it has ended; NO_RESOURCE if the transport currently lacks resources; otherwise the put has to be started with a request
   */
  tryShortPut(
    connection: Connection,
    local: LocalMemory,
    localOffset: number,
    byteLength: number,
    rkey: RemoteKey,
    remoteOffset: number,
  ): Status {
    const bytes = plainBytesOf(local, this.#host.context);
    if (bytes === undefined || rkey?.owner !== connection || isObserved()) return Status.UNSUPPORTED;
    const path = bytes === local ? rkey.shortPut : rkey.shortPutMapped;
    if (!isUsable(path, byteLength, connection)) return Status.UNSUPPORTED;
    path.activity.busy = true;
    return path.endpoint.putShort(bytes, localOffset, byteLength, remoteOffset, path.part);
  }

  /** Like {@link tryShortPut}, for a get that ends in its call. */
  tryShortGet(
    connection: Connection,
    local: LocalMemory,
    localOffset: number,
    byteLength: number,
    rkey: RemoteKey,
    remoteOffset: number,
  ): Status {
    const bytes = plainBytesOf(local, this.#host.context);
    if (bytes === undefined || rkey?.owner !== connection || isObserved()) return Status.UNSUPPORTED;
    const { shortGet } = rkey;
    if (!isUsable(shortGet, byteLength, connection)) return Status.UNSUPPORTED;
    const { endpoint, part } = shortGet;
    return endpoint.getShort(bytes, localOffset, byteLength, remoteOffset, part, ENDED_IN_CALL);
  }

  /** Flushes lanes of a connection, and operations that only the peer can end. */
  flush(connection: Connection, lanes: readonly Lane[], params: RequestParams | undefined): Status | Request {
    if (connection.failure !== Status.OK) return connection.failure;
    const { hasPending, remoteOperations, notifications } = connection;
    // With pending requests, one of them may be a flush that has to report the failure of a lane first.
    const tried = hasPending ? Status.INPROGRESS : tryFlush(lanes);
    const isDone = tried !== Status.INPROGRESS && remoteOperations === 0 && notifications.isEmpty;
    if (isDone && params?.noImmediateCompletion !== true) {
      const kept = connection.takeFailure();
      return tried === Status.OK ? kept : tried;
    }
    const request = this.#host.requests.take(this.#host.requests.flushes);
    if (request === undefined) return Status.NO_RESOURCE;
    initFlush(request, connection, lanes, tried === Status.INPROGRESS ? Status.OK : tried);
    return this.#host.start(request, params);
  }

  /** Starts a put or get: see Endpoint.putNbx and getNbx. */
  start(call: UcpCall): Status | Request {
    const { context, requests } = this.#host;
    const { operation, connection, byteLength, params } = call;
    const { ownAccess, remoteAccess } = operation === Operation.PUT ? PUT_ACCESSES : GET_ACCESSES;
    checkLocal(context, call, ownAccess);
    checkRemote(connection, call, remoteAccess);
    if (byteLength === 0) return Status.OK;
    if (connection.failure !== Status.OK) return connection.failure;
    const candidate = chooseCandidate(planFor(call), call, byteLength);
    const request = requests.take(requests.rmas);
    if (request === undefined) return Status.NO_RESOURCE;
    initRma(request, call, candidate);
    const isShortPut = operation === Operation.PUT && candidate.protocol === Protocol.SHORT;
    if (isShortPut && call.isImmediate && !isObserved()) request.starter = startCopiedPut;
    try {
      const parts = this.#isDivided(connection, candidate) ? carriersOf(call, context.rmaRails) : NO_PARTS;
      if (parts !== undefined && parts.length > 1) initDivided(this.#host, request, parts);
      else if (candidate.protocol !== Protocol.SOFTWARE) initLocal(request, call, context.memory);
      else this.#software.init(request, call);
    } catch (error) {
      requests.discard(request);
      throw error;
    }
    return this.#host.start(request, params, call.isBlocked);
  }

  /** True if several network devices may share a put or get (UCX_MAX_RMA_RAILS). */
  #isDivided({ hasRails }: Connection, { protocol }: Candidate): boolean {
    return hasRails && this.#host.context.rmaRails.railsMax >= 2 && protocol === Protocol.ZCOPY;
  }
}

/** True if a transfer can use a short path now. */
function isUsable(path: ShortPath | undefined, byteLength: number, connection: Connection): path is ShortPath {
  const { hasPending, failure } = connection;
  return path !== undefined && byteLength > 0 && byteLength <= path.bytesMax && !hasPending && failure === Status.OK;
}

/*
 * A put or get of the application that several network devices share (UCX_MAX_RMA_RAILS). Its request ends with the last part, and has the first failure
 * as status. The parts are transfers of transfer/transfer.ts.
 *
 *   STARTING --every part was accepted by its lane--> STARTED --the last part has ended--> the request ends
 *      |  ^                                              ^
 *      |  '-- NO_RESOURCE: started again by its queue    |
 *      '-- a failure, or a peer that has left: parts that no lane has accepted are dropped
 *
 * While it is STARTING, one count of the request keeps it from ending, and flushes and fences wait behind it.
 */

/** See the diagram above. */
const DividedState = { STARTING: 0, STARTED: 1 } as const;
type DividedState = (typeof DividedState)[keyof typeof DividedState];

class DividedTransfer {
  readonly #request: RmaRequest;
  /** Parts that no lane has accepted yet. */
  readonly #waiting: Set<RmaRequest> = new Set();
  #state: DividedState = DividedState.STARTING;

  constructor(request: RmaRequest) {
    this.#request = request;
  }

  /** Adds a part. @throws the error of registering the local memory */
  add(host: WorkerCore, part: Transfer): void {
    const request = this.#request;
    this.#waiting.add(initTransfer(host, part, (status) => request.complete(status)));
    request.byteLength += part.byteLength;
  }

  /** Starts the remaining parts; see Request.start. */
  start(): Status {
    const request = this.#request;
    for (const part of [...this.#waiting]) {
      if (request.failure !== Status.OK) break;
      this.#startPart(part);
      // The start of a part has ended the connection.
      if (this.#state !== DividedState.STARTING) return Status.INPROGRESS;
    }
    if (request.failure !== Status.OK) this.drop();
    if (this.#waiting.size > 0) return Status.NO_RESOURCE;
    this.#state = DividedState.STARTED;
    request.count -= 1;
    return request.count > 0 ? Status.INPROGRESS : request.failure;
  }

  #startPart(part: RmaRequest): void {
    const request = this.#request;
    this.#waiting.delete(part);
    request.count += 1;
    const { byteLength } = part;
    const status = start(part);
    if (status === Status.NO_RESOURCE && this.#state === DividedState.STARTING) {
      request.count -= 1;
      this.#waiting.add(part);
      return;
    }
    if (status !== Status.NO_RESOURCE) request.done += byteLength;
    if (status === Status.INPROGRESS) return;
    if (part.error !== undefined) request.error ??= part.error;
    part.end(status === Status.NO_RESOURCE ? Status.CANCELED : status);
  }

  /** Ends the parts that no lane has accepted. */
  drop(): void {
    for (const part of this.#waiting) {
      this.#waiting.delete(part);
      this.#request.count += 1;
      part.end(Status.CANCELED);
    }
  }

  /** Called when the peer has failed or left. */
  abandon(status: Status): void {
    const request = this.#request;
    if (request.failure === Status.OK) request.failure = status;
    if (this.#state !== DividedState.STARTING) return;
    this.#state = DividedState.STARTED;
    this.drop();
    request.complete(status);
  }
}

/**
 * Divides a request into parts.
 * @param request initialized, except for its memory
 * @throws the error of registering the local memory; then no resources are held
 */
function initDivided(host: WorkerCore, request: RmaRequest, parts: readonly Transfer[]): void {
  const transfer = new DividedTransfer(request);
  request.starter = () => transfer.start();
  request.release = () => transfer.drop();
  request.abandon = (_request, status) => transfer.abandon(status);
  for (const part of parts) transfer.add(host, part);
}
