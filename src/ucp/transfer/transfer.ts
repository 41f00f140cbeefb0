/**
 * One put or get on one lane: fills in its request, and starts it; for the program, or for a protocol (a rendezvous that accesses peer memory, staging),
 * whose requests are not from the program's pool. Host memory that is not mapped is registered for the operation.
 */

import { hostBytes, type LocalRange } from '../../api/memory/local.ts';
import type { RemoteRange } from '../../api/memory/owned.ts';
import { Operation } from '../../api/operation/call.ts';
import { isResizable } from '../../ucs/memory/bytes.ts';
import { closedError, invalidParam, statusError } from '../../ucs/type/error.ts';
import { Status } from '../../ucs/type/status.ts';
import { type RegisteringOwner, RmaRequest } from '../base/request/operation-requests.ts';
import { notInitialized } from '../base/request/request.ts';
import type { WorkerCore } from '../base/worker-core.ts';
import { type RailLimits, railsOf } from '../lane/rails.ts';
import type { LocalMemory } from '../mem/memory-handle.ts';
import type { MemoryMap } from '../mem/memory-map.ts';
import type { RemoteKey } from '../mem/remote-key.ts';
import { type Candidate, candidateFor, Protocol } from '../proto/selection.ts';
import { chooseCandidate, type Planned, planFor } from './plan.ts';

/** Fills in a request for a transfer whose lane and protocol are chosen. */
export function initRma(request: RmaRequest, transfer: Transfer, { lane, protocol }: Candidate): void {
  const { operation, connection, rkey, remoteOffset } = transfer;
  const by = connection.lanes[lane]!;
  request.begin(connection, by);
  request.starter = startRma;
  request.operation = operation;
  request.protocolIndex = protocol;
  request.rkey = rkey.parts[by.md.index];
  request.remoteOffset = remoteOffset;
}

/** ArrayBuffers up to this length are registered as a whole, such as the one that small Buffers share. */
const SHARED_BYTES_MAX = 65_536;

/** Sets the local side of an initialized request: bytes for short, registered memory for zero copy. */
export function initLocal(request: RmaRequest, range: LocalRange<LocalMemory>, mapped: MemoryMap): void {
  request.byteLength = range.byteLength;
  request.localOffset = range.localOffset;
  if (request.protocolIndex === Protocol.SHORT) request.bytes = hostBytes(range.local);
  else initEntry(request, range, request.lane!.md.index, mapped);
}

/**
 * Points the entry at local memory in one memory domain.
 * @param md index of the memory domain
 */
export function initEntry(
  owner: RegisteringOwner,
  range: LocalRange<LocalMemory>,
  md: number,
  mapped: MemoryMap,
): void {
  if (setMappedEntry(owner, range, md, mapped)) return;
  const { local, localOffset, byteLength } = range;
  // Mapped memory that is not registered with the lane cannot be moved by zero copy.
  if (!(local instanceof Uint8Array))
    throw statusError(
      Status.UNSUPPORTED,
      'cannot use zero copy: the memory is not registered with the memory domain of the transport',
    );
  if (!canRegister(local)) {
    throw invalidParam('local', 'must not be in a resizable ArrayBuffer, because the transport registers it', local);
  }
  const isShared = local.byteLength < local.buffer.byteLength && local.buffer.byteLength <= SHARED_BYTES_MAX;
  const registered = isShared ? new Uint8Array(local.buffer) : local;
  const memory = owner.register(mapped.registrars[md]!, registered);
  owner.setEntry(memory, local.byteOffset - registered.byteOffset + localOffset, byteLength);
}

/** False for bytes whose memory may be freed while a transport uses it. */
function canRegister(local: LocalMemory): boolean {
  return !(local instanceof Uint8Array && isResizable(local.buffer));
}

