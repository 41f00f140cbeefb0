/** A worker as its endpoints see it. Types only. */

import type { NativeCallback } from '../../sys/index.ts';
import type { DeviceTransfers } from '../device/transfers.ts';
import type { EndpointHandling, EngineEndpoint, EngineWorker } from '../engine/engine.ts';
import type { StreamReceives } from '../messages/stream-receives.ts';
import type { EndedPeers } from './ended-peers.ts';

/** The endpoints of a worker. */
export interface EndpointRegistry {
  /** Callback for libucp on the failure of an endpoint. */
  readonly errorCallback: NativeCallback;
  /** Makes the endpoint of a handle of libucp, and registers it. */
  adopt(handle: number, nodeAddress: Uint8Array, handling: EndpointHandling): EngineEndpoint;
  forget(endpoint: EngineEndpoint): void;
}

/** The worker. */
export interface EndpointWorker extends EngineWorker {
  readonly clientId: bigint;
  /** Whether its endpoints can tell peers of this engine that they close. */
  readonly tellsEnds: boolean;
  readonly devices: DeviceTransfers;
  readonly endpoints: EndpointRegistry;
  readonly streams: StreamReceives;
  readonly ended: EndedPeers;
  fence(): void;
  /** Ends the sleep of the worker, which then makes progress. */
  signal(): void;
}
