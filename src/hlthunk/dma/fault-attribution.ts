/**
 * Attribution of a fault of the card to transfers. A pure decision from the driver's records and the transfers in flight.
 *
 * A transfer that may have faulted is a suspect. The driver records only the first fault of each kind; if the record certainly belongs to this
 * fault, its address or engine identifies the transfer. Otherwise all transfers in flight are suspects, with one exception: if transfers use
 * memory of other contexts, an access without translation can only be theirs, because own memory stays mapped as long as a transfer holds it.
 */

import { HL_NOTIFIER_EVENT } from '../../uapi/index.ts';
import { joinBig } from '../../ucs/type/int64.ts';
import type { DeviceFault } from '../info/events.ts';
import type { DmaRequest } from './request.ts';

/** Events after which the data of transfers may be invalid. */
const DATA_FAULTS: number =
  HL_NOTIFIER_EVENT.UNDEFINED_OPCODE |
  HL_NOTIFIER_EVENT.USER_ENGINE_ERR |
  HL_NOTIFIER_EVENT.GENERAL_HW_ERR |
  HL_NOTIFIER_EVENT.RAZWI |
  HL_NOTIFIER_EVENT.PAGE_FAULT |
  HL_NOTIFIER_EVENT.CRITICL_HW_ERR |
  HL_NOTIFIER_EVENT.CRITICL_FW_ERR;

/** Events caused by an access to a wrong address. */
const ACCESS_FAULTS: number =
  HL_NOTIFIER_EVENT.RAZWI | HL_NOTIFIER_EVENT.PAGE_FAULT | HL_NOTIFIER_EVENT.USER_ENGINE_ERR;

/** Mask of the smallest page of a card. A page fault is attributed to the transfers that access its page. */
const PAGE_MASK = ~0xfffn;

/** The transfers in flight of one queue. */
export interface QueueFlight {
  /** The engine of the queue, with its id in fault records. */
  readonly engineId: number;
  readonly requests: readonly DmaRequest[];
}

/** Whether a fault may have spoiled data. A time-out or a reset alone spoils no completed transfer; unreadable events may be of any kind. */
export function doubtsData({ mask }: DeviceFault): boolean {
  return mask === 0 || (mask & DATA_FAULTS) !== 0;
}

/**
 * The transfers that the fault may have spoiled.
 * @param flights all transfers in flight on the card
 * @param isForeign whether a range of device addresses overlaps memory of other contexts
 */
export function suspectsOf(
  fault: DeviceFault,
  flights: readonly QueueFlight[],
  isForeign: (address: bigint, byteLength: number) => boolean,
): readonly DmaRequest[] {
  const data = fault.mask & DATA_FAULTS;
  const all = flights.flatMap(({ requests }) => requests);
  const ofEngines = (ids: readonly number[]): readonly DmaRequest[] =>
    flights.filter(({ engineId }) => ids.includes(engineId)).flatMap(({ requests }) => requests);
  const { pageFault, razwi, undefinedOpcode, engineErr } = fault;
  const isOne = fault.signals === 1;
  // An undefined opcode is also an error of its engine (gaudi_handle_eqe and gaudi2_handle_eqe, Linux 6.12).
  if (
    isOne &&
    (data & ~HL_NOTIFIER_EVENT.USER_ENGINE_ERR) === HL_NOTIFIER_EVENT.UNDEFINED_OPCODE &&
    undefinedOpcode !== undefined
  ) {
    return ofEngines([undefinedOpcode.engineId]);
  }
  if (isOne && data === HL_NOTIFIER_EVENT.USER_ENGINE_ERR && engineErr !== undefined) {
    return ofEngines([engineErr.engineId]);
  }
  if (data === 0 || (data & ~ACCESS_FAULTS) !== 0 || data === HL_NOTIFIER_EVENT.USER_ENGINE_ERR) return all;
  const known = !isOne
    ? []
    : pageFault !== undefined
      ? all.filter((request) => touchesPage(request, pageFault.addr))
      : ofEngines(razwi?.engineIds ?? []);
  if (known.length > 0) return known;
  const foreign = all.filter((request) => sides(request).some((side) => isForeign(side, request.byteLength)));
  return foreign.length > 0 ? foreign : all;
}

function sides({ sourceLow, sourceHigh, destinationLow, destinationHigh }: DmaRequest): readonly bigint[] {
  return [joinBig(sourceLow, sourceHigh), joinBig(destinationLow, destinationHigh)];
}

function touchesPage(request: DmaRequest, address: bigint): boolean {
  const page = address & PAGE_MASK;
  const last = BigInt(request.byteLength - 1);
  return sides(request).some((side) => (side & PAGE_MASK) <= page && page <= ((side + last) & PAGE_MASK));
}
