/**
 * Events that the hardware reports through its firmware, as far as programs raise them to inject errors. Handling them belongs to card.ts.
 *
 * Source: mmGIC_DISTRIBUTOR__5_GICD_SETSPI_NSR of include/gaudi/asic_reg/gaudi_regs.h, gaudi_async_events.h and gaudi_handle_eqe of gaudi.c, Linux 6.12.
 */

import type { AsicName } from '../../../uapi/index.ts';

/** The register, from CFG_BASE, to which the number of an event is written; undefined where it is not known. */
export const HARDWARE_EVENT_REGISTER: Readonly<Record<AsicName, bigint | undefined>> = {
  gaudi: 0x80_0040n,
  gaudi2: undefined,
  gaudi3: undefined,
};

/** ECC errors of the eight TPCs of gaudi: those that were corrected (GAUDI_EVENT_TPC0_SERR to TPC7_SERR), and those that were not (TPC0_DERR to TPC7_DERR). */
const GAUDI_TPC_SERR = { first: 38, end: 46 } as const;
const GAUDI_TPC_DERR = { first: 46, end: 54 } as const;

/** How the driver treats an event: it resets the card, notifies of an error of the hardware, or counts only. */
export type EventSeverity = 'fatal' | 'corrected' | 'none';

/** The severity of an event. */
export function severityOf(asic: AsicName, event: number): EventSeverity {
  if (asic !== 'gaudi') return 'none';
  if (event >= GAUDI_TPC_DERR.first && event < GAUDI_TPC_DERR.end) return 'fatal';
  return event >= GAUDI_TPC_SERR.first && event < GAUDI_TPC_SERR.end ? 'corrected' : 'none';
}
