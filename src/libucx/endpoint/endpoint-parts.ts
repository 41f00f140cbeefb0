/** The parts of a worker that its endpoints use. */

import type { DeviceTransfers } from '../device/transfers.ts';
import type { WorkerCore } from '../engine/worker-core.ts';
import type { StreamReceives } from '../messages/stream-receives.ts';
import type { EndedPeers } from './ended-peers.ts';
import type { EndpointRegistry } from './registry.ts';

/** The parts. */
export interface EndpointParts {
  readonly core: WorkerCore;
  /** Operations on memory of cards. */
  readonly devices: DeviceTransfers;
  readonly endpoints: EndpointRegistry;
  readonly streams: StreamReceives;
  readonly ended: EndedPeers;
}
