/** The explanation of puts or gets on a connection: gathers what there is to explain. The text is made in proto/explain.ts. */

import { invalidParam } from '../../ucs/error.ts';
import { checkLocal } from '../mem/local-bytes.ts';
import { type LocalMemory, MemoryHandle } from '../mem/memory-handle.ts';
import type { RemoteKey } from '../mem/remote-key.ts';
import { type Explanation, explainPlan } from '../proto/explain.ts';
import { Operation } from '../proto/selection.ts';
import { checkRemote, planFor } from '../rma/put-get.ts';
import type { PeerConnection } from './peer-connection.ts';

/**
 * Explains an operation between these memories.
 * @throws UcxError ERR_INVALID_PARAM, ERR_CLOSED
 */
export function explainTransfer(
  context: object,
  connection: PeerConnection,
  operation: 'put' | 'get',
  local: LocalMemory,
  rkey: RemoteKey,
): Explanation {
  checkLocal(context, local, 0, 0);
  checkRemote(connection, rkey, 0, 0);
  if (operation !== 'put' && operation !== 'get') throw invalidParam('operation', 'must be put or get', operation);
  const index = operation === 'put' ? Operation.PUT : Operation.GET;
  return explainPlan({
    operation: index,
    localType: local instanceof MemoryHandle ? local.memoryType : 0,
    remoteType: rkey.memoryType,
    plan: planFor(index, local, rkey, connection),
    resources: connection.lanes.map(({ iface }) => iface.attributes.resource),
    unavailable: connection.unreachable,
  });
}
