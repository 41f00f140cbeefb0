/**
 * Plans of puts and gets between two memories: which lane and protocol carry which sizes. For explanations: estimates which lane would write the windows of
 * a staged rendezvous (the rendezvous itself decides by the keys that it receives). Also the default of UCX_RNDV_THRESH for tagged messages: the
 * length from which on a receiver reads the memory of the sender.
 */

import { Operation } from '../../api/operation/call.ts';
import { hasMemoryType, MemoryType, memoryTypeName } from '../../ucs/memory/memory-type.ts';
import { UcxError } from '../../ucs/type/error.ts';
import { Status } from '../../ucs/type/status.ts';
import { type Iface, IfaceFlag, type RemotePath } from '../../uct/api/iface.ts';
import type { RemoteKey as UctRemoteKey } from '../../uct/api/memory.ts';
import { MdFlag, MemAccess } from '../../uct/api/memory-domain.ts';
import type { Connection } from '../base/connection.ts';
import type { ContextCore } from '../base/context-core.ts';
import { laneDistance, nameOf } from '../lane/lanes.ts';
import { HOST_PLACE, hasKeyPart, type LocalMemory, MemoryHandle, stagedPlaceIndex } from '../mem/memory-handle.ts';
import type { RemoteKey, ShortPath } from '../mem/remote-key.ts';
import { explainPlan } from '../proto/explain.ts';
import {
  type Candidate,
  candidateFor,
  type MemoryPlace,
  type MessageLane,
  movesLong,
  OPERATION_NAMES,
  type Plan,
  Protocol,
  selectProtocols,
} from '../proto/selection.ts';
import { isReadScheme } from '../resources/config.ts';
import type { OpenMd } from '../resources/resources.ts';

/** The inputs for choosing the lane and protocol of a put or get. */
export interface Planned {
  readonly operation: Operation;
  readonly connection: Connection;
  readonly local: LocalMemory;
  readonly rkey: RemoteKey;
  /** The device whose bytes pass through `local`, if that is host memory of the protocol. */
  readonly origin?: number | undefined;
}

/** The plan for an operation between these memories, cached in the key or created now. */
export function planFor(planned: Planned): Plan {
  const { operation, local, rkey, origin } = planned;
  const own = local instanceof Uint8Array ? 0 : local.placeIndex;
  const placeIndex = origin === undefined ? own : stagedPlaceIndex(origin);
  return rkey.plan(operation, placeIndex) ?? makePlan(planned, placeIndex);
}

function makePlan(planned: Planned, placeIndex: number): Plan {
  const { operation, local, rkey, connection, origin } = planned;
  const { lanes, distanceOf } = connection;
  const place = local instanceof Uint8Array ? HOST_PLACE : local;
  const near = origin ?? place.sysDevice;
  const capabilities = lanes.map(({ iface, md }) => ({
    attributes: iface.attributes,
    path: pathTo(iface, rkey.parts[md.index]),
    distance: laneDistance(distanceOf, { iface }, near),
    hasRemoteKey: rkey.parts[md.index] !== undefined,
    hasLocalMemory: local instanceof Uint8Array || local.mdMemory[md.index] !== undefined,
    localReason: local instanceof Uint8Array ? undefined : local.registrationErrors.get(md.index),
    registerCost: local instanceof Uint8Array ? md.md.attributes.registerCost : undefined,
  }));
  const isMovable = local instanceof Uint8Array || local.limitation === undefined;
  const isAsked = rkey.memoryKey !== undefined && isMovable;
  const messages = isAsked ? messageLane(connection, operation, place, rkey) : undefined;
  const used = connection.isEmulating ? messages : undefined;
  const selected = selectProtocols(
    { operation, local: place, remote: rkey },
    capabilities,
    used,
    connection.zcopyThreshold,
  );
  const plan = messages === used ? selected : withoutEmulation(selected, messages!.lane);
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
  if (placeIndex <= 1) keepShortPath(plan, planned, placeIndex === 1);
  return plan;
}

/** Caches the path of the smallest puts or gets of host memory in its key, if they are short operations. */
function keepShortPath({ steps }: Plan, { operation, rkey, connection }: Planned, isMapped: boolean): void {
  const [step] = steps;
  if (step === undefined || step.candidate.protocol !== Protocol.SHORT) return;
  // Short paths skip the access check, so only permitted accesses get a path.
  const access = operation === Operation.PUT ? MemAccess.REMOTE_PUT : MemAccess.REMOTE_GET;
  if ((rkey.access & access) === 0) return;
  const { endpoint, iface, md, activity } = connection.lanes[step.candidate.lane]!;
  const path: ShortPath = { bytesMax: step.bytesMax, endpoint, part: rkey.parts[md.index]!, activity };
  // If this processor accesses the remote memory directly, the operation ends in the call, mapped or not.
  const endsInCall = (iface.attributes.flags & IfaceFlag.CPU_ACCESS) !== 0;
  if (operation === Operation.GET) {
    if (endsInCall) rkey.shortGet = path;
    return;
  }
  if (endsInCall || !isMapped) rkey.shortPut = path;
  if (endsInCall || isMapped) rkey.shortPutMapped = path;
}

