/**
 * The component gaudi_copy: makes the memory domain of the cards.
 */

import type { Component } from '../../api/memory-domain.ts';
import { checkServices } from '../../base/checks.ts';
import { GAUDI_COPY_CONFIG_TABLE } from '../base/card/config.ts';
import { checkResources, type GaudiResources, UNUSABLE_CARDS } from '../base/gaudi-resources.ts';
import { GAUDI_COPY_ALIASES, GAUDI_COPY_NAME, GAUDI_COPY_TRANSPORT } from './copy-key.ts';
import { CopyMd } from './copy-md.ts';

/**
 * The component `gaudi_copy`, with the transport `gaudi_cpy`.
 * @param shared the cards; the same object for every Gaudi component of a context
 */
export function gaudiCopyComponent(shared: GaudiResources): Component {
  checkResources(shared);
  return {
    name: GAUDI_COPY_NAME,
    transports: [{ name: GAUDI_COPY_TRANSPORT, aliases: GAUDI_COPY_ALIASES }],
    configTable: GAUDI_COPY_CONFIG_TABLE,
    unusableStatuses: UNUSABLE_CARDS,
    isRequired: shared.isRequired,
    get isAbsenceWarned() {
      return shared.isWithoutCards;
    },
    openMd: (services) => {
      checkServices(services);
      return new CopyMd(shared, services);
    },
  };
}
