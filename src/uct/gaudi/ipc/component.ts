/**
 * The component gaudi_ipc: makes the memory domain of the cards.
 */

import type { Component } from '../../api/memory-domain.ts';
import { checkServices } from '../../base/checks.ts';
import { checkResources, type GaudiResources, UNUSABLE_CARDS } from '../base/gaudi-resources.ts';
import { GAUDI_IPC_CONFIG_TABLE } from './base/config.ts';
import { GAUDI_IPC_ALIASES, GAUDI_IPC_NAME } from './base/ipc-names.ts';
import { IpcMd } from './ipc-md.ts';

/**
 * The component `gaudi_ipc`, with the transport of the same name.
 * @param shared the cards; the same object for every Gaudi component of a context
 */
export function gaudiIpcComponent(shared: GaudiResources): Component {
  checkResources(shared);
  return {
    name: GAUDI_IPC_NAME,
    transports: [{ name: GAUDI_IPC_NAME, aliases: GAUDI_IPC_ALIASES }],
    configTable: GAUDI_IPC_CONFIG_TABLE,
    unusableStatuses: UNUSABLE_CARDS,
    isRequired: shared.isRequired,
    get isAbsenceWarned() {
      return shared.isWithoutCards;
    },
    openMd: (services) => {
      checkServices(services);
      return new IpcMd(shared, services);
    },
  };
}
