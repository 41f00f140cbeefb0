/** The configuration of gaudi_ipc (`UCX_GAUDI_IPC_*`), its names, and its errors for unavailable remote memory. */

import { GaudiErrorCode, gaudiError } from '../../../hlthunk/index.ts';
import type { ProcessIdentity } from '../../../sys/index.ts';
import type { ConfigTable } from '../../../ucs/config/config.ts';
import { bandwidthType, memorySizeType, timeType, uintInfType } from '../../../ucs/config/value.ts';
import { UcxError } from '../../../ucs/type/error.ts';
import { Status } from '../../../ucs/type/status.ts';

/** The values of the table. */
export interface GaudiIpcConfig {
  readonly CACHE_MAX_REGIONS: number;
  readonly CACHE_MAX_SIZE: number;
  readonly TIMEOUT: number;
  readonly BW: number;
  readonly LATENCY: number;
  readonly OVERHEAD: number;
}

/** `UCX_GAUDI_IPC_*`. */
export const GAUDI_IPC_CONFIG_TABLE: ConfigTable<GaudiIpcConfig> = {
  prefix: 'GAUDI_IPC_',
  fields: [
    {
      name: 'CACHE_MAX_REGIONS',
      type: uintInfType,
      default: '1024',
      doc: 'Maximum number of mapped imports of remote device memory. Imports in use are never evicted.',
    },
    {
      name: 'CACHE_MAX_SIZE',
      type: memorySizeType,
      default: '4t',
      doc: 'Maximum bytes of mapped imports of remote device memory. It counts device address space; an import uses no memory.',
    },
    {
      name: 'TIMEOUT',
      type: timeType,
      default: '10s',
      doc: 'Time within which the owner of remote memory must reply when a process first uses the memory. If it does not, for example because it is stopped, all waiting operations fail, and later ones fail at once until it has replied.',
    },
    {
      name: 'BW',
      type: bandwidthType,
      default: '25000MBs',
      doc: 'Estimated bandwidth to the memory of another card, for the choice of protocols. An estimate, not a measurement.',
    },
    {
      name: 'LATENCY',
      type: timeType,
      default: '2.5us',
      doc: 'Estimated latency of a transfer.',
    },
    {
      name: 'OVERHEAD',
      type: timeType,
      default: '0.6us',
      doc: 'Estimated time of starting a transfer.',
    },
  ],
};

/** Name of component, memory domain and transport. */
export const GAUDI_IPC_NAME = 'gaudi_ipc';
/** The other names that UCX_TLS accepts for the transport. */
export const GAUDI_IPC_ALIASES: readonly string[] = ['gaudi'];

/** The error for memory that was freed or deregistered. */
export function staleKey(rule: string, cause?: unknown): UcxError {
  const message = `remote key of ${GAUDI_IPC_NAME} ${rule}`;
  const details = { md: GAUDI_IPC_NAME };
  return new UcxError({ code: 'ERR_RKEY_STALE', status: Status.INVALID_ADDR, message, details, cause });
}

/** The error for a key with inconsistent fields. */
export function forgedKey(rule: string): UcxError {
  const message = `remote key of ${GAUDI_IPC_NAME} ${rule}`;
  const details = { md: GAUDI_IPC_NAME };
  return new UcxError({ code: 'ERR_RKEY_FORGED', status: Status.INVALID_ADDR, message, details });
}

/** The error for memory whose owner process has ended. */
export function ownerEnded({ pid }: ProcessIdentity): UcxError {
  const message = `process ${pid}, which owned the remote memory, has ended`;
  return new UcxError({ code: 'ERR_GAUDI_IPC_OWNER_GONE', status: Status.ENDPOINT_TIMEOUT, message, details: { pid } });
}

/** The error for an owner that runs but does not reply. */
export function ownerSilent({ pid }: ProcessIdentity, timeoutNs: number): UcxError {
  const what = `process ${pid} did not share its memory within ${timeoutNs / 1e9} s (UCX_GAUDI_IPC_TIMEOUT)`;
  return gaudiError(GaudiErrorCode.TIMEOUT, what, { pid });
}

/** The error for an unusable channel service of the owner. */
export function channelFailed({ pid }: ProcessIdentity, reason: string, cause?: unknown): UcxError {
  return gaudiError(GaudiErrorCode.CHANNEL_FAILED, `channel service of process ${pid}: ${reason}`, { pid }, cause);
}

/** The error for a reply that was received without a free descriptor in this process. */
export function descriptorLost({ pid }: ProcessIdentity): UcxError {
  const what = `this process has no free file descriptor for the memory of process ${pid}: raise ulimit -n`;
  return gaudiError(GaudiErrorCode.OUT_OF_MEMORY, what, { pid });
}
