/** The explanation of operations on a connection: collects its inputs. The text is made in proto/explain.ts. */

import { EXPLAINED_OPERATIONS, type ExplainedOperation } from '../../api/contract/endpoint.ts';
import type { ExplainedChoice } from '../../api/contract/explanation.ts';
import { accessesOf } from '../../api/contract/memory.ts';
import { checkLocal } from '../../api/memory/local.ts';
import { checkRemote } from '../../api/memory/owned.ts';
import { MemoryType, memoryTypeName } from '../../ucs/memory/memory-type.ts';
import { invalidParam } from '../../ucs/type/error.ts';
import type { PeerConnection } from '../base/peer-connection.ts';
import { rendezvousFrom } from '../base/read-threshold.ts';
import { nameOf } from '../lane/lanes.ts';
import type { RailLimits } from '../lane/rails.ts';
import type { Thresholds } from '../lane/thresholds.ts';
import { type LocalMemory, MemoryHandle } from '../mem/memory-handle.ts';
import type { RemoteKey } from '../mem/remote-key.ts';
import { explainPlan, explanationOf } from '../proto/explain.ts';
import { explainAtomics, explainMessages } from '../proto/explain-messages.ts';
import type { ProtocolInfo } from '../proto/protocol-info.ts';
import { Operation } from '../proto/selection.ts';
import { divided, type RendezvousContext, rendezvousOf, rendezvousOfHost } from './explain-rendezvous.ts';
import { planFor } from './plan.ts';

/** The part of the context that is used here. */
export interface ExplainContext extends RendezvousContext {
  readonly thresholds: Thresholds;
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
  const { ownAccess, remoteAccess } = accessesOf(operation);
  checkLocal(context, local, 0, 0, ownAccess);
  checkRemote(connection, rkey, 0, 0, remoteAccess);
  if (!EXPLAINED_OPERATIONS.includes(operation)) {
    throw invalidParam('operation', `must be one of ${EXPLAINED_OPERATIONS.join(', ')}`, operation);
  }
  if (operation === 'put') return explainRma(context, connection, Operation.PUT, local, rkey);
  if (operation === 'get') return explainRma(context, connection, Operation.GET, local, rkey);
  const localType = local instanceof MemoryHandle ? local.memoryType : MemoryType.HOST;
  const title = { operation, local: memoryTypeName(localType), remote: memoryTypeName(rkey.memoryType) };
  const moves = explainRma(context, connection, Operation.PUT, local, rkey);
  // Memory that no put can move, no message can move either.
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

/** Reports to UCX_PROTO_INFO how a new connection carries messages and streams from host memory that is not mapped. */
export function tellMessageProtocols(context: ExplainContext, connection: PeerConnection, info: ProtocolInfo): void {
  if (connection.am === undefined) return;
  const names = connection.lanes.map(({ iface }) => nameOf(iface.attributes));
  for (const operation of HOST_MESSAGES) info.chosen(names, () => explainHostMessages(context, connection, operation));
}

/** Operations that carry messages and streams. */
export const HOST_MESSAGES = ['tag', 'am', 'stream'] as const;

/** Explains messages or streams from host memory that is not mapped. */
export function explainHostMessages(
  context: ExplainContext,
  connection: PeerConnection,
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
