/** The configuration of gaudi_ipc: `UCX_GAUDI_IPC_*`. Names of gaudi_ipc. The errors of gaudi_ipc for unavailable remote memory. */

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
      doc: 'Maximum bytes of mapped imports of remote device memory: address space, not memory.',
    },
    {
      name: 'TIMEOUT',
      type: timeType,
      default: '10s',
      doc: 'Time in which the owner of remote memory must answer when a process first uses it. A stopped process does not answer: all operations that wait for it end then, and later ones at once until it has answered.',
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

/** The memory of a key was freed or deregistered. */
export function staleKey(rule: string, cause?: unknown): UcxError {
  const message = `remote key of ${GAUDI_IPC_NAME} ${rule}`;
  const details = { md: GAUDI_IPC_NAME };
  return new UcxError({ code: 'ERR_RKEY_STALE', status: Status.INVALID_ADDR, message, details, cause });
}

/** The fields of a key are inconsistent. */
export function forgedKey(rule: string): UcxError {
  const message = `remote key of ${GAUDI_IPC_NAME} ${rule}`;
  const details = { md: GAUDI_IPC_NAME };
  return new UcxError({ code: 'ERR_RKEY_FORGED', status: Status.INVALID_ADDR, message, details });
}

/** The process that owns the memory has ended. */
export function ownerGone({ pid }: ProcessIdentity): UcxError {
  const message = `process ${pid}, which owned the remote memory, has ended`;
  return new UcxError({ code: 'ERR_GAUDI_IPC_OWNER_GONE', status: Status.ENDPOINT_TIMEOUT, message, details: { pid } });
}

/** The owner runs and does not answer. */
export function ownerSilent({ pid }: ProcessIdentity, timeoutNs: number): UcxError {
  const what = `process ${pid} did not share its memory within ${timeoutNs / 1e9} s (UCX_GAUDI_IPC_TIMEOUT)`;
  return gaudiError(GaudiErrorCode.TIMEOUT, what, { pid });
}

/** The channel service of the owner cannot be used. */
export function channelFailed({ pid }: ProcessIdentity, reason: string, cause?: unknown): UcxError {
  return gaudiError(GaudiErrorCode.CHANNEL_FAILED, `channel service of process ${pid}: ${reason}`, { pid }, cause);
}

/** The owner has answered, but this process has no free descriptor. */
export function descriptorLost({ pid }: ProcessIdentity): UcxError {
  return gaudiError(GaudiErrorCode.OUT_OF_MEMORY, `no descriptor is left for the memory of process ${pid}`, { pid });
}