/** Starts or restarts an initialized request; returns the status of the transport. */
function startRma(request: RmaRequest): Status {
  const { lane, rkey, operation, iov, bytes, localOffset, byteLength, remoteOffset } = request;
  if (lane === undefined || rkey === undefined) return notInitialized();
  const { endpoint, activity } = lane;
  activity.busy = true;
  if (bytes === undefined) {
    const status =
      operation === Operation.PUT
        ? endpoint.putZcopy(iov, remoteOffset, rkey, request)
        : endpoint.getZcopy(iov, remoteOffset, rkey, request);
    // The memory was unmapped while the request waited for resources.
    return status === Status.INVALID_PARAM && !iov[0].memory.live ? Status.INVALID_ADDR : status;
  }
  return operation === Operation.PUT
    ? endpoint.putShort(bytes, localOffset, byteLength, remoteOffset, rkey, request)
    : endpoint.getShort(bytes, localOffset, byteLength, remoteOffset, rkey, request);
}

/** Starts a short put that ends when its bytes are copied. Their arrival, or a later failure, is reported by the next flush. */
export function startCopiedPut(request: RmaRequest): Status {
  const { lane, rkey, bytes, localOffset, byteLength, remoteOffset } = request;
  if (lane === undefined || rkey === undefined || bytes === undefined) return notInitialized();
  lane.activity.busy = true;
  return lane.endpoint.putShort(bytes, localOffset, byteLength, remoteOffset, rkey);
}

/** A put or get on one connection, for the program or a protocol. */
export interface Transfer extends Planned, LocalRange<LocalMemory>, RemoteRange<RemoteKey> {
  /** The candidate that carries it; undefined for the best one. */
  readonly candidate?: Candidate | undefined;
}

/**
 * The transfers that carry the bytes: the transfer with its candidate, or parts if several network devices share it. The remote range may come from a
 * peer.
 * @returns undefined if no lane alone can move the bytes, or the lane would have to register memory that may be freed
 */
export function carriersOf(transfer: Transfer, limits: RailLimits): readonly Transfer[] | undefined {
  const { operation, connection, local, localOffset, byteLength, rkey, remoteOffset, origin } = transfer;
  if (!(remoteOffset >= 0 && remoteOffset + byteLength <= rkey.byteLength)) return undefined;
  const plan = planFor(transfer);
  const candidate = candidateFor(plan, byteLength);
  if (candidate === undefined || candidate.protocol === Protocol.SOFTWARE) return undefined;
  if (candidate.protocol === Protocol.ZCOPY && !canRegister(local)) return undefined;
  const rails = connection.hasRails ? railsOf(plan, connection.lanes, byteLength, limits) : undefined;
  const common = { operation, connection, local, rkey, origin };
  if (rails === undefined) return [{ ...common, localOffset, byteLength, remoteOffset, candidate }];
  return rails.map((rail) => ({
    ...common,
    localOffset: localOffset + rail.offset,
    byteLength: rail.byteLength,
    remoteOffset: remoteOffset + rail.offset,
    candidate: rail.candidate,
  }));
}

/**
 * Creates a request for Connection.run from a transfer whose ranges are checked; `done` is called at its end.
 * @throws UcxError ERR_UNREACHABLE, or the error of registering the local memory
 */
export function initTransfer(host: WorkerCore, transfer: Transfer, done: (status: Status) => void): RmaRequest {
  if (transfer.rkey.released) throw closedError('remote key');
  const candidate = transfer.candidate ?? chooseCandidate(planFor(transfer), transfer, transfer.byteLength);
  const request = new RmaRequest(host);
  initRma(request, transfer, candidate);
  initLocal(request, transfer, host.context.memory);
  host.internalTransfers += 1;
  request.callback = (_request, status) => {
    host.internalTransfers -= 1;
    done(status);
  };
  return request;
}

/**
 * Points the entry at mapped memory in one memory domain.
 * @param md index of the memory domain
 * @returns false for memory without a registration there: the entry is unchanged
 */
export function setMappedEntry(
  owner: Pick<RegisteringOwner, 'setEntry'>,
  { local, localOffset, byteLength }: LocalRange<LocalMemory>,
  md: number,
  mapped: MemoryMap,
): boolean {
  const isBytes = local instanceof Uint8Array;
  const handle = isBytes ? mapped.handleOf(local) : local;
  const memory = handle?.mdMemory[md];
  if (memory === undefined) return false;
  const start = isBytes ? local.byteOffset - handle!.bytes!.byteOffset : 0;
  owner.setEntry(memory, start + localOffset, byteLength);
  return true;
}
