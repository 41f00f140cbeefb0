/**
 * The choice of protocol and lane for put and get: a pure function of the operation, the memory on both sides and the capabilities of the lanes. The
 * same input gives the same plan.
 *
 * Every protocol of every lane has a cost that is linear in the size over a range of sizes. The plan is the lower envelope of those lines;
 * equal costs go to the earlier lane.
 */

import { Operation } from '../../api/operation/call.ts';
import { hasMemoryType, MemoryType, memoryTypeMaskNames, memoryTypeName } from '../../ucs/memory/memory-type.ts';
import type { Distance } from '../../ucs/sys/topology.ts';
import { DeviceType, type IfaceAttributes, IfaceFlag, type RemotePath } from '../../uct/api/iface.ts';
import type { LinearCost } from '../../uct/api/memory-domain.ts';

export const Protocol = {
  SHORT: 0,
  ZCOPY: 1,
  /** The peer's worker moves the bytes in messages: for memory that no transport reaches. */
  SOFTWARE: 2,
} as const;
export type Protocol = (typeof Protocol)[keyof typeof Protocol];

/** Names shown to users, as in `put/short`. */
export const OPERATION_NAMES = ['put', 'get'] as const;
export const PROTOCOL_NAMES = ['short', 'zcopy', 'am'] as const;

/** The location of memory, for selection. */
export interface MemoryPlace {
  readonly memoryType: MemoryType;
  readonly sysDevice: number | undefined;
}

/** A lane, for selection. */
export interface LaneCapabilities {
  readonly attributes: IfaceAttributes;
  /** True if the remote key has a part for the memory domain of this lane. */
  readonly hasRemoteKey: boolean;
  /** True if the local memory is, or can be, registered with the memory domain of this lane. */
  readonly hasLocalMemory: boolean;
  /** Why it cannot be registered, if known. */
  readonly localReason?: string | undefined;
  /** Cost of the registration; undefined if it is registered already or needs no registration. */
  readonly registerCost: LinearCost | undefined;
  /** The path to the remote memory, if the interface knows more than its attributes describe. */
  readonly path?: RemotePath | undefined;
  /** The path between the lane's device and the local memory's device, if known: its latency is added, and its bandwidth is an upper bound. */
  readonly distance?: (Distance & { readonly to: number }) | undefined;
}

/** A protocol on a lane for a range of sizes. */
export interface Candidate {
  /** Index of the lane. */
  readonly lane: number;
  readonly protocol: Protocol;
  readonly bytesMin: number;
  /** Inclusive. */
  readonly bytesMax: number;
  /** Cost in nanoseconds: `fixedNs + bytes * perByteNs`. */
  readonly fixedNs: number;
  readonly perByteNs: number;
  /** A factor of the estimate besides the attributes of the lane, as text for users. */
  readonly note?: string | undefined;
}

/** A lane or protocol that cannot be used, and why. */
export interface RejectedCandidate {
  readonly lane: number;
  readonly protocol: Protocol | undefined;
  readonly reason: string;
}

/** One row of a plan: the candidate for sizes up to `bytesMax` (inclusive). */
export interface PlanStep {
  readonly bytesMax: number;
  readonly candidate: Candidate;
}

/** The result of selection. */
export interface Plan {
  /** By increasing size; empty if no candidate exists. Sizes below the first and above the last step have no candidate. */
  readonly steps: readonly PlanStep[];
  readonly candidates: readonly Candidate[];
  readonly rejected: readonly RejectedCandidate[];
}

/** Cost per byte of copying a short message into the packet. */
const SHORT_COPY_NS_PER_BYTE = 0.1;
/** Fixed cost of a single-fragment protocol, as in UCX (UCP_PROTO_OVERHEAD_SINGLE 5 ns). */
const SINGLE_OVERHEAD_NS = 5;
const NS_PER_S = 1e9;

/** The message lane, over which the workers of both sides move bytes that no lane can move. */
export interface MessageLane {
  /** Index of the lane. */
  readonly lane: number;
  /** Time of one message. */
  readonly latencyNs: number;
  /** Bandwidth of messages in bytes per second. */
  readonly bandwidth: number;
  /** The rest of the path, as text for users. */
  readonly note?: string | undefined;
}

/** Messages before the first byte moves: request, reply, data. */
const SOFTWARE_MESSAGES = 3;
/** Time of a worker for one message: it replies when it makes progress, possibly only after an event wakes it. */
export const MESSAGE_OVERHEAD_NS = 20_000;

/** A put or get, with the places of its memories. */
export interface Sides {
  readonly operation: Operation;
  readonly local: MemoryPlace;
  readonly remote: MemoryPlace;
}

/**
 * Chooses the protocol and lane for every size. Pure.
 * @param messages undefined if the peer accepts no messages, or cannot find the memory of the key
 * @param zcopyThreshold size from which zero copy is chosen if there is a choice, and below which it is not; undefined to choose by cost
 */
