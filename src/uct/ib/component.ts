/** The component ib: RDMA devices behind the verbs port. */

import type { AnyConfigTable } from '../../ucs/config/config.ts';
import type { VerbsPort } from '../../verbs/port.ts';
import type { Component } from '../api/memory-domain.ts';
import { checkServices } from '../base/checks.ts';
import { IB_CONFIG_TABLE } from './base/config.ts';
import { IB_NAME, RC_NAME } from './base/ib-memory.ts';
import { IbMd, noDevice } from './ib-md.ts';

/**
 * The component `ib`.
 * @param verbs the port of the RDMA devices; undefined for a node without any
 * @param onClose called when the memory domain has been closed
 */
export function ibComponent(verbs: VerbsPort | undefined, onClose?: () => void): Component {
  return {
    name: IB_NAME,
    transports: [{ name: RC_NAME, aliases: ['rc_verbs', 'rc_v', 'ib'] }],
    configTable: IB_CONFIG_TABLE as AnyConfigTable,
    isReplaceable: true,
    openMd: (services) => {
      checkServices(services);
      if (verbs === undefined)
        throw noDevice(
          'there is no RDMA device: UCX_GAUDI_EMULATOR_NICS=1 gives an emulated one, and UCX_IB_DRIVER selects those of this machine',
        );
      return new IbMd(verbs, services, onClose);
    },
  };
}
