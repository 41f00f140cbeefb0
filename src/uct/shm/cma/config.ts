/** The configuration of cma: `UCX_CMA_*`. */

import type { ConfigTable } from '../../../ucs/config/config.ts';
import { bandwidthType, timeType } from '../../../ucs/config/value.ts';

/** The values of the table. */
export interface CmaConfig {
  readonly BW: number;
  readonly LATENCY: number;
  readonly OVERHEAD: number;
}

/** `UCX_CMA_*`. */
export const CMA_CONFIG_TABLE: ConfigTable<CmaConfig> = {
  prefix: 'CMA_',
  fields: [
    {
      name: 'LATENCY',
      type: timeType,
      default: '80ns',
      doc: 'Estimated latency of a copy.',
    },
    {
      name: 'OVERHEAD',
      type: timeType,
      default: '400ns',
      doc: 'Estimated time of calling process_vm_readv or process_vm_writev.',
    },
  ],
  // As in UCX: UCX_SM_BW < UCX_SCOPY_BW < UCX_CMA_BW.
  subTables: [
    {
      prefix: 'SCOPY_',
      fields: [],
      subTables: [
        {
          prefix: 'SM_',
          fields: [
            {
              name: 'BW',
              type: bandwidthType,
              default: '11145MBs',
              doc: 'Estimated bandwidth of a copy, for the choice of protocols.',
            },
          ],
        },
      ],
    },
  ],
};