export function selectProtocols(
  sides: Sides,
  lanes: readonly LaneCapabilities[],
  messages?: MessageLane,
  zcopyThreshold?: number,
): Plan {
  const candidates: Candidate[] = [];
  const rejected: RejectedCandidate[] = [];
  for (const [index, lane] of lanes.entries()) {
    const reason = unusableReason(lane, sides.local, sides.remote);
    if (reason === undefined) addCandidates(sides, lane, index, { candidates, rejected });
    else rejected.push({ lane: index, protocol: undefined, reason });
  }
  if (messages !== undefined) candidates.push(messageCandidate(messages));
  return { steps: lowerEnvelope(candidates, zcopyThreshold), candidates, rejected };
}

function messageCandidate({ lane, latencyNs, bandwidth, note }: MessageLane): Candidate {
  return {
    lane,
    protocol: Protocol.SOFTWARE,
    bytesMin: 1,
    bytesMax: Number.MAX_SAFE_INTEGER,
    fixedNs: SOFTWARE_MESSAGES * (latencyNs + MESSAGE_OVERHEAD_NS),
    // Four steps: into fragments, into messages, out of messages, out of fragments.
    perByteNs: (4 * NS_PER_S) / bandwidth,
    ...(note === undefined ? {} : { note }),
  };
}

/** Why a lane cannot move bytes between these places; undefined if it can. */
function unusableReason(lane: LaneCapabilities, local: MemoryPlace, remote: MemoryPlace): string | undefined {
  const { attributes } = lane;
  const { localMemoryTypes, remoteMemoryTypes, requiredMemoryTypes } = attributes;
  if (!hasMemoryType(localMemoryTypes, local.memoryType))
    return `does not reach local ${memoryTypeName(local.memoryType)} memory`;
  if (!hasMemoryType(remoteMemoryTypes, remote.memoryType)) {
    return `does not reach remote ${memoryTypeName(remote.memoryType)} memory`;
  }
  const required =
    requiredMemoryTypes === 0 ||
    hasMemoryType(requiredMemoryTypes, local.memoryType) ||
    hasMemoryType(requiredMemoryTypes, remote.memoryType);
  if (!required)
    return `works only if the local or the remote memory is ${memoryTypeMaskNames(requiredMemoryTypes)} memory`;
  const own = attributes.resource.sysDevice;
  for (const [side, place] of [
    ['local', local],
    ['remote', remote],
  ] as const) {
    if (side === 'remote' && attributes.reachesOtherDevices) continue;
    // On the local side, the engine of a card reaches only memory of that card; other devices reach all memory that is registered with them.
    if (side === 'local' && attributes.resource.deviceType !== DeviceType.ACC) continue;
    if (place.sysDevice !== undefined && place.sysDevice !== own) {
      return `reaches only memory of device ${own ?? 'none'}, but the ${side} memory is on device ${place.sysDevice}`;
    }
  }
  if (lane.path?.bandwidthShare === 0) return `cannot reach the remote memory: ${lane.path.note}`;
  if (!lane.hasRemoteKey) return 'the remote key has no part for its memory domain';
  if (!lane.hasLocalMemory) {
    const why = lane.localReason === undefined ? '' : `: ${lane.localReason}`;
    return `the local memory is not registered with its memory domain${why}`;
  }
  return undefined;
}

function addCandidates(
  { operation, local, remote }: Sides,
  { attributes, registerCost, path, distance }: LaneCapabilities,
  lane: number,
  { candidates, rejected }: { readonly candidates: Candidate[]; readonly rejected: RejectedCandidate[] },
): void {
  const isPut = operation === Operation.PUT;
  const limits = isPut ? attributes.put : attributes.get;
  const { performance, flags } = attributes;
  const own = bandwidthOf(attributes, isPut ? local : remote, isPut ? remote : local) * (path?.bandwidthShare ?? 1);
  const perByteNs = NS_PER_S / Math.min(own, distance?.bandwidth ?? own);
  const notes = [path?.note, distance === undefined ? undefined : distanceNote(distance)].filter(
    (text) => text !== undefined,
  );
  const note = notes.length === 0 ? {} : { note: notes.join(', ') };
  const fixedNs = performance.latencyNs + (distance?.latencyNs ?? 0) + performance.overheadNs + SINGLE_OVERHEAD_NS;
  const hasShort = (flags & (isPut ? IfaceFlag.PUT_SHORT : IfaceFlag.GET_SHORT)) !== 0;
  if (!hasShort) {
    rejected.push({
      lane,
      protocol: Protocol.SHORT,
      reason: attributes.limitation ?? 'does not support short operations',
    });
  } else if (local.memoryType !== MemoryType.HOST) {
    rejected.push({ lane, protocol: Protocol.SHORT, reason: 'short operations need local host memory' });
  } else if (remote.memoryType === MemoryType.HOST && performance.hostToHost === 0) {
    rejected.push({ lane, protocol: Protocol.SHORT, reason: 'short operations need remote device memory' });
  } else {
    // If this CPU accesses the remote memory directly, the copy is the transfer itself and costs nothing more.
    const perByte = perByteNs + ((flags & IfaceFlag.CPU_ACCESS) === 0 ? SHORT_COPY_NS_PER_BYTE : 0);
    const bytesMax = limits.shortBytesMax;
    candidates.push({ lane, protocol: Protocol.SHORT, bytesMin: 1, bytesMax, fixedNs, perByteNs: perByte, ...note });
  }
  const hasZcopy = (flags & (isPut ? IfaceFlag.PUT_ZCOPY : IfaceFlag.GET_ZCOPY)) !== 0;
  if (!hasZcopy) {
    rejected.push({
      lane,
      protocol: Protocol.ZCOPY,
      reason: attributes.limitation ?? 'does not support zero-copy operations',
    });
    return;
  }
  candidates.push({
    lane,
    protocol: Protocol.ZCOPY,
    bytesMin: Math.max(1, limits.zcopyBytesMin),
    bytesMax: limits.zcopyBytesMax,
    fixedNs: fixedNs + performance.zcopyOverheadNs + (registerCost?.overheadNs ?? 0),
    perByteNs: perByteNs + (registerCost?.perByteNs ?? 0),
    ...note,
  });
}

