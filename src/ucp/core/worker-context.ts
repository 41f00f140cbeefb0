/** What a worker needs of its context. */

import type { Log } from '../../ucs/debug/log.ts';
import type { Clock } from '../../ucs/sys/clock.ts';
import type { SignalFd } from '../api/awaited/worker-event.ts';
import type { Engine } from '../api/engine.ts';
import type { ProtocolContext } from '../base/protocol-host.ts';
import type { Thresholds } from '../lane/thresholds.ts';
import type { ProtocolInfoMode } from '../proto/protocol-info.ts';
import type { Resources } from '../resources/resources.ts';

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
