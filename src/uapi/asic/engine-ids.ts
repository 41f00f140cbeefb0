/**
 * The ids by which INFO names engines in masks and fault records (enum gaudi_engine_id, enum gaudi2_engine_id, enum gaudi3_engine_id).
 *
 * Source: drm/habanalabs_accel.h, Linux 6.12; for gaudi3 that of Intel_Gaudi3_Software.
 */

import { HL_RAZWI_NA_ENG_ID } from '../ioctl/operations.ts';
import type { AsicName } from './asic-profile.ts';
import type { QueueEntry } from './queues.ts';

/** Gaudi: eight DMA channels, four MMEs, eight TPCs, ten NICs. */
const GAUDI_FIRST = { DMA: 0, MME: 8, TPC: 12, NIC: 20 } as const;

/** Gaudi2: every dcore has two EDMAs, an MME, six TPCs and two decoders; engines outside the dcores follow. */
const GAUDI2_DCORE_ENGINES = 11;
const GAUDI2_IN_DCORE = { EDMA: 0, MME: 2, TPC: 3 } as const;
const GAUDI2_OUTSIDE = { DCORE0_TPC_6: 44, PDMA: 45, ROT: 47, NIC: 51 } as const;
/** Number of ids (GAUDI2_ENGINE_ID_SIZE): after the 24 NICs follow PCIE, PSOC, ARC_FARM and KDMA. */
export const GAUDI2_ENGINES = 79;
/** Cores that an engine command can name (CPU_ID_MAX): 6 schedulers, those of 25 TPCs, 2 MMEs, 8 EDMAs, 2 PDMAs, 2 rotators and 24 NICs. */
export const GAUDI2_ENGINE_CORES = 69;
/** Gaudi3: the first id of each kind of engine, and the number of ids. NIC ids are those of macros; four spare ids follow the TPCs. */
export const GAUDI3_ENGINE_IDS = {
  DEC: 0,
  EDMA: 16,
  MME: 24,
  TPC: 32,
  NIC: 100,
  ROT: 112,
  PDMA: 120,
  STLB: 144,
  SM: 152,
  ARC_FARM: 160,
  PCIE: 176,
  ETR: 178,
  PDMA_DUP: 182,
  SIZE: 186,
} as const;
/** Cores that an engine command can name. */
export const GAUDI3_ENGINE_CORES = 108;
/** Number of TPCs that every dcore has; dcore 0 has one more, whose id does not follow theirs. */
const GAUDI2_DCORE_TPCS = 6;

/** The engine of a queue; {@link HL_RAZWI_NA_ENG_ID} for one without an id. */
export function engineIdOf(asic: AsicName, queue: QueueEntry): number {
  return asic === 'gaudi' ? gaudiEngineId(queue) : gaudi2EngineId(queue);
}

function gaudiEngineId({ engine, engineIndex }: QueueEntry): number {
  switch (engine) {
    case 'dma':
      return GAUDI_FIRST.DMA + engineIndex;
    case 'mme':
      // The queues of MME_0 belong to engine 2, those of MME_1 to engine 0.
      return GAUDI_FIRST.MME + (engineIndex === 0 ? 2 : 0);
    case 'tpc':
      return GAUDI_FIRST.TPC + engineIndex;
    case 'nic':
      return GAUDI_FIRST.NIC + engineIndex;
    default:
      return HL_RAZWI_NA_ENG_ID;
  }
}

function gaudi2EngineId({ engine, engineIndex, dcore }: QueueEntry): number {
  const first = dcore * GAUDI2_DCORE_ENGINES;
  switch (engine) {
    case 'edma':
      return first + GAUDI2_IN_DCORE.EDMA + engineIndex;
    case 'mme':
      return first + GAUDI2_IN_DCORE.MME;
    case 'tpc':
      return engineIndex < GAUDI2_DCORE_TPCS ? first + GAUDI2_IN_DCORE.TPC + engineIndex : GAUDI2_OUTSIDE.DCORE0_TPC_6;
    case 'pdma':
      return GAUDI2_OUTSIDE.PDMA + engineIndex;
    case 'rotator':
      return GAUDI2_OUTSIDE.ROT + engineIndex;
    case 'nic':
      return GAUDI2_OUTSIDE.NIC + engineIndex;
    default:
      return HL_RAZWI_NA_ENG_ID;
  }
}
