/** The configuration of the connection manager over TCP: `UCX_TCP_CM_*`. */

import type { ConfigTable } from '../../../ucs/config/config.ts';
import { boolType, type ConfigType, restricted, timeType, uintType } from '../../../ucs/config/value.ts';

/** The values of the table. */
export interface TcpCmConfig {
  readonly TIMEOUT: number;
  readonly ANSWER_TIMEOUT: number;
  readonly MAX_CLIENTS: number;
  readonly MAX_REQUESTS: number;
  readonly REUSEADDR: boolean;
}

const positiveTimeType = restricted(timeType, 'a time above 0', (ns) => ns > 0);

function countType(max: number): ConfigType<number> {
  return restricted(uintType, `an integer from 1 to ${max}`, (count) => count >= 1 && count <= max);
}

/** `UCX_TCP_CM_*`. */
export const TCP_CM_CONFIG_TABLE: ConfigTable<TcpCmConfig> = {
  prefix: 'TCP_CM_',
  fields: [
    {
      name: 'TIMEOUT',
      type: positiveTimeType,
      default: '10s',
      doc: 'Time in which a connection to a listener must be established, and in which either side must send its next message; slower peers are disconnected. inf for no bound.',
    },
    {
      name: 'ANSWER_TIMEOUT',
      type: positiveTimeType,
      default: '1m',
      doc: 'Time in which the program of a listener must accept or reject; then the client gives up. inf for no bound.',
    },
    {
      name: 'MAX_CLIENTS',
      type: countType(65_536),
      default: '1024',
      doc: 'Maximum number of clients of the listeners of one worker that have not sent their request, 1 to 65536, and half as many for one address; for one more the oldest is disconnected, and connects again.',
    },
    {
      name: 'MAX_REQUESTS',
      type: countType(65_536),
      default: '1024',
      doc: 'Maximum number of connection requests that wait for an answer of the program, 1 to 65536; more are rejected with BUSY.',
    },
  ],
  // As in UCX: UCX_CM_REUSEADDR < UCX_TCP_CM_REUSEADDR.
  subTables: [
    {
      prefix: 'CM_',
      fields: [
        {
          name: 'REUSEADDR',
          type: boolType,
          default: 'y',
          doc: 'Let a listener have a port of which connections of an earlier listener still end (SO_REUSEADDR). The default of UCX is n.',
        },
      ],
    },
  ],
};
