/** What explain() tells of operations over libucp: whose protocols they are, and which way memory of cards goes. Text and data, no decisions. */

import type { ExplainedOperation } from '../ucp/api/endpoint.ts';
import type { ChosenProtocol, Explanation, RejectedProtocol } from '../ucp/api/explanation.ts';
import { MemoryType, memoryTypeName } from '../ucs/memory-type.ts';
import type { EngineContext, EngineEndpoint } from './engine.ts';
import { type LocalMemory, UcpMemory } from './memory-handle.ts';
import type { UcpRemoteKey } from './remote-key.ts';

/** Explains an operation. */
export function explainOver(
  context: EngineContext,
  endpoint: EngineEndpoint,
  operation: ExplainedOperation,
  local: LocalMemory,
  rkey: UcpRemoteKey,
): Explanation {
  const { version } = context.libucp;
  const localType = local instanceof UcpMemory ? local.memoryType : MemoryType.HOST;
  const chosen: ChosenProtocol[] = [];
  const rejected: RejectedProtocol[] = [];
  void endpoint;
  return {
    operation,
    local: memoryTypeName(localType),
    remote: memoryTypeName(rkey.memoryType),
    chosen,
    rejected,
    at: (bytes) => ({ bytes, winner: undefined, losers: [] }),
    toString: () => `libucp ${version}`,
  };
}
