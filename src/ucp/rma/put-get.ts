/**
 * Put, get and flush of endpoints: one path without a request for short puts, and one with a request for everything else. What the owner of the memory
 * executes is in rma-sw/; puts and gets of the protocols themselves are in internal-rma.ts.
 */

import { GET_ACCESSES, PUT_ACCESSES } from '../../api/contract/memory.ts';
import type { RequestParams } from '../../api/contract/request.ts';
import { checkLocal } from '../../api/memory/local.ts';
import { checkRemote } from '../../api/memory/owned.ts';
import { ENDED_IN_CALL } from '../../api/operation/completion.ts';
import { isBytes } from '../../ucs/memory/bytes.ts';
import { Status } from '../../ucs/type/status.ts';
import { isObserved } from '../base/observation.ts';
import type { PeerConnection } from '../base/peer-connection.ts';
import type { ProtocolHost } from '../base/protocol-host.ts';
import type { Request } from '../base/request/request.ts';
import type { RmaRequest } from '../base/request/rma-request.ts';
import type { Lane } from '../lane/lane.ts';
import { type LocalMemory, MemoryHandle } from '../mem/memory-handle.ts';
import type { RemoteKey, ShortPath } from '../mem/remote-key.ts';
import { type Candidate, Operation, Protocol } from '../proto/selection.ts';
import { initDivided } from './divided.ts';
import { initFlush, tryFlush } from './flush.ts';
import { carriedPlaces, type RmaPlace } from './internal-rma.ts';
import { chooseCandidate, planFor } from './plan.ts';
import { initLocal, initRma, startCopiedPut } from './transfer.ts';

/** The parts of a transfer that is not divided. */
const NO_PARTS: readonly RmaPlace[] = [];

/** Puts and gets that the worker of the peer executes. */
export interface SoftwareRma {
  /** Completes a request that initRma has begun. */
  init(
    request: RmaRequest,
    local: LocalMemory,
    offset: number,
    byteLength: number,
    memoryKey: Uint8Array | undefined,
  ): void;
}

/** The puts, gets and flushes of one worker. */
export class RmaProtocol {
  readonly #host: ProtocolHost;
  readonly #software: SoftwareRma;

  constructor(host: ProtocolHost, software: SoftwareRma) {
    this.#host = host;
    this.#software = software;
  }

