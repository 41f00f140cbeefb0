/** The configuration of topology: how network devices are chosen. */

import type { ConfigTable } from './config.ts';
import { boolType } from './config-value.ts';

/** The values of the table. */
export interface TopologyConfig {
  readonly SINGLE_NET_DEVICE: boolean;
}

/** `UCX_SINGLE_NET_DEVICE`. */
export const TOPOLOGY_CONFIG_TABLE: ConfigTable<TopologyConfig> = {
  prefix: '',
  fields: [
    {
      name: 'SINGLE_NET_DEVICE',
      type: boolType,
      default: 'n',
      doc: 'y: one network device serves all cards; n: the nearest one serves each card.',
    },
  ],
};
