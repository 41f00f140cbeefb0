/**
 * Collects the inputs for explanations of operations on a connection. For messages, predicts the protocol and lane that move the bytes of a rendezvous; the
 * rendezvous itself decides by the keys that it receives.
 */

import { EXPLAINED_OPERATIONS, type ExplainedOperation } from '../../api/contract/endpoint.ts';
import type { ExplainedChoice } from '../../api/contract/explanation.ts';
import { accessesOf } from '../../api/contract/memory.ts';
import { checkLocal } from '../../api/memory/local.ts';
import { checkRemote } from '../../api/memory/owned.ts';
import { Operation } from '../../api/operation/call.ts';
import { hasMemoryType, MemoryType, memoryTypeName } from '../../ucs/memory/memory-type.ts';
import { invalidParam } from '../../ucs/type/error.ts';
import { MdFlag, MemAccess } from '../../uct/api/memory-domain.ts';
import type { Connection } from '../base/connection.ts';
import type { ContextCore } from '../base/context-core.ts';
import { type Lane, laneDistance, nameOf } from '../lane/lanes.ts';
import { divisionNote, type RailLimits } from '../lane/rails.ts';
import { HOST_PLACE, hasKeyPart, type LocalMemory, MemoryHandle } from '../mem/memory-handle.ts';
import type { RemoteKey } from '../mem/remote-key.ts';
import {
  type ExplainedCandidate,
  explainAtomics,
  explainMessages,
  explainPlan,
  explanationOf,
} from '../proto/explain.ts';
import type { ProtocolInfo } from '../proto/protocol-info.ts';
import { type Candidate, movesLong, type Plan, selectProtocols } from '../proto/selection.ts';
import { isReadScheme } from '../resources/config.ts';
import type { OpenMd } from '../resources/resources.ts';
import { type Planned, pipelinePlan, planFor, rendezvousFrom } from '../transfer/plan.ts';

interface Memories {
  readonly local: LocalMemory;
  readonly rkey: RemoteKey;
}

/**
 * Explains an operation between these memories.
 * @throws UcxError ERR_INVALID_PARAM, ERR_CLOSED
 */
export function explainTransfer(
  context: ContextCore,
  connection: Connection,
  operation: ExplainedOperation,
  { local, rkey }: Memories,
): ExplainedChoice {
  const { ownAccess, remoteAccess } = accessesOf(operation);
  checkLocal(context, { local, localOffset: 0, byteLength: 0 }, ownAccess);
  checkRemote(connection, { rkey, remoteOffset: 0, byteLength: 0 }, remoteAccess);
  if (!EXPLAINED_OPERATIONS.includes(operation)) {
    throw invalidParam('operation', `must be one of ${EXPLAINED_OPERATIONS.join(', ')}`, operation);
  }
  const put = { operation: Operation.PUT, connection, local, rkey };
  if (operation === 'put') return explainRma(context, put);
  if (operation === 'get') return explainRma(context, { ...put, operation: Operation.GET });
  const localType = local instanceof MemoryHandle ? local.memoryType : MemoryType.HOST;
  const title = { operation, local: memoryTypeName(localType), remote: memoryTypeName(rkey.memoryType) };
  const moves = explainRma(context, put);
  // If puts between the memories are impossible, messages cannot move the bytes either.
  if (moves.chosen.length === 0 && connection.isEmulating)
    return explanationOf(title, { candidates: [], steps: [], rejected: moves.rejected });
  const lanes = connection.lanes.map(({ iface, md }) => {
    return { attributes: iface.attributes, hasRemoteKey: rkey.parts[md.index] !== undefined };
  });
  const messages = connection.lanes.findIndex(({ endpoint }) => endpoint === connection.am);
  const choice = {
    title,
    lanes,
    messageLane: messages < 0 ? undefined : messages,
    unavailable: connection.unreachable.map(({ name, reason }) => {
      return { transport: name, protocol: undefined, reason };
    }),
  };
  if (operation === 'atomic') return explainAtomics(choice);
  return explainMessages(operation, {
    ...choice,
    rendezvousThreshold:
      operation === 'tag' ? rendezvousFrom(context, connection, local) : connection.rendezvousThreshold,
    bcopyThreshold: context.thresholds.bcopy,
    isHost: localType === MemoryType.HOST,
    data: rendezvousOf(context, connection, local, rkey),
  });
}

/** Reports to UCX_PROTO_INFO how a new connection sends messages and streams from host memory that is not mapped. */
export function printMessageProtocols(context: ContextCore, connection: Connection, info: ProtocolInfo): void {
  if (connection.am === undefined) return;
  const names = connection.lanes.map(({ iface }) => nameOf(iface.attributes));
  for (const operation of HOST_MESSAGES) info.chosen(names, () => explainHostMessages(context, connection, operation));
}

