/** The component ib: RDMA devices behind the verbs port. */

import type { AnyConfigTable } from '../../ucs/config/config.ts';
import type { VerbsPort } from '../../verbs/port.ts';
import type { Component } from '../api/memory-domain.ts';
import { checkServices } from '../base/check-services.ts';
import { IB_CONFIG_TABLE } from './base/config.ts';
import { IB_NAME, RC_NAME } from './base/ib-memory.ts';
import { IbMd } from './ib-md.ts';

/** The component `ib` over the devices of a port. */
export function ibComponent(verbs: VerbsPort): Component {
  return {
    name: IB_NAME,
    transports: [{ name: RC_NAME, aliases: ['rc_verbs', 'rc_v', 'ib'] }],
    configTable: IB_CONFIG_TABLE as AnyConfigTable,
    isReplaceable: true,
    openMd: (services) => {
      checkServices(services);
      return new IbMd(verbs, services);
    },
  };
}
