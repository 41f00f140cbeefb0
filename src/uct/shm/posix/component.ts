/** The component posix: shared memory between the processes of a node. */

import type { Component } from '../../api/memory-domain.ts';
import { checkServices } from '../../base/check-services.ts';
import { POSIX_CONFIG_TABLE } from './config.ts';
import { POSIX_NAME } from './posix-key.ts';
import { POSIX_ALIASES, PosixMd } from './posix-md.ts';

/** The component `posix`. */
export function posixComponent(): Component {
  return {
    name: POSIX_NAME,
    transports: [{ name: POSIX_NAME, aliases: POSIX_ALIASES }],
    isReplaceable: true,
    isAbsenceWarned: true,
    configTable: POSIX_CONFIG_TABLE,
    openMd: (services) => {
      checkServices(services);
      return new PosixMd(services);
    },
  };
}