/** Operations that send messages and streams. */
export const HOST_MESSAGES = ['tag', 'am', 'stream'] as const;

/** Explains messages or streams from host memory that is not mapped. */
export function explainHostMessages(
  context: ContextCore,
  connection: Connection,
  operation: (typeof HOST_MESSAGES)[number],
): ExplainedChoice {
  const host = memoryTypeName(MemoryType.HOST);
  return explainMessages(operation, {
    title: { operation, local: host, remote: host },
    lanes: connection.lanes.map(({ iface: { attributes } }) => ({ attributes, hasRemoteKey: true })),
    messageLane: connection.lanes.findIndex(({ endpoint }) => endpoint === connection.am),
    rendezvousThreshold: connection.rendezvousThreshold,
    bcopyThreshold: context.thresholds.bcopy,
    isHost: true,
    data: rendezvousOfHost(context, connection),
    unavailable: [],
  });
}

function explainRma({ rmaRails }: ContextCore, planned: Planned): ExplainedChoice {
  const { operation, connection, local, rkey } = planned;
  const { lanes } = connection;
  return explainPlan({
    operation,
    localType: local instanceof MemoryHandle ? local.memoryType : MemoryType.HOST,
    remoteType: rkey.memoryType,
    plan: divided(planFor(planned), lanes, rmaRails),
    resources: lanes.map(({ iface }) => iface.attributes.resource),
    unavailable: connection.unreachable,
  });
}

/** The candidate that moves the bytes from `local` to the memory of a key, with the protocol `get` or `put`; undefined if only messages can. */
function rendezvousOf(
  context: ContextCore,
  connection: Connection,
  local: LocalMemory,
  rkey: RemoteKey,
): ExplainedCandidate | undefined {
  const { scheme, rails } = context;
  if (scheme === 'am') return undefined;
  const { lanes } = connection;
  const source = local instanceof MemoryHandle ? local : context.memory.handleOf(local);
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
  const put = planFor({ operation: Operation.PUT, connection, local, rkey });
  const written = best(put, scheme === 'put_ppln' ? 'put-pipeline' : 'put');
  return written ?? best(pipelinePlan(connection, rkey, source ?? HOST_PLACE), 'put-pipeline');
}

/** The candidate that moves bytes between host memory that is not mapped, if both sides can register it. */
function rendezvousOfHost({ scheme, rails }: ContextCore, { lanes }: Connection): ExplainedCandidate | undefined {
  if (scheme === 'am') return undefined;
  const operation = isReadScheme(scheme) ? Operation.GET : Operation.PUT;
  const capabilities = lanes.map(({ iface, md }) => ({
    attributes: iface.attributes,
    hasRemoteKey: registersHost(md),
    hasLocalMemory: true,
    registerCost: md.md.attributes.registerCost,
  }));
  const plan = selectProtocols({ operation, local: HOST_PLACE, remote: HOST_PLACE }, capabilities);
  const protocol = operation === Operation.GET ? 'get' : scheme === 'put_ppln' ? 'put-pipeline' : 'put';
  return longOf(divided(plan, lanes, rails), lanes, protocol);
}

/** The plan with a note on its last step if large operations are divided between devices. */
function divided(plan: Plan, lanes: readonly Lane[], limits: RailLimits): Plan {
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

/** The plan by which the peer, with the same kinds of lanes, reads memory of this side into the memory of its key. */
function readPlan({ lanes, distanceOf }: Connection, source: MemoryHandle | undefined, rkey: RemoteKey): Plan {
  const capabilities = lanes.map(({ iface, md }) => ({
    attributes: iface.attributes,
    distance: laneDistance(distanceOf, { iface }, source?.sysDevice),
    hasRemoteKey: source === undefined ? registersHost(md) : hasKeyPart(source, md.index),
    hasLocalMemory: rkey.memoryType === MemoryType.HOST || rkey.parts[md.index] !== undefined,
    registerCost: undefined,
  }));
  return selectProtocols({ operation: Operation.GET, local: rkey, remote: source ?? HOST_PLACE }, capabilities);
}

/** True if a memory domain has keys for any host memory. A memory domain whose memory peers map has keys only for its own allocations. */
function registersHost({ md: { attributes } }: OpenMd): boolean {
  return hasMemoryType(attributes.registerMemoryTypes, MemoryType.HOST) && (attributes.flags & MdFlag.RKEY_PTR) === 0;
}

function longOf(plan: Plan, lanes: readonly Lane[], protocol: string): ExplainedCandidate | undefined {
  const candidate = plan.steps.at(-1)?.candidate;
  if (!movesLong(candidate)) return undefined;
  return { ...candidate, transport: nameOf(lanes[candidate.lane]!.iface.attributes), protocol };
}
