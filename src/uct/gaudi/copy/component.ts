/**
 * The component gaudi_copy: opens the cards and makes the memory domain of them.
 */

import type { DriverNode } from '../../../hlthunk/index.ts';
import type { Component } from '../../api/memory-domain.ts';
import { openGaudiCards } from '../base/gaudi-cards.ts';
import { GAUDI_COPY_CONFIG_TABLE } from './config.ts';
import { CopyMd } from './copy-md.ts';
import { GAUDI_COPY_ALIASES, GAUDI_COPY_NAME, GAUDI_COPY_TRANSPORT } from './gaudi-memory.ts';

/** What the component is handed. */
export interface GaudiCopyOptions {
  /** The machine: the kernel driver or an emulated node. */
  readonly node: DriverNode;
  /** Value of GAUDI_MAPPING_TABLE. */
  readonly mappingTable: string | undefined;
}

/** The component `gaudi_copy`, with the transport `gaudi_cpy`. */
export function gaudiCopyComponent(options: GaudiCopyOptions): Component {
  return {
    name: GAUDI_COPY_NAME,
    transports: [{ name: GAUDI_COPY_TRANSPORT, aliases: GAUDI_COPY_ALIASES }],
    configTable: GAUDI_COPY_CONFIG_TABLE,
    openMd: (services) =>
      new CopyMd(openGaudiCards({ ...options, log: services.log, clock: services.clock }), services),
  };
}
