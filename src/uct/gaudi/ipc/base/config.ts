/**
 * The configuration of gaudi_ipc: `UCX_GAUDI_IPC_*`.
 */

import type { ConfigTable } from '../../../../ucs/config/config.ts';
import { bandwidthType, memorySizeType, timeType, uintInfType } from '../../../../ucs/config/value.ts';

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
      doc: 'Time in which the owner of remote memory must answer when a process first uses it. A stopped process does not answer.',
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
