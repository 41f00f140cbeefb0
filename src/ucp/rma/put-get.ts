/**
 * Put and get: checks the arguments, takes the plan, and starts the protocol. What moves through messages is in emulated.ts.
 */

import { memoryTypeName } from '../../ucs/memory/memory-type.ts';
import { closedError, invalidParam, UcxError } from '../../ucs/type/error.ts';
import { Status } from '../../ucs/type/status.ts';
import type { Iface, RemotePath } from '../../uct/api/iface.ts';
import type { RemoteKey as UctRemoteKey } from '../../uct/api/memory.ts';
import { type Connection, type Request, RequestKind } from '../base/request.ts';
import type { Lane } from '../lane/lane.ts';
import { laneDistance } from '../lane/lane-distance.ts';
import { nameOf } from '../lane/lanes.ts';
import { HOST_PLACE, type LocalMemory, type MemoryHandle, stagedPlaceIndex } from '../mem/memory-handle.ts';
import type { OperationRegistrar } from '../mem/memory-map.ts';
import { RemoteKey, type ShortPut } from '../mem/remote-key.ts';
import { explainPlan } from '../proto/explain.ts';
import {
  type Candidate,
  candidateFor,
  type MemoryPlace,
  type MessageLane,
  OPERATION_NAMES,
  Operation,
  type Plan,
  Protocol,
  selectProtocols,
} from '../proto/selection.ts';
import { pipelineLane } from './pipeline-lane.ts';

