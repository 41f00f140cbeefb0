/** The component cma: cross-memory attach, copies between the processes of a node by the kernel. */

import type { Component } from '../../api/memory-domain.ts';
import { checkServices } from '../../base/check-services.ts';
import { CMA_NAME } from './cma-key.ts';
import { CMA_ALIASES, CmaMd } from './cma-md.ts';
import { CMA_CONFIG_TABLE } from './config.ts';

/** The component `cma`. */
export function cmaComponent(): Component {
  return {
    name: CMA_NAME,
    transports: [{ name: CMA_NAME, aliases: CMA_ALIASES }],
    isReplaceable: true,
    configTable: CMA_CONFIG_TABLE,
    openMd: (services) => {
      checkServices(services);
      return new CmaMd(services);
    },
  };
}
