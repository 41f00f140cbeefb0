/** The shared memory that the connections of posix take, by the configuration of a program. */

import type { Config } from '../../ucs/config/config.ts';
import { connectionBytes, POSIX_CONFIG_TABLE } from '../../uct/shm/posix/config.ts';

/** Space of connections. */
export interface SharedMemorySpace {
  /** See UCX_POSIX_DIR. */
  readonly folder: string;
  /** A connection within this machine: a ring in each direction. */
  readonly connectionBytes: number;
}

/** @throws UcxError ERR_CONFIG_VALUE for inconsistent fields */
export function sharedMemorySpace(config: Config): SharedMemorySpace {
  const values = config.get(POSIX_CONFIG_TABLE);
  return { folder: values.DIR, connectionBytes: connectionBytes(values) };
}