/** Checks the remote side of an operation on a connection: the key, whose it is, and the range. */
export function checkRemote(owner: object, rkey: RemoteKey, offset: number, byteLength: number): void {
  if (!RemoteKey.isGenuine(rkey)) throw invalidParam('rkey', 'must be a remote key from unpackRkey', rkey);
  if (rkey.owner !== owner) throw invalidParam('rkey', 'must be unpacked by this endpoint', rkey.address);
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

/**
 * The plan for an operation between these memories, from the key or made now.
 * @param origin the device whose bytes pass through `local`, where that is host memory of the protocol
 */
export function planFor(
  operation: Operation,
  local: LocalMemory,
  rkey: RemoteKey,
  connection: Connection,
  origin?: number,
): Plan {
  const own = local instanceof Uint8Array ? 0 : local.placeIndex;
  const placeIndex = origin === undefined ? own : stagedPlaceIndex(origin);
  return rkey.plan(operation, placeIndex) ?? makePlan(operation, local, placeIndex, rkey, connection, origin);
}

function makePlan(
  operation: Operation,
  local: LocalMemory,
  placeIndex: number,
  rkey: RemoteKey,
  connection: Connection,
  origin: number | undefined,
): Plan {
  const { lanes, distanceOf } = connection;
  const place = local instanceof Uint8Array ? HOST_PLACE : local;
  const near = origin ?? place.sysDevice;
  const capabilities = lanes.map(({ iface, md }) => ({
    attributes: iface.attributes,
    path: pathTo(iface, rkey.parts[md.index]),
    distance: laneDistance(distanceOf, { iface }, near),
    hasRemoteKey: rkey.parts[md.index] !== undefined,
    hasLocalMemory: local instanceof Uint8Array || local.mdMemory[md.index] !== undefined,
    localRefusal: local instanceof Uint8Array ? undefined : local.refusals.get(md.index),
    registerCost: local instanceof Uint8Array ? md.md.attributes.registerCost : undefined,
  }));
  const isMovable = local instanceof Uint8Array || local.limitation === undefined;
  const isAsked = rkey.memoryKey !== undefined && isMovable;
  const messages = isAsked ? messageLane(connection, operation, place, rkey) : undefined;
  const plan = selectProtocols(operation, place, rkey, capabilities, messages, connection.zcopyThreshold);
  rkey.keepPlan(operation, placeIndex, plan);
  connection.protocolInfo?.chosen(
    lanes.map(({ iface }) => nameOf(iface.attributes)),
    () =>
      explainPlan({
        operation,
        localType: place.memoryType,
        remoteType: rkey.memoryType,
        plan,
        resources: lanes.map(({ iface }) => iface.attributes.resource),
        unavailable: [],
      }),
  );
  if (operation === Operation.PUT && placeIndex === 0) rkey.shortPut = shortPutOf(plan, rkey, lanes);
  return plan;
}

/** What an interface knows of the way to the memory of its part of a key. */
function pathTo(iface: Iface, part: UctRemoteKey | undefined): RemotePath | undefined {
  return part === undefined ? undefined : iface.remotePath?.(part);
}

/** The way of the smallest puts, where it is a short operation. */
function shortPutOf({ steps }: Plan, rkey: RemoteKey, lanes: readonly Lane[]): ShortPut | undefined {
  const [step] = steps;
  if (step === undefined || step.candidate.protocol !== Protocol.SHORT) return undefined;
  const { endpoint, md, activity } = lanes[step.candidate.lane]!;
  return { bytesMax: step.bytesMax, endpoint, part: rkey.parts[md.index]!, activity };
}

/** The lane of the messages as selection sees it. */
function messageLane(
  connection: Connection,
  operation: Operation,
  local: MemoryPlace,
  rkey: RemoteKey,
): MessageLane | undefined {
  const { lanes, am } = connection;
  const lane = lanes.findIndex(({ endpoint }) => endpoint === am);
  if (am === undefined || lane < 0) return undefined;
  const { latencyNs, hostToHost } = lanes[lane]!.iface.attributes.performance;
  const windows = operation === Operation.PUT ? pipelineLane(connection, rkey, local) : undefined;
  if (windows === undefined) return { lane, latencyNs, bandwidth: hostToHost };
  const way = `windows as put-pipeline over ${nameOf(lanes[windows.lane]!.iface.attributes)}`;
  const note = windows.note === undefined ? way : `${way}, ${windows.note}`;
  return { lane, latencyNs, bandwidth: hostToHost, note };
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
  const from = memoryTypeName(local instanceof Uint8Array ? HOST_PLACE.memoryType : local.memoryType);
  const reasons = refusalsOf(plan, rkey);
  throw new UcxError({
    code: 'ERR_UNREACHABLE',
    status: Status.UNREACHABLE,
    message: `no transport can ${OPERATION_NAMES[operation]} ${bytes} bytes between local ${from} and remote ${memoryTypeName(rkey.memoryType)} memory (${reasons})`,
    details: { operation: OPERATION_NAMES[operation], bytes, reasons },
  });
}

/** Why nothing but what a plan names moves the memory of a key, in words for users: what explain() lists. */
export function refusalsOf(plan: Plan, rkey: RemoteKey): string {
  // Keys of other connections were refused before.
  const { lanes, unreachable } = rkey.owner as Connection;
  const reasons = new Set([
    ...plan.rejected.map(({ lane, reason }) => `${nameOf(lanes[lane]!.iface.attributes)}: ${reason}`),
    ...unreachable.map(({ name, reason }) => `${name}: ${reason}`),
  ]);
  return [...reasons].join('; ');
}

/**
 * Sends a put of plain host bytes whose plan was made before, without a request. The transport checks the ranges.
 * @returns OK, or a negative status for everything that is not so simple, or that the transport refuses: nothing has happened then
 */
export function putKnown(
  connection: Connection,
  bytes: Uint8Array,
  offset: number,
  byteLength: number,
  rkey: RemoteKey,
  remoteOffset: number,
): Status {
  const short = rkey?.shortPut;
  if (short === undefined || rkey.owner !== connection || !(byteLength > 0 && byteLength <= short.bytesMax)) {
    return Status.NO_RESOURCE;
  }
  if (connection.hasPending || connection.failure !== Status.OK) return Status.NO_RESOURCE;
  short.activity.busy = true;
  return short.endpoint.putShort(bytes, offset, byteLength, remoteOffset, short.part);
}

/** Sends a short put without a request. Both sides are checked. Returns like {@link putKnown}. */
export function putAtOnce(
  connection: Connection,
  { protocol, lane: index }: Candidate,
  local: LocalMemory,
  offset: number,
  byteLength: number,
  rkey: RemoteKey,
  remoteOffset: number,
): Status {
  if (protocol !== Protocol.SHORT || connection.hasPending) return Status.NO_RESOURCE;
  const { endpoint, md, activity } = connection.lanes[index]!;
  const bytes = local instanceof Uint8Array ? local : local.bytes!;
  activity.busy = true;
  return endpoint.putShort(bytes, offset, byteLength, remoteOffset, rkey.parts[md.index]!);
}

/** Fills a request with an operation whose lane and protocol are chosen. */
export function initRma(
  request: Request,
  operation: Operation,
  connection: Connection,
  { lane, protocol }: Candidate,
  rkey: RemoteKey,
  remoteOffset: number,
): void {
  request.begin(RequestKind.RMA);
  request.starter = startRma;
  request.connection = connection;
  request.operation = operation;
  request.lane = connection.lanes[lane];
  request.protocolIndex = protocol;
  request.rkey = rkey.parts[request.lane!.md.index];
  request.remoteOffset = remoteOffset;
}

/** Finds the mapped memory that host bytes are of, and registers those that are of none. */
export interface MappedMemoryIndex {
  handleOf(bytes: Uint8Array): MemoryHandle | undefined;
  readonly registrars: readonly OperationRegistrar[];
}

/** ArrayBuffers up to this length are registered as a whole, also the one that small Buffers share. */
const SHARED_BYTES_MAX = 65_536;

/** Sets the local side of a described request: bytes for short, registered memory for zero copy. */
export function initLocal(
  request: Request,
  local: LocalMemory,
  offset: number,
  byteLength: number,
  context: MappedMemoryIndex,
): void {
  request.byteLength = byteLength;
  request.localOffset = offset;
  if (request.protocolIndex === Protocol.SHORT) {
    request.bytes = local instanceof Uint8Array ? local : local.bytes;
    return;
  }
  const { index } = request.lane!.md;
  if (!(local instanceof Uint8Array)) {
    request.setEntry(local.mdMemory[index]!, offset, byteLength);
    return;
  }
  const handle = context.handleOf(local);
  const part = handle?.mdMemory[index];
  if (handle !== undefined && part !== undefined) {
    request.setEntry(part, local.byteOffset - handle.bytes!.byteOffset + offset, byteLength);
    return;
  }
  const isShared = local.byteLength < local.buffer.byteLength && local.buffer.byteLength <= SHARED_BYTES_MAX;
  const registered = isShared ? new Uint8Array(local.buffer) : local;
  const registrar = context.registrars[index]!;
  request.registered = registrar.memReg(registered);
  request.registrar = registrar;
  request.setEntry(request.registered, local.byteOffset - registered.byteOffset + offset, byteLength);
}

/** Starts, or starts again, a described request: the status of the transport. */
function startRma(request: Request): Status {
  const { endpoint, activity } = request.lane!;
  activity.busy = true;
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
