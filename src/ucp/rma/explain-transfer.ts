/** The explanation of operations on a connection: gathers what there is to explain. The text is made in proto/explain.ts. */

import { hasMemoryType, MemoryType, memoryTypeName } from '../../ucs/memory/memory-type.ts';
import { invalidParam } from '../../ucs/type/error.ts';
import { MdFlag } from '../../uct/api/memory-domain.ts';
import { EXPLAINED_OPERATIONS, type ExplainedOperation } from '../api/endpoint.ts';
import type { ExplainedChoice } from '../api/explanation.ts';
import { checkLocal } from '../api/local-bytes.ts';
import { checkRemote } from '../api/owned-remote-key.ts';
import type { PeerConnection } from '../base/peer-connection.ts';
import type { Lane } from '../lane/lane.ts';
import { nameOf } from '../lane/lanes.ts';
import { divisionNote, type RailLimits } from '../lane/rails.ts';
import type { Thresholds } from '../lane/thresholds.ts';
import { HOST_PLACE, type LocalMemory, MemoryHandle } from '../mem/memory-handle.ts';
import type { RemoteKey } from '../mem/remote-key.ts';
import { explainPlan, explanationOf } from '../proto/explain.ts';
import { explainAtomics, explainMessages } from '../proto/explain-messages.ts';
import type { ExplainedCandidate } from '../proto/explain-size.ts';
import type { ProtocolInfo } from '../proto/protocol-info.ts';
import { type Candidate, Operation, type Plan, Protocol, selectProtocols } from '../proto/selection.ts';
import type { RendezvousScheme } from '../resources/config.ts';
import { pipelinePlan } from './pipeline-lane.ts';
import { planFor } from './plan.ts';

/** What is asked of the context. */
export interface ExplainContext {
  readonly thresholds: Thresholds;
  readonly scheme: RendezvousScheme;
  readonly rails: RailLimits;
  readonly rmaRails: RailLimits;
}

/**
 * Explains an operation between these memories.
 * @throws UcxError ERR_INVALID_PARAM, ERR_CLOSED
 */
export function explainTransfer(
  context: ExplainContext,
  connection: PeerConnection,
  operation: ExplainedOperation,
  local: LocalMemory,
  rkey: RemoteKey,
): ExplainedChoice {
  checkLocal(context, local, 0, 0);
  checkRemote(connection, rkey, 0, 0);
  if (!EXPLAINED_OPERATIONS.includes(operation)) {
    throw invalidParam('operation', `must be one of ${EXPLAINED_OPERATIONS.join(', ')}`, operation);
  }
  if (operation === 'put') return explainRma(context, connection, Operation.PUT, local, rkey);
  if (operation === 'get') return explainRma(context, connection, Operation.GET, local, rkey);
  const localType = local instanceof MemoryHandle ? local.memoryType : MemoryType.HOST;
  const title = { operation, local: memoryTypeName(localType), remote: memoryTypeName(rkey.memoryType) };
  const moves = explainRma(context, connection, Operation.PUT, local, rkey);
  // What nothing moves, no message moves either.
  if (moves.chosen.length === 0) return explanationOf(title, { candidates: [], steps: [], rejected: moves.rejected });
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
    ...thresholdsFor(context, connection),
    isHost: localType === MemoryType.HOST,
    data: bulkOf(context, connection, local, rkey),
  });
}

/** Tells UCX_PROTO_INFO how messages and streams from host memory go over a new connection. */
export function tellMessageProtocols(context: ExplainContext, connection: PeerConnection, info: ProtocolInfo): void {
  if (connection.am === undefined) return;
  const lanes = connection.lanes.map(({ iface: { attributes } }) => ({ attributes, hasRemoteKey: true }));
  const host = memoryTypeName(MemoryType.HOST);
  for (const operation of ['tag', 'am', 'stream'] as const) {
    info.chosen(
      connection.lanes.map(({ iface }) => nameOf(iface.attributes)),
      () =>
        explainMessages(operation, {
          title: { operation, local: host, remote: host },
          lanes,
          messageLane: connection.lanes.findIndex(({ endpoint }) => endpoint === connection.am),
          ...thresholdsFor(context, connection),
          isHost: true,
          data: bulkOfHost(context, connection),
          unavailable: [],
        }),
    );
  }
}

function thresholdsFor(
  { thresholds }: ExplainContext,
  { rendezvousThreshold }: PeerConnection,
): { readonly rendezvousThreshold: number; readonly bcopyThreshold: number } {
  return { rendezvousThreshold, bcopyThreshold: thresholds.bcopy };
}

/** What the bytes of a rendezvous between host memory would be read by, if both ends register it alike. */
function bulkOfHost({ scheme, rails }: ExplainContext, { lanes }: PeerConnection): ExplainedCandidate | undefined {
  if (scheme === 'am') return undefined;
  const capabilities = lanes.map(({ iface, md }) => ({
    attributes: iface.attributes,
    // Memory domains whose memory peers map have keys of what they allocated only.
    hasRemoteKey:
      hasMemoryType(md.md.attributes.registerMemoryTypes, MemoryType.HOST) &&
      (md.md.attributes.flags & MdFlag.RKEY_PTR) === 0,
    hasLocalMemory: true,
    registerCost: md.md.attributes.registerCost,
  }));
  const plan = selectProtocols(Operation.GET, HOST_PLACE, HOST_PLACE, capabilities);
  return zcopyOf(divided(plan, lanes, rails).steps.at(-1)?.candidate, lanes);
}

function explainRma(
  { rmaRails }: ExplainContext,
  connection: PeerConnection,
  operation: Operation,
  local: LocalMemory,
  rkey: RemoteKey,
): ExplainedChoice {
  const { lanes } = connection;
  return explainPlan({
    operation,
    localType: local instanceof MemoryHandle ? local.memoryType : MemoryType.HOST,
    remoteType: rkey.memoryType,
    plan: divided(planFor(operation, local, rkey, connection), lanes, rmaRails),
    resources: lanes.map(({ iface }) => iface.attributes.resource),
    unavailable: connection.unreachable,
  });
}

/** A plan whose last step says between which devices it is divided, if it is. */
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

/** What carries long puts between these memories, and so the bytes of a rendezvous; undefined if only messages do. */
function bulkOf(
  { scheme, rails }: ExplainContext,
  connection: PeerConnection,
  local: LocalMemory,
  rkey: RemoteKey,
): ExplainedCandidate | undefined {
  if (scheme === 'am') return undefined;
  const { lanes } = connection;
  const plan = divided(planFor(Operation.PUT, local, rkey, connection), lanes, rails);
  const direct = zcopyOf(plan.steps.at(-1)?.candidate, lanes);
  if (direct !== undefined) return scheme === 'put_ppln' ? { ...direct, protocol: 'put-pipeline' } : direct;
  const place = local instanceof MemoryHandle ? local : HOST_PLACE;
  const windows = zcopyOf(divided(pipelinePlan(connection, rkey, place), lanes, rails).steps.at(-1)?.candidate, lanes);
  return windows?.protocol === 'zcopy' ? { ...windows, protocol: 'put-pipeline' } : undefined;
}

function zcopyOf(candidate: Candidate | undefined, lanes: readonly Lane[]): ExplainedCandidate | undefined {
  if (candidate === undefined || candidate.protocol === Protocol.SOFTWARE) return undefined;
  return { ...candidate, transport: nameOf(lanes[candidate.lane]!.iface.attributes), protocol: 'zcopy' };
}
