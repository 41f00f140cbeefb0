/** A put or get between memories of which at least one is on a card, as it was asked for. */

import type { EngineEndpoint } from '../engine/engine.ts';
import type { LocalMemory } from '../mem/memory-handle.ts';
import type { UcpRemoteKey } from '../mem/remote-key.ts';

/** A put or get. */
export interface RemoteTransfer {
  readonly isPut: boolean;
  readonly endpoint: EngineEndpoint;
  readonly local: LocalMemory;
  readonly localOffset: number;
  readonly byteLength: number;
  readonly rkey: UcpRemoteKey;
  readonly remoteOffset: number;
}
