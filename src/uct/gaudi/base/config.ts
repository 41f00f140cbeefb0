/**
 * The configuration of gaudi_copy: `UCX_GAUDI_COPY_*`, with older spellings as deprecated aliases. The settings of host memory registration apply to every
 * transport on the cards. Also the estimated cost of registering host memory, and the limits and directions of the transfers of a card, for all Gaudi
 * transports.
 */

import type { ConfigTable } from '../../../ucs/config/config.ts';
import { type KeyValues, keyValueType } from '../../../ucs/config/list.ts';
import {
  bandwidthType,
  boolType,
  type ConfigType,
  orAuto,
  restricted,
  type Ternary,
  ternaryAutoType,
  timeType,
  uintInfType,
} from '../../../ucs/config/value.ts';
import { RCACHE_CONFIG_TABLE, type RcacheConfig } from '../../../ucs/rcache/options.ts';
import type { LinearCost } from '../../api/memory-domain.ts';

/** Directions in which a card copies. */
export const DIRECTION_SETTINGS = ['default', 'h2d', 'd2h', 'd2d'] as const;
export type DirectionSetting = (typeof DIRECTION_SETTINGS)[number];

const ratioType: ConfigType<number> = {
  syntax: 'a number from 0 to 1',
  parse(text) {
    const value = /^(\d+\.?\d*|\.\d+)(e-?\d+)?$/i.test(text.trim()) ? Number(text) : Number.NaN;
    return value >= 0 && value <= 1 ? value : undefined;
  },
  print: String,
};

/** The values of the table. */
export interface GaudiCopyConfig extends RcacheConfig {
  readonly DMABUF: Ternary;
  readonly MAPPED_DMABUF: Ternary;
  readonly RCACHE: Ternary;
  readonly REG_WHOLE_ALLOC: boolean | 'auto';
  readonly MAX_REG_RATIO: number;
  readonly REG_COST: number;
  readonly BW: KeyValues<DirectionSetting, number>;
  readonly LATENCY: number;
  readonly OVERHEAD: number;
  readonly MAX_EVENTS: number;
  readonly HW_BLOCK_ACCESS: Ternary;
  readonly NIC_SCALE_OUT: Ternary;
}

/** Older spellings of a switch, with and without the prefix of UCX. */
function older(field: string): string[] {
  return [`UCT_GAUDI_COPY_${field}`, `UCX_GAUDI_COPY_${field}`];
}

/** `UCX_GAUDI_COPY_*`. */
export const GAUDI_COPY_CONFIG_TABLE: ConfigTable<GaudiCopyConfig> = {
  prefix: 'GAUDI_COPY_',
  fields: [
    {
      name: 'DMABUF',
      type: ternaryAutoType,
      default: 'try',
      doc: 'Export device memory as dma-buf when a transport requests it. y: creating a context fails unless every card supports it; try and auto: if the driver supports it; n: never.',
      deprecatedAliases: older('ENABLE_DMABUF'),
    },
    {
      name: 'MAPPED_DMABUF',
      type: ternaryAutoType,
      default: 'try',
      doc: 'How device memory is exported as dma-buf: gaudi2 and later export mapped ranges, gaudi exports physical memory. y: creating a context fails if a card cannot export mapped ranges; try and auto: the method of the card; n: gaudi2 and later export nothing.',
      deprecatedAliases: older('ENABLE_MAPPED_DMABUF'),
    },
    {
      name: 'RCACHE',
      type: ternaryAutoType,
      default: 'try',
      doc: 'Cache the registrations of host memory; n maps and unmaps it for each use.',
      deprecatedAliases: older('ENABLE_RCACHE'),
    },
    {
      name: 'REG_WHOLE_ALLOC',
      type: orAuto(boolType),
      default: 'auto',
      doc: 'Register the whole ArrayBuffer that contains host memory, and not only the used pages; auto: up to MAX_REG_RATIO.',
    },
    {
      name: 'MAX_REG_RATIO',
      type: ratioType,
      default: '0.1',
      doc: 'Maximum share of the physical memory that REG_WHOLE_ALLOC=auto registers for one ArrayBuffer.',
    },
    {
      name: 'REG_COST',
      type: timeType,
      default: '7us',
      doc: 'Estimated time to register host memory with a card. It counts for the choice of protocols only with RCACHE=n; with the cache, RCACHE_OVERHEAD counts.',
      deprecatedAliases: ['UCT_GAUDI_COPY_REG_COST'],
    },
    {
      name: 'BW',
      type: keyValueType(DIRECTION_SETTINGS, bandwidthType),
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
      name: 'MAX_EVENTS',
      type: restricted(uintInfType, 'an unsigned integer of 1 or more, or inf', (events) => events >= 1),
      default: 'inf',
      doc: 'Maximum number of transfers in flight of one interface on one card; further transfers wait. The queues of the card have their own bounds.',
      deprecatedAliases: ['UCT_GAUDI_COPY_MAX_EVENTS'],
    },
    {
      name: 'HW_BLOCK_ACCESS',
      type: ternaryAutoType,
      default: 'try',
      doc: 'Let programs access the register blocks that the driver exposes. y: creating a context fails unless every card has some; n: hides them.',
      deprecatedAliases: older('ENABLE_HW_BLOCK_ACCESS'),
    },
    {
      name: 'NIC_SCALE_OUT',
      type: ternaryAutoType,
      default: 'try',
      doc: 'Detect the NIC ports that connect to other servers. y: requires them of every card; try and auto: report them; n: does not detect them.',
      deprecatedAliases: older('ENABLE_NIC_SCALE_OUT'),
    },
  ],
  subTables: [RCACHE_CONFIG_TABLE],
};

/** Registration cost per byte: the driver pins page by page. */
const REGISTER_NS_PER_BYTE = 0.03;
/** RCACHE_OVERHEAD=auto: time to find a registration and to prepare the memory for the transport. */
const CACHED_NS = 600;

/** The estimated cost of a registration; with a cache, of finding an existing one, as in UCX. */
export function registerCostOf({ RCACHE, RCACHE_OVERHEAD, REG_COST }: GaudiCopyConfig): LinearCost {
  if (RCACHE === 'no') return { overheadNs: REG_COST, perByteNs: REGISTER_NS_PER_BYTE };
  return { overheadNs: RCACHE_OVERHEAD === 'auto' ? CACHED_NS : RCACHE_OVERHEAD, perByteNs: 0 };
}

/** Maximum bytes of a short operation: the data area of a slot in the command buffer. */
export const SHORT_BYTES_MAX = 1024;
/** Maximum number of entries of a zero-copy list; each is one transfer. */
export const IOV_MAX = 16;
/** Directions of transfers. Each has a hardware queue of the card, which completes in order. */
export const Direction = { HOST_TO_DEVICE: 0, DEVICE_TO_HOST: 1, DEVICE_TO_DEVICE: 2 } as const;
export type Direction = (typeof Direction)[keyof typeof Direction];
export const DIRECTIONS = 3;
