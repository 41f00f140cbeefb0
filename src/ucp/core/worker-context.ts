/** What a worker needs of its context, and what it may be given. */

import type { Clock } from '../../ucs/clock.ts';
import { invalidParam } from '../../ucs/error.ts';
import type { Log } from '../../ucs/log.ts';
import { systemRandomBytes } from '../../ucs/random.ts';
import type { SignalFd } from '../api/awaited/worker-event.ts';
import type { WorkerOptions } from '../api/worker.ts';
import type { ProtocolContext } from './protocol-host.ts';
import type { ProtocolInfoMode } from './protocol-info.ts';
import type { Resources } from './resources.ts';

const CLIENT_ID_MAX = 0xffff_ffff_ffff_ffffn;

/** The context behind a worker; `W` is the worker. */
export interface WorkerContext<W> extends ProtocolContext {
  readonly resources: Resources;
  readonly clock: Clock;
  readonly log: Log;
  /** See UCX_PROGRESS_SPIN and UCX_KEEPALIVE_INTERVAL. */
  readonly progressSpinNs: number;
  readonly keepaliveNs: number;
  readonly protocolInfoMode: ProtocolInfoMode;
  newSignal(): SignalFd;
  forget(worker: W): void;
}

/**
 * The client id of a worker with these options.
 * @throws UcxError ERR_INVALID_PARAM
 */
export function clientIdOf(options: WorkerOptions): bigint {
  if (typeof options !== 'object' || options === null) throw invalidParam('options', 'must be an object', options);
  const { clientId } = options;
  if (clientId === undefined) return new DataView(systemRandomBytes(8).buffer).getBigUint64(0, true);
  const isNumber = typeof clientId === 'number' && Number.isSafeInteger(clientId) && clientId >= 0;
  const isBigint = typeof clientId === 'bigint' && clientId >= 0n && clientId <= CLIENT_ID_MAX;
  if (!isNumber && !isBigint) throw invalidParam('clientId', 'must be an integer from 0 to 2^64 - 1', clientId);
  return BigInt(clientId);
}
