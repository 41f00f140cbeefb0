/**
 * Put and get: checks the arguments, takes the plan, and starts the protocol. Requests that find no resources are started again by
 * the worker through {@link startRma}.
 */

import { closedError, invalidParam, UcxError } from '../../ucs/error.ts';
import { memoryTypeName } from '../../ucs/memory-type.ts';
import { Status } from '../../ucs/status.ts';
import type { Lane } from '../core/lane.ts';
import { type Request, RequestKind } from '../core/request.ts';
import { HOST_PLACE, type LocalMemory, MemoryHandle } from '../mem/memory-handle.ts';
import { RemoteKey } from '../mem/remote-key.ts';
import {
  type Candidate,
  candidateFor,
  OPERATION_NAMES,
  Operation,
  type Plan,
  Protocol,
  selectProtocols,
} from '../proto/selection.ts';

/** Checks the local side: the type of the memory, whose it is, and the range. */
export function checkLocal(owner: object, local: LocalMemory, offset: number, byteLength: number): void {
  const isHandle = local instanceof MemoryHandle;
  if (!isHandle && !(local instanceof Uint8Array))
    throw invalidParam('local', 'must be a Uint8Array or a memory handle', local);
  if (isHandle && !local.mapped) throw closedError('memory handle of the local side');
  if (isHandle && local.owner !== owner)
    throw invalidParam('local', 'must be mapped by the context of the endpoint', local.address);
  const end = local.byteLength;
  if (!Number.isSafeInteger(offset) || offset < 0)
    throw invalidParam('localOffset', 'must be an integer of 0 or more', offset);
  if (!Number.isSafeInteger(byteLength) || byteLength < 0) {
    throw invalidParam('byteLength', 'must be an integer of 0 or more', byteLength);
  }
  if (offset + byteLength > end) {
    throw invalidParam('byteLength', `must not reach beyond the local memory of ${end} bytes`, offset + byteLength);
  }
  if (isHandle && local.bytes !== undefined && local.bytes.byteLength !== end) {
    throw invalidParam(
      'local',
      'must keep the length it was mapped with: its ArrayBuffer was detached',
      local.bytes.byteLength,
    );
  }
}

/** Checks the remote side in the same way. */
export function checkRemote(owner: object, rkey: RemoteKey, offset: number, byteLength: number): void {
  if (!(rkey instanceof RemoteKey)) throw invalidParam('rkey', 'must be a remote key from unpackRkey', rkey);
  if (rkey.owner !== owner) throw invalidParam('rkey', 'must be unpacked in the context of the endpoint', rkey.address);
  if (rkey.released) throw closedError('remote key');
  if (!Number.isSafeInteger(offset) || offset < 0)
    throw invalidParam('remoteOffset', 'must be an integer of 0 or more', offset);
  if (offset + byteLength > rkey.byteLength) {
    throw invalidParam(
      'remoteOffset',
      `must not reach beyond the remote memory of ${rkey.byteLength} bytes`,
      offset + byteLength,
    );
  }
}

/** The plan for an operation between these memories, from the key or made now. */
export function planFor(operation: Operation, local: LocalMemory, rkey: RemoteKey, lanes: readonly Lane[]): Plan {
  const placeIndex = local instanceof MemoryHandle ? local.placeIndex : 0;
  return rkey.plan(operation, placeIndex) ?? makePlan(operation, local, placeIndex, rkey, lanes);
}

function makePlan(
  operation: Operation,
  local: LocalMemory,
  placeIndex: number,
  rkey: RemoteKey,
  lanes: readonly Lane[],
): Plan {
  const place = local instanceof MemoryHandle ? local : HOST_PLACE;
  const capabilities = lanes.map(({ iface, md }) => ({
    attributes: iface.attributes,
    hasRemoteKey: rkey.parts[md.index] !== undefined,
    hasLocalMemory: !(local instanceof MemoryHandle) || local.mdMemory[md.index] !== undefined,
    registerCost: local instanceof MemoryHandle ? undefined : md.md.attributes.registerCost,
  }));
  const plan = selectProtocols(operation, place, rkey, capabilities);
  rkey.keepPlan(operation, placeIndex, plan);
  return plan;
}

/** The candidate for a size. */
export function chooseCandidate(
  plan: Plan,
  operation: Operation,
  local: LocalMemory,
  rkey: RemoteKey,
  bytes: number,
): Candidate {
  const candidate = candidateFor(plan, bytes);
  if (candidate !== undefined) return candidate;
  const from = memoryTypeName(local instanceof MemoryHandle ? local.memoryType : HOST_PLACE.memoryType);
  const reasons = plan.rejected.map(({ lane, reason }) => `lane ${lane} ${reason}`).join('; ');
  throw new UcxError({
    code: 'ERR_UNREACHABLE',
    status: Status.UNREACHABLE,
    message: `no transport can ${OPERATION_NAMES[operation]} ${bytes} bytes between local ${from} and remote ${memoryTypeName(rkey.memoryType)} memory (${reasons})`,
    details: { operation: OPERATION_NAMES[operation], bytes, reasons },
  });
}

/** Fills a request with an operation whose lane and protocol are chosen. */
export function describeRma(
  request: Request,
  operation: Operation,
  lane: Lane,
  protocol: Protocol,
  rkey: RemoteKey,
  remoteOffset: number,
): void {
  request.begin(RequestKind.RMA);
  request.operation = operation;
  request.lane = lane;
  request.protocolIndex = protocol;
  request.rkey = rkey.parts[lane.md.index];
  request.remoteOffset = remoteOffset;
}

/** Sets the local side of a described request: bytes for short, registered memory for zero copy. */
export function describeLocal(request: Request, local: LocalMemory, offset: number, byteLength: number): void {
  request.byteLength = byteLength;
  request.localOffset = offset;
  if (request.protocolIndex === Protocol.SHORT) {
    request.bytes = local instanceof MemoryHandle ? local.bytes : local;
    return;
  }
  const { md, index } = request.lane!.md;
  if (local instanceof MemoryHandle) {
    request.setEntry(local.mdMemory[index]!, offset, byteLength);
    return;
  }
  // The whole ArrayBuffer is what registration caches know, and what a small Buffer shares with others.
  request.registered = md.memReg(new Uint8Array(local.buffer));
  request.registrar = md;
  request.setEntry(request.registered, local.byteOffset + offset, byteLength);
}

/** Starts, or starts again, a described request: the status of the transport. */
export function startRma(request: Request): Status {
  const { endpoint } = request.lane!;
  const rkey = request.rkey!;
  if (request.protocolIndex === Protocol.ZCOPY) {
    return request.operation === Operation.PUT
      ? endpoint.putZcopy(request.iov, request.remoteOffset, rkey, request)
      : endpoint.getZcopy(request.iov, request.remoteOffset, rkey, request);
  }
  const { bytes, localOffset, byteLength, remoteOffset } = request;
  return request.operation === Operation.PUT
    ? endpoint.putShort(bytes!, localOffset, byteLength, remoteOffset, rkey, request)
    : endpoint.getShort(bytes!, localOffset, byteLength, remoteOffset, rkey, request);
}
