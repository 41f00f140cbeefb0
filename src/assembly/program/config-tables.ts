/** All configuration tables of this library. The effect of a field is documented beside its reader, in the table itself. */

import { LIBUCX_CONFIG_TABLE } from '../../libucx/c/config.ts';
import { UCP_CONFIG_TABLE } from '../../ucp/resources/config.ts';
import type { AnyConfigTable } from '../../ucs/config/config.ts';
import { GLOBAL_CONFIG_TABLE } from '../../ucs/debug/global-config.ts';
import { PROFILE_CONFIG_TABLE } from '../../ucs/profile/profile-config.ts';
import { STATS_CONFIG_TABLE } from '../../ucs/stats/stats-config.ts';
import { GAUDI_COPY_CONFIG_TABLE } from '../../uct/gaudi/base/config.ts';
import { GAUDI_IPC_CONFIG_TABLE } from '../../uct/gaudi/ipc/config.ts';
import { IB_CONFIG_TABLE, RC_CONFIG_TABLE } from '../../uct/ib/base/config.ts';
import { CMA_CONFIG_TABLE } from '../../uct/shm/cma/config.ts';
import { POSIX_CONFIG_TABLE } from '../../uct/shm/posix/config.ts';
import { TCP_CM_CONFIG_TABLE, TCP_CONFIG_TABLE } from '../../uct/tcp/config.ts';
import { ENGINE_CONFIG_TABLE, GAUDI_CONFIG_TABLE } from './config.ts';
import { INSPECT_CONFIG_TABLE } from './inspect-config.ts';

export { TCP_CONFIG_TABLE };

/** The tables, in the order in which `info -c` prints them. */
export const CONFIG_TABLES: readonly AnyConfigTable[] = [
  GLOBAL_CONFIG_TABLE,
  STATS_CONFIG_TABLE,
  PROFILE_CONFIG_TABLE,
  INSPECT_CONFIG_TABLE,
  ENGINE_CONFIG_TABLE,
  UCP_CONFIG_TABLE,
  POSIX_CONFIG_TABLE,
  CMA_CONFIG_TABLE,
  TCP_CM_CONFIG_TABLE,
  TCP_CONFIG_TABLE,
  IB_CONFIG_TABLE,
  RC_CONFIG_TABLE,
  GAUDI_CONFIG_TABLE,
  GAUDI_COPY_CONFIG_TABLE,
  GAUDI_IPC_CONFIG_TABLE,
  LIBUCX_CONFIG_TABLE,
];