/** Describes a distance for users. */
function distanceNote({ kind, latencyNs, bandwidth, to }: NonNullable<LaneCapabilities['distance']>): string {
  const common = `${kind} in common with device ${to}`;
  if (bandwidth === Number.POSITIVE_INFINITY) return common;
  return `${common}: ${latencyNs} ns more, at most ${(bandwidth / 1e9).toFixed(2)} GB/s`;
}

function bandwidthOf({ performance }: IfaceAttributes, from: MemoryPlace, to: MemoryPlace): number {
  const fromHost = from.memoryType === MemoryType.HOST;
  const toHost = to.memoryType === MemoryType.HOST;
  if (fromHost && toHost) return performance.hostToHost;
  if (fromHost) return performance.hostToDevice;
  return toHost ? performance.deviceToHost : performance.deviceToDevice;
}

/** The cheapest candidate for every size, with as few steps as possible. */
function lowerEnvelope(candidates: readonly Candidate[], zcopyThreshold: number | undefined): PlanStep[] {
  const starts = new Set<number>();
  if (zcopyThreshold !== undefined && zcopyThreshold < Number.MAX_SAFE_INTEGER) starts.add(zcopyThreshold);
  for (const [index, candidate] of candidates.entries()) {
    starts.add(candidate.bytesMin);
    if (candidate.bytesMax < Number.MAX_SAFE_INTEGER) starts.add(candidate.bytesMax + 1);
    for (const other of candidates.slice(index + 1)) {
      const crossing = (other.fixedNs - candidate.fixedNs) / (candidate.perByteNs - other.perByteNs);
      // The cheaper candidate changes at the crossing, or just behind it if both cost the same there. Its neighbours are starts too, so that rounding does
      // not matter.
      if (crossing > 0 && crossing < Number.MAX_SAFE_INTEGER - 3) {
        const below = Math.floor(crossing);
        starts
          .add(below)
          .add(below + 1)
          .add(below + 2);
      }
    }
  }
  const steps: PlanStep[] = [];
  const sorted = [...starts].filter((start) => start > 0).sort((left, right) => left - right);
  for (const [index, start] of sorted.entries()) {
    const best = cheapest(candidates, start, zcopyThreshold);
    if (best === undefined) continue;
    const next = sorted[index + 1];
    const bytesMax = next === undefined ? best.bytesMax : next - 1;
    if (steps.at(-1)?.candidate === best) steps.pop();
    steps.push({ bytesMax, candidate: best });
  }
  return steps;
}

function cheapest(
  candidates: readonly Candidate[],
  bytes: number,
  zcopyThreshold: number | undefined,
): Candidate | undefined {
  const able = candidates.filter(({ bytesMin, bytesMax }) => bytes >= bytesMin && bytes <= bytesMax);
  const wanted = able.filter(
    ({ protocol }) => zcopyThreshold === undefined || (protocol === Protocol.ZCOPY) === bytes >= zcopyThreshold,
  );
  let best: Candidate | undefined;
  for (const candidate of wanted.length > 0 ? wanted : able) {
    if (best === undefined || costNs(candidate, bytes) < costNs(best, bytes)) best = candidate;
  }
  return best;
}

/** True if a candidate alone moves ranges of any length, so that a rendezvous needs no messages for the data. */
export function movesLong(candidate: Candidate | undefined): candidate is Candidate {
  if (candidate === undefined || candidate.protocol === Protocol.SOFTWARE) return false;
  return candidate.protocol === Protocol.ZCOPY || candidate.bytesMax === Number.MAX_SAFE_INTEGER;
}

/** Estimated time of a transfer in nanoseconds. */
export function costNs(candidate: Candidate, bytes: number): number {
  return candidate.fixedNs + bytes * candidate.perByteNs;
}

/** The candidate of a plan for a size. */
export function candidateFor(plan: Plan, bytes: number): Candidate | undefined {
  const { steps } = plan;
  for (let i = 0; i < steps.length; i++) {
    const step = steps[i]!;
    if (bytes <= step.bytesMax) return bytes >= step.candidate.bytesMin ? step.candidate : undefined;
  }
  return undefined;
}
