/** One put or get over one lane: fills its request, and starts it. Which lane and protocol is decided in plan.ts. */

import { hostBytes } from '../../api/memory/local.ts';
import { invalidParam, statusError } from '../../ucs/type/error.ts';
import { isResizable } from '../../ucs/type/resizable.ts';
import { Status } from '../../ucs/type/status.ts';
import type { MdMemory } from '../../uct/api/memory.ts';
import { type Connection, notInitialized } from '../base/request/request.ts';
import type { RmaRequest } from '../base/request/rma-request.ts';
import { type EntryOwner, type MappedMemoryIndex, setMappedEntry } from '../mem/mapped-entry.ts';
import type { LocalMemory } from '../mem/memory-handle.ts';
import type { OperationRegistrar } from '../mem/memory-map.ts';
import type { RemoteKey } from '../mem/remote-key.ts';
import { type Candidate, Operation, Protocol } from '../proto/selection.ts';

/** Fills a request with an operation whose lane and protocol are chosen. */
export function initRma(
  request: RmaRequest,
  operation: Operation,
  connection: Connection,
  { lane, protocol }: Candidate,
  rkey: RemoteKey,
  remoteOffset: number,
): void {
  const by = connection.lanes[lane]!;
  request.begin(connection, by);
  request.starter = startRma;
  request.operation = operation;
  request.protocolIndex = protocol;
  request.rkey = rkey.parts[by.md.index];
  request.remoteOffset = remoteOffset;
}

/** Finds the mapped memory that contains host bytes, and registers bytes that are not mapped. */
export interface LocalMemoryIndex extends MappedMemoryIndex {
  readonly registrars: readonly OperationRegistrar[];
}

/** ArrayBuffers up to this length are registered as a whole, also the one that small Buffers share. */
const SHARED_BYTES_MAX = 65_536;

/** Sets the local side of an initialized request: bytes for short, registered memory for zero copy. */
export function initLocal(
  request: RmaRequest,
  local: LocalMemory,
  offset: number,
  byteLength: number,
  context: LocalMemoryIndex,
): void {
  request.byteLength = byteLength;
  request.localOffset = offset;
  if (request.protocolIndex === Protocol.SHORT) request.bytes = hostBytes(local);
  else initEntry(request, local, offset, byteLength, request.lane!.md.index, context);
}

/** Registers host memory that is not mapped. */
export interface RegisteringOwner extends EntryOwner {
  register(registrar: OperationRegistrar, bytes: Uint8Array): MdMemory;
}

/**
 * Points the entry at local memory in one memory domain.
 * @param md index of the memory domain
 */
export function initEntry(
  owner: RegisteringOwner,
  local: LocalMemory,
  offset: number,
  byteLength: number,
  md: number,
  context: LocalMemoryIndex,
): void {
  if (setMappedEntry(owner, local, offset, byteLength, md, context)) return;
  // Mapped memory without a registration is not moved without a copy.
  if (!(local instanceof Uint8Array))
    throw statusError(Status.UNSUPPORTED, 'use memory that a lane has not registered');
  if (!canRegister(local)) {
    throw invalidParam('local', 'must not lie in a resizable ArrayBuffer, as its transport registers it', local);
  }
  const isShared = local.byteLength < local.buffer.byteLength && local.buffer.byteLength <= SHARED_BYTES_MAX;
  const registered = isShared ? new Uint8Array(local.buffer) : local;
  const memory = owner.register(context.registrars[md]!, registered);
  owner.setEntry(memory, local.byteOffset - registered.byteOffset + offset, byteLength);
}

/** False for bytes whose memory can go away while a transport uses it. */
export function canRegister(local: LocalMemory): boolean {
  return !(local instanceof Uint8Array && isResizable(local.buffer));
}

/** Starts, or starts again, an initialized request: the status of the transport. */
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
    // Unmapped while the request waited for resources.
    return status === Status.INVALID_PARAM && !iov[0].memory.live ? Status.INVALID_ADDR : status;
  }
  return operation === Operation.PUT
    ? endpoint.putShort(bytes, localOffset, byteLength, remoteOffset, rkey, request)
    : endpoint.getShort(bytes, localOffset, byteLength, remoteOffset, rkey, request);
}

/** Starts a short put that ends when its bytes are copied. Their arrival, and a failure after the copy, is a matter of the next flush. */
export function startCopiedPut(request: RmaRequest): Status {
  const { lane, rkey, bytes, localOffset, byteLength, remoteOffset } = request;
  if (lane === undefined || rkey === undefined || bytes === undefined) return notInitialized();
  lane.activity.busy = true;
  return lane.endpoint.putShort(bytes, localOffset, byteLength, remoteOffset, rkey);
}
