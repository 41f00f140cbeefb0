/** The configuration table of the engine over libucp, `UCX_LIBUCP_*`. libucp reads all other variables. */

import type { ConfigTable } from '../../ucs/config/config.ts';
import { restricted, stringType } from '../../ucs/config/value.ts';

/** The values of the table. */
export interface LibucxConfig {
  readonly PATH: string;
}

/** `UCX_LIBUCP_*`. */
export const LIBUCX_CONFIG_TABLE: ConfigTable<LibucxConfig> = {
  prefix: 'LIBUCP_',
  fields: [
    {
      name: 'PATH',
      type: restricted(stringType, 'a path, or the name of a library', (text) => text !== ''),
      default: 'libucp.so.0',
      doc: 'The UCX library of the machine, version 1.13 or newer: a path, or a name that the dynamic loader searches.',
    },
  ],
};
