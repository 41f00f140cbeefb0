/** Predicts the candidate that moves the bytes of a rendezvous, for explanations. The rendezvous itself decides by the keys that it receives. */

import { hasMemoryType, MemoryType } from '../../ucs/memory/memory-type.ts';
import { MdFlag, MemAccess } from '../../uct/api/memory-domain.ts';
import type { PeerConnection } from '../base/peer-connection.ts';
import type { Lane } from '../lane/lane.ts';
import { laneDistance } from '../lane/lane-distance.ts';
import { nameOf } from '../lane/lanes.ts';
import { divisionNote, type RailLimits } from '../lane/rails.ts';
import { HOST_PLACE, hasKeyPart, type LocalMemory, MemoryHandle } from '../mem/memory-handle.ts';
import type { RemoteKey } from '../mem/remote-key.ts';
import type { ExplainedCandidate } from '../proto/explain-size.ts';
import { type Candidate, movesLong, Operation, type Plan, selectProtocols } from '../proto/selection.ts';
import { isReadScheme, type RendezvousScheme } from '../resources/config.ts';
import type { OpenMd } from '../resources/resources.ts';
import { pipelinePlan } from './pipeline-lane.ts';
import { planFor } from './plan.ts';

/** The part of the context that is used here. */
export interface RendezvousContext {
  readonly scheme: RendezvousScheme;
  readonly rails: RailLimits;
  /** The mapped memory that host memory is part of. */
  handleOf(bytes: Uint8Array): MemoryHandle | undefined;
}

/** The candidate that moves the bytes from `local` to the memory of a key, with the protocol `get` or `put`; undefined if only messages move them. */
export function rendezvousOf(
  context: RendezvousContext,
  connection: PeerConnection,
  local: LocalMemory,
  rkey: RemoteKey,
): ExplainedCandidate | undefined {
  const { scheme, rails } = context;
  if (scheme === 'am') return undefined;
  const { lanes } = connection;
  const source = local instanceof MemoryHandle ? local : context.handleOf(local);
  const best = (plan: Plan, protocol: string): ExplainedCandidate | undefined =>
    longOf(divided(plan, lanes, rails), lanes, protocol);
  // A message contains a key only if the memory is mapped for the access of the peer.
  const isReadable = source === undefined || (source.access & MemAccess.REMOTE_GET) !== 0;
  const read = isReadScheme(scheme) && isReadable ? best(readPlan(connection, source, rkey), 'get') : undefined;
  if (read !== undefined) return read;
  if ((rkey.access & MemAccess.REMOTE_PUT) === 0) {
    const isHost = rkey.memoryType === MemoryType.HOST;
    return isHost ? undefined : best(pipelinePlan(connection, rkey, source ?? HOST_PLACE), 'put-pipeline');
  }
  const written = best(planFor(Operation.PUT, local, rkey, connection), scheme === 'put_ppln' ? 'put-pipeline' : 'put');
  return written ?? best(pipelinePlan(connection, rkey, source ?? HOST_PLACE), 'put-pipeline');
}

/** The candidate that moves bytes between host memory that is not mapped, if both ends register it in the same way. */
export function rendezvousOfHost(
  { scheme, rails }: RendezvousContext,
  { lanes }: PeerConnection,
): ExplainedCandidate | undefined {
  if (scheme === 'am') return undefined;
  const operation = isReadScheme(scheme) ? Operation.GET : Operation.PUT;
  const capabilities = lanes.map(({ iface, md }) => ({
    attributes: iface.attributes,
    hasRemoteKey: registersHost(md),
    hasLocalMemory: true,
    registerCost: md.md.attributes.registerCost,
  }));
  const plan = selectProtocols(operation, HOST_PLACE, HOST_PLACE, capabilities);
  const protocol = operation === Operation.GET ? 'get' : scheme === 'put_ppln' ? 'put-pipeline' : 'put';
  return longOf(divided(plan, lanes, rails), lanes, protocol);
}

/** A plan whose last step says between which devices it is divided, if it is. */
export function divided(plan: Plan, lanes: readonly Lane[], limits: RailLimits): Plan {
  const last = plan.steps.at(-1);
  const division = divisionNote(plan, lanes, limits);
  if (last === undefined || division === undefined) return plan;
  const { candidate } = last;
  const note = candidate.note === undefined ? division : `${candidate.note}, ${division}`;
  const noted = { ...candidate, note };
  const instead = (other: Candidate): Candidate => (other === candidate ? noted : other);
  return {
    ...plan,
    candidates: plan.candidates.map(instead),
    steps: plan.steps.map((step) => ({ ...step, candidate: instead(step.candidate) })),
  };
}

/** The plan by which the peer, with lanes like these, reads memory of this side into the memory of its key. */
function readPlan({ lanes, distanceOf }: PeerConnection, source: MemoryHandle | undefined, rkey: RemoteKey): Plan {
  const capabilities = lanes.map(({ iface, md }) => ({
    attributes: iface.attributes,
    distance: laneDistance(distanceOf, { iface }, source?.sysDevice),
    hasRemoteKey: source === undefined ? registersHost(md) : hasKeyPart(source, md.index),
    hasLocalMemory: rkey.memoryType === MemoryType.HOST || rkey.parts[md.index] !== undefined,
    registerCost: undefined,
  }));
  return selectProtocols(Operation.GET, rkey, source ?? HOST_PLACE, capabilities);
}

/** Whether a memory domain has keys for any host memory: one whose memory peers map has keys only for its own allocations. */
function registersHost({ md: { attributes } }: OpenMd): boolean {
  return hasMemoryType(attributes.registerMemoryTypes, MemoryType.HOST) && (attributes.flags & MdFlag.RKEY_PTR) === 0;
}

function longOf(plan: Plan, lanes: readonly Lane[], protocol: string): ExplainedCandidate | undefined {
  const candidate = plan.steps.at(-1)?.candidate;
  if (!movesLong(candidate)) return undefined;
  return { ...candidate, transport: nameOf(lanes[candidate.lane]!.iface.attributes), protocol };
}
