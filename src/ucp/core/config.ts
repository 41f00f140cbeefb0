/** The configuration of ucp: the fields of UCX's protocol layer that are honoured here. */

import type { ConfigTable } from '../../ucs/config.ts';
import { type AllowList, allowListType } from '../../ucs/config-list.ts';
import { timeType } from '../../ucs/config-value.ts';

/** The values of the table. */
export interface UcpConfig {
  readonly TLS: AllowList;
  readonly PROGRESS_SPIN: number;
}

/** `UCX_TLS` and its like. */
export const UCP_CONFIG_TABLE: ConfigTable<UcpConfig> = {
  prefix: '',
  fields: [
    {
      name: 'TLS',
      type: allowListType,
      default: 'all',
      doc: 'Transports to use: a list of names or aliases, all, or ^ and a list of those not to use.',
    },
    {
      name: 'PROGRESS_SPIN',
      type: timeType,
      default: '20us',
      doc: 'Time that an awaited operation polls before it sleeps on the event of its transport.',
    },
  ],
};
