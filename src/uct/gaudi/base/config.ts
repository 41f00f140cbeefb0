/**
 * The configuration of gaudi_copy: `UCX_GAUDI_COPY_*`, with the older spellings as deprecated aliases. What it says about the registration
 * of host memory holds for every transport on the cards.
 */

import type { ConfigTable } from '../../../ucs/config.ts';
import { type KeyValues, keyValueType } from '../../../ucs/config-list.ts';
import {
  bandwidthType,
  boolType,
  memorySizeType,
  type Ternary,
  ternaryType,
  timeType,
  uintInfType,
} from '../../../ucs/config-value.ts';

/** Directions in which a card copies. */
export const DIRECTIONS = ['default', 'h2d', 'd2h', 'd2d'] as const;
export type Direction = (typeof DIRECTIONS)[number];

/** The values of the table. */
export interface GaudiCopyConfig {
  readonly DMABUF: boolean;
  readonly RCACHE: Ternary;
  readonly RCACHE_MAX_REGIONS: number;
  readonly RCACHE_MAX_SIZE: number;
  readonly REG_COST: number;
  readonly BW: KeyValues<Direction, number>;
  readonly LATENCY: number;
  readonly OVERHEAD: number;
  readonly HW_BLOCK_ACCESS: boolean;
}

/** `UCX_GAUDI_COPY_*`. */
export const GAUDI_COPY_CONFIG_TABLE: ConfigTable<GaudiCopyConfig> = {
  prefix: 'GAUDI_COPY_',
  fields: [
    {
      name: 'DMABUF',
      type: boolType,
      default: 'y',
      doc: 'Export device memory as dma-buf when a transport asks for it.',
      deprecatedAliases: ['UCT_GAUDI_COPY_ENABLE_DMABUF'],
    },
    {
      name: 'RCACHE',
      type: ternaryType,
      default: 'try',
      doc: 'Cache the registrations of host memory; n maps and unmaps at every use.',
      deprecatedAliases: ['UCT_GAUDI_COPY_ENABLE_RCACHE'],
    },
    {
      name: 'RCACHE_MAX_REGIONS',
      type: uintInfType,
      default: '16384',
      doc: 'Idle registrations that the cache keeps at most.',
    },
    {
      name: 'RCACHE_MAX_SIZE',
      type: memorySizeType,
      default: '16g',
      doc: 'Bytes of idle registrations that the cache keeps at most.',
    },
    {
      name: 'REG_COST',
      type: timeType,
      default: '7us',
      doc: 'Estimated time of registering host memory with a card, for the choice of protocols.',
    },
    {
      name: 'BW',
      type: keyValueType(DIRECTIONS, bandwidthType),
      default: '10000MBs,h2d:25000MBs,d2h:25000MBs,d2d:200000MBs',
      doc: 'Estimated bandwidth of the DMA engines by direction, for the choice of protocols. Estimates, not measurements.',
    },
    {
      name: 'LATENCY',
      type: timeType,
      default: '1.8us',
      doc: 'Estimated latency of a transfer.',
    },
    {
      name: 'OVERHEAD',
      type: timeType,
      default: '0.5us',
      doc: 'Estimated time of starting a transfer.',
    },
    {
      name: 'HW_BLOCK_ACCESS',
      type: boolType,
      default: 'y',
      doc: 'Let a program look at the register blocks that the driver hands out; n hides them.',
      deprecatedAliases: ['UCT_GAUDI_COPY_ENABLE_HW_BLOCK_ACCESS'],
    },
  ],
};
