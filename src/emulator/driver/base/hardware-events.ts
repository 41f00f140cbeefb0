/**
 * Events that the hardware reports through its firmware, as far as programs raise them to inject errors. Handling them belongs to card.ts.
 *
 * Source: mmGIC_DISTRIBUTOR__5_GICD_SETSPI_NSR of include/gaudi/asic_reg/gaudi_regs.h, gaudi_async_events.h and gaudi_handle_eqe of gaudi.c; for gaudi2, the fields gic_host_* of the
 * dynamic registers of its firmware (gaudi2.c), Linux 6.12. hl-thunk injects events into gaudi only.
 */

import type { AsicName } from '../../../uapi/index.ts';

/** How a program makes the hardware of a generation report an event. */
export type EventInjection =
  /** It writes the number of the event to this register, an offset from CFG_BASE. */
  | { readonly register: bigint; readonly refusal?: undefined }
  /** It cannot, for this reason. */
  | { readonly register?: undefined; readonly refusal: string };

const DYNAMIC =
  'the firmware tells its driver at run time to which register events are written, and no public header names it';

/** By generation. */
export const EVENT_INJECTION: Readonly<Record<AsicName, EventInjection>> = {
  gaudi: { register: 0x80_0040n },
  gaudi2: { refusal: DYNAMIC },
  gaudi3: { refusal: DYNAMIC },
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
