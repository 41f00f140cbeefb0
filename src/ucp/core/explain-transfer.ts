/** The explanation of operations on a connection: gathers what there is to explain. The text is made in proto/explain.ts. */

import { invalidParam } from '../../ucs/error.ts';
import { hasMemoryType, MemoryType, memoryTypeName } from '../../ucs/memory-type.ts';
import { MdFlag } from '../../uct/api/memory-domain.ts';
import { EXPLAINED_OPERATIONS, type ExplainedOperation } from '../api/endpoint.ts';
import type { ExplainedChoice } from '../api/explanation.ts';
import { checkLocal } from '../api/local-bytes.ts';
import { HOST_PLACE, type LocalMemory, MemoryHandle } from '../mem/memory-handle.ts';
import type { RemoteKey } from '../mem/remote-key.ts';
import { explainPlan } from '../proto/explain.ts';
import { explainAtomics, explainMessages } from '../proto/explain-messages.ts';
import type { ExplainedCandidate } from '../proto/explain-size.ts';
import { type Candidate, Operation, Protocol, selectProtocols } from '../proto/selection.ts';
import { checkRemote, planFor } from '../rma/put-get.ts';
import { pipelineLane } from '../rndv/pipeline-lane.ts';
import { nameOf } from '../wireup/lanes.ts';
import type { RendezvousScheme } from './config.ts';
import type { Lane } from './lane.ts';
import type { PeerConnection } from './peer-connection.ts';
import type { ProtocolInfo } from './protocol-info.ts';
import type { Thresholds } from './thresholds.ts';

/** What is asked of the context. */
export interface ExplainContext {
  readonly thresholds: Thresholds;
  readonly scheme: RendezvousScheme;
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
  if (operation === 'put') return explainRma(connection, Operation.PUT, local, rkey);
  if (operation === 'get') return explainRma(connection, Operation.GET, local, rkey);
  const localType = local instanceof MemoryHandle ? local.memoryType : MemoryType.HOST;
  const lanes = connection.lanes.map(({ iface, md }) => {
    return { attributes: iface.attributes, hasRemoteKey: rkey.parts[md.index] !== undefined };
  });
  const messages = connection.lanes.findIndex(({ endpoint }) => endpoint === connection.am);
  const choice = {
    title: { operation, local: memoryTypeName(localType), remote: memoryTypeName(rkey.memoryType) },
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
    data: bulkOf(context.scheme, connection, local, rkey),
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
          data: bulkOfHost(context.scheme, connection),
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
function bulkOfHost(scheme: RendezvousScheme, { lanes }: PeerConnection): ExplainedCandidate | undefined {
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
  const { steps } = selectProtocols(Operation.GET, HOST_PLACE, HOST_PLACE, capabilities);
  return zcopyOf(steps.at(-1)?.candidate, lanes);
}

function explainRma(
  connection: PeerConnection,
  operation: Operation,
  local: LocalMemory,
  rkey: RemoteKey,
): ExplainedChoice {
  return explainPlan({
    operation,
    localType: local instanceof MemoryHandle ? local.memoryType : MemoryType.HOST,
    remoteType: rkey.memoryType,
    plan: planFor(operation, local, rkey, connection),
    resources: connection.lanes.map(({ iface }) => iface.attributes.resource),
    unavailable: connection.unreachable,
  });
}

/** What long puts between these memories go by, the way of the bytes of a rendezvous; undefined where only messages reach. */
function bulkOf(
  scheme: RendezvousScheme,
  connection: PeerConnection,
  local: LocalMemory,
  rkey: RemoteKey,
): ExplainedCandidate | undefined {
  if (scheme === 'am') return undefined;
  const { lanes } = connection;
  const direct = zcopyOf(planFor(Operation.PUT, local, rkey, connection).steps.at(-1)?.candidate, lanes);
  if (direct !== undefined) return scheme === 'put_ppln' ? { ...direct, protocol: 'put-pipeline' } : direct;
  const isHost = !(local instanceof MemoryHandle) || local.memoryType === MemoryType.HOST;
  const windows = zcopyOf(pipelineLane(lanes, rkey, isHost), lanes);
  return windows === undefined ? undefined : { ...windows, protocol: 'put-pipeline' };
}

function zcopyOf(candidate: Candidate | undefined, lanes: readonly Lane[]): ExplainedCandidate | undefined {
  if (candidate === undefined || candidate.protocol === Protocol.MESSAGE) return undefined;
  return { ...candidate, transport: nameOf(lanes[candidate.lane]!.iface.attributes), protocol: 'zcopy' };
}
