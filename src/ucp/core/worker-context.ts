/** What a worker needs of its context. */

import type { Clock } from '../../ucs/clock.ts';
import type { Log } from '../../ucs/log.ts';
import type { SignalFd } from '../api/awaited/worker-event.ts';
import type { Engine } from '../api/engine.ts';
import type { ProtocolContext } from './protocol-host.ts';
import type { ProtocolInfoMode } from './protocol-info.ts';
import type { Resources } from './resources.ts';
import type { Thresholds } from './thresholds.ts';

/** The context behind a worker; `W` is the worker. */
export interface WorkerContext<W> extends ProtocolContext {
  /** What runs the operations, and why that. */
  readonly engine: Engine;
  readonly resources: Resources;
  readonly clock: Clock;
  readonly log: Log;
  /** See UCX_PROGRESS_SPIN and UCX_KEEPALIVE_INTERVAL. */
  readonly progressSpinNs: number;
  readonly keepaliveNs: number;
  /** See UCX_UNEXP_MAX_BYTES. */
  readonly unexpectedBytesMax: number;
  readonly protocolInfoMode: ProtocolInfoMode;
  /** See UCX_RNDV_THRESH, UCX_BCOPY_THRESH and UCX_ZCOPY_THRESH. */
  readonly thresholds: Thresholds;
  newSignal(): SignalFd;
  forget(worker: W): void;
}
