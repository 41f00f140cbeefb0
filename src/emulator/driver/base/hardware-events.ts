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

/** Uncorrectable ECC errors of the eight TPCs of gaudi (GAUDI_EVENT_TPC0_DERR to TPC7_DERR); TPC0_SERR to TPC7_SERR, before them, are correctable. */
const GAUDI_TPC_DERR = { first: 46, end: 54 } as const;

/** Whether the driver resets the card after an event. */
export function isFatalEvent(asic: AsicName, event: number): boolean {
  return asic === 'gaudi' && event >= GAUDI_TPC_DERR.first && event < GAUDI_TPC_DERR.end;
}