/** The plan without messages, which UCX_PROTO_EMULATION_ENABLE excludes. */
function withoutEmulation(plan: Plan, lane: number): Plan {
  const reason = 'software emulation is disabled by UCX_PROTO_EMULATION_ENABLE';
  return { ...plan, rejected: [...plan.rejected, { lane, protocol: Protocol.SOFTWARE, reason }] };
}

/** The path from an interface to the memory of its part of a key, if the interface knows it. */
function pathTo(iface: Iface, part: UctRemoteKey | undefined): RemotePath | undefined {
  return part === undefined ? undefined : iface.remotePath?.(part);
}

/** The message lane, for selection. */
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
  const path = `windows as put-pipeline over ${nameOf(lanes[windows.lane]!.iface.attributes)}`;
  const note = windows.note === undefined ? path : `${path}, ${windows.note}`;
  return { lane, latencyNs, bandwidth: hostToHost, note };
}

/**
 * The candidate for a size.
 * @throws UcxError ERR_UNREACHABLE
 */
export function chooseCandidate(plan: Plan, { operation, local, rkey }: Planned, bytes: number): Candidate {
  const candidate = candidateFor(plan, bytes);
  if (candidate !== undefined) return candidate;
  const from = memoryTypeName(local instanceof Uint8Array ? HOST_PLACE.memoryType : local.memoryType);
  const reasons = reasonsOf(plan, rkey);
  throw new UcxError({
    code: 'ERR_UNREACHABLE',
    status: Status.UNREACHABLE,
    message: `no transport can ${OPERATION_NAMES[operation]} ${bytes} bytes between local ${from} and remote ${memoryTypeName(rkey.memoryType)} memory (${reasons})`,
    details: { operation: OPERATION_NAMES[operation], bytes, reasons },
  });
}

/** Why no other candidates move the memory of a key, for users: the reasons that explain() lists. */
export function reasonsOf(plan: Plan, rkey: RemoteKey): string {
  // Keys of other connections were rejected before.
  const { lanes, unreachable } = rkey.owner as Connection;
  const reasons = new Set([
    ...plan.rejected.map(({ lane, reason }) => `${nameOf(lanes[lane]!.iface.attributes)}: ${reason}`),
    ...unreachable.map(({ name, reason }) => `${name}: ${reason}`),
  ]);
  return [...reasons].join('; ');
}

/** The lane for windows to the memory of a key, and their cost; undefined if messages carry them. See {@link pipelinePlan}. */
function pipelineLane(
  connection: Pick<Connection, 'lanes' | 'distanceOf'>,
  rkey: Pick<RemoteKey, 'memoryType' | 'parts'>,
  local: MemoryPlace,
): Candidate | undefined {
  const best = pipelinePlan(connection, rkey, local).steps.at(-1)?.candidate;
  return movesLong(best) ? best : undefined;
}

/**
 * The plan for windows to the memory of a key.
 * @param local place of the bytes: memory other than host memory goes through fragments
 */
export function pipelinePlan(
  { lanes, distanceOf }: Pick<Connection, 'lanes' | 'distanceOf'>,
  rkey: Pick<RemoteKey, 'memoryType' | 'parts'>,
  local: MemoryPlace,
): Plan {
  const isRemoteHost = rkey.memoryType === MemoryType.HOST;
  const isLocalHost = local.memoryType === MemoryType.HOST;
  const capabilities = lanes.map(({ iface, md }) => ({
    attributes: iface.attributes,
    distance: laneDistance(distanceOf, { iface }, local.sysDevice),
    hasRemoteKey: isRemoteHost ? rkey.parts[md.index] !== undefined : hasFragments(md),
    hasLocalMemory: isLocalHost || hasFragments(md),
    registerCost: undefined,
  }));
  return selectProtocols({ operation: Operation.PUT, local: HOST_PLACE, remote: HOST_PLACE }, capabilities);
}

/** True if fragments have a registration in a memory domain: it registers host memory, or allocates memory that peers map. */
function hasFragments({ md: { attributes } }: OpenMd): boolean {
  const { flags, allocateMemoryTypes, registerMemoryTypes } = attributes;
  const types = (flags & MdFlag.RKEY_PTR) === 0 ? registerMemoryTypes : allocateMemoryTypes;
  return hasMemoryType(types, MemoryType.HOST);
}

/**
 * From this length on, one copy between the processors, with an offer and a reply, takes less time than two copies through a ring, for which each cache
 * line moves between the processors twice (docs/BENCHMARKS.md).
 */
export const READ_BYTES = 32_768;

/** Minimum length of tagged messages from this memory that are sent by rendezvous; Infinity if only the frame size limits eager messages. */
export function rendezvousFrom(context: ContextCore, connection: Connection, memory: LocalMemory): number {
  const { rendezvousThreshold, lanes } = connection;
  if (rendezvousThreshold !== Number.POSITIVE_INFINITY || !isReadScheme(context.scheme)) return rendezvousThreshold;
  const handle = memory instanceof MemoryHandle ? memory : context.memory.handleOf(memory);
  // Memory that is not mapped would be registered for each message, which costs more than the copy.
  if (handle === undefined || (handle.access & MemAccess.REMOTE_GET) === 0) return rendezvousThreshold;
  const isReached = lanes.some(
    ({ iface, md }) => (iface.attributes.flags & IfaceFlag.CPU_ACCESS) !== 0 && hasKeyPart(handle, md.index),
  );
  return isReached ? READ_BYTES : rendezvousThreshold;
}