  /** See Endpoint.putNbx. */
  put(
    connection: PeerConnection,
    local: LocalMemory,
    localOffset: number,
    byteLength: number,
    rkey: RemoteKey,
    remoteOffset: number,
    params: RequestParams | undefined,
  ): Status | Request {
    let isRefused = false;
    // The transport checks the ranges; the path with a request gives the reason of a refusal, and makes the plan if it is not known.
    const bytes = params === undefined ? this.#plainBytes(local) : undefined;
    if (bytes !== undefined && rkey?.owner === connection && !isObserved()) {
      const path = bytes === local ? rkey.shortPut : rkey.shortPutMapped;
      if (isUsable(path, byteLength, connection)) {
        path.activity.busy = true;
        const status = path.endpoint.putShort(bytes, localOffset, byteLength, remoteOffset, path.part);
        if (status === Status.OK) return status;
        isRefused = status === Status.NO_RESOURCE;
      }
    }
    return this.#transfer(
      Operation.PUT,
      connection,
      local,
      localOffset,
      byteLength,
      rkey,
      remoteOffset,
      params,
      isRefused,
    );
  }

  /** See Endpoint.getNbx. */
  get(
    connection: PeerConnection,
    local: LocalMemory,
    localOffset: number,
    byteLength: number,
    rkey: RemoteKey,
    remoteOffset: number,
    params: RequestParams | undefined,
  ): Status | Request {
    // As for puts, if the get ends in the call.
    const bytes = params === undefined ? this.#plainBytes(local) : undefined;
    if (bytes !== undefined && rkey?.owner === connection && !isObserved()) {
      const { shortGet } = rkey;
      if (isUsable(shortGet, byteLength, connection)) {
        const { endpoint, part } = shortGet;
        const status = endpoint.getShort(bytes, localOffset, byteLength, remoteOffset, part, ENDED_IN_CALL);
        if (status === Status.OK) return status;
      }
    }
    return this.#transfer(Operation.GET, connection, local, localOffset, byteLength, rkey, remoteOffset, params, false);
  }

  /** Bytes of host memory, mapped or not; undefined for other memory, and for mapped memory of another context or without every local access. */
  #plainBytes(local: LocalMemory): Uint8Array | undefined {
    if (isBytes(local)) return local;
    return local instanceof MemoryHandle && (local.owner as object) === this.#host.context
      ? local.plainBytes
      : undefined;
  }

  /** Flushes lanes of a connection, and operations that only its peer can end. */
  flush(connection: PeerConnection, lanes: readonly Lane[], params: RequestParams | undefined): Status | Request {
    if (connection.failure !== Status.OK) return connection.failure;
    const tried = tryFlush(lanes);
    const { hasPending, remoteOperations, notifications } = connection;
    const isDone = tried !== Status.INPROGRESS && !hasPending && remoteOperations === 0 && notifications.isEmpty;
    if (isDone && params?.noImmediateCompletion !== true) {
      const kept = connection.takeFailure();
      return tried === Status.OK ? kept : tried;
    }
    const request = this.#host.requests.take(this.#host.requests.flushes);
    if (request === undefined) return Status.NO_RESOURCE;
    initFlush(request, connection, lanes, tried === Status.INPROGRESS ? Status.OK : tried);
    return this.#host.start(request, params);
  }

  /** @param isRefused a transport has had no resources for it just now: it waits without being tried again */
  #transfer(
    operation: Operation,
    connection: PeerConnection,
    local: LocalMemory,
    localOffset: number,
    byteLength: number,
    rkey: RemoteKey,
    remoteOffset: number,
    params: RequestParams | undefined,
    isRefused: boolean,
  ): Status | Request {
    const { context, requests } = this.#host;
    const { ownAccess, remoteAccess } = operation === Operation.PUT ? PUT_ACCESSES : GET_ACCESSES;
    checkLocal(context, local, localOffset, byteLength, ownAccess);
    checkRemote(connection, rkey, remoteOffset, byteLength, remoteAccess);
    if (byteLength === 0) return Status.OK;
    if (connection.failure !== Status.OK) return connection.failure;
    const plan = planFor(operation, local, rkey, connection);
    const candidate = chooseCandidate(plan, operation, local, rkey, byteLength);
    const request = requests.take(requests.rmas);
    if (request === undefined) return Status.NO_RESOURCE;
    initRma(request, operation, connection, candidate, rkey, remoteOffset);
    const isShortPut = operation === Operation.PUT && candidate.protocol === Protocol.SHORT;
    if (isShortPut && params?.noImmediateCompletion !== true && !isObserved()) request.starter = startCopiedPut;
    try {
      const parts = this.#isDivided(connection, candidate)
        ? this.#partsOf(operation, connection, { local, localOffset, byteLength, rkey, remoteOffset })
        : NO_PARTS;
      if (parts.length > 1) initDivided(this.#host, request, connection, operation, parts);
      else if (candidate.protocol !== Protocol.SOFTWARE) initLocal(request, local, localOffset, byteLength, context);
      else this.#software.init(request, local, localOffset, byteLength, rkey.memoryKey);
    } catch (error) {
      requests.discard(request);
      throw error;
    }
    return this.#host.start(request, params, isRefused);
  }

  /** Whether several network devices may share a put or get (UCX_MAX_RMA_RAILS). */
  #isDivided({ hasRails }: PeerConnection, { protocol }: Candidate): boolean {
    return hasRails && this.#host.context.rmaRails.railsMax >= 2 && protocol === Protocol.ZCOPY;
  }

  /** The parts of a put or get that several network devices share; none, or one, for one that is not divided. */
  #partsOf(operation: Operation, connection: PeerConnection, place: RmaPlace): readonly RmaPlace[] {
    return carriedPlaces(connection, operation, place, this.#host.context.rmaRails) ?? NO_PARTS;
  }
}

/** Whether a transfer can use a short path now. */
function isUsable(path: ShortPath | undefined, byteLength: number, connection: PeerConnection): path is ShortPath {
  const { hasPending, failure } = connection;
  return path !== undefined && byteLength > 0 && byteLength <= path.bytesMax && !hasPending && failure === Status.OK;
}
