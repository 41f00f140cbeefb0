/** Configuration table of the libucx engine: the variables `UCX_LIBUCP_*`. libucp reads all other variables. */

import type { ConfigTable } from '../../ucs/config/config.ts';
import { restricted, stringType } from '../../ucs/config/value.ts';

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
      doc: 'UCX library to load, version 1.13 or newer: a path, or a name that the dynamic loader searches for.',
    },
  ],
};
