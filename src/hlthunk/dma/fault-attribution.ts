/**
 * Which transfers a fault of the card may have spoiled. A pure decision over what the driver has recorded and what is in flight.
 *
 * A transfer that may have faulted is a suspect, one that cannot have is none. The driver records the first fault of each kind only; where
 * that one is certainly the fault at hand, its address or its engine says whose it is. Otherwise all transfers in flight are suspects, except
 * that an access without translation can only be to memory of others, while such memory is in use: own memory stays mapped as
 * long as a transfer holds it.
 */

import { HL_NOTIFIER_EVENT } from '../../uapi/index.ts';
import { joinBig } from '../../ucs/type/int64.ts';
import type { DeviceFault } from '../info/events.ts';
import type { DmaRequest } from './request.ts';

/** Events after which the data of transfers cannot be trusted. */
const DATA_FAULTS: number =
  HL_NOTIFIER_EVENT.UNDEFINED_OPCODE |
  HL_NOTIFIER_EVENT.USER_ENGINE_ERR |
  HL_NOTIFIER_EVENT.GENERAL_HW_ERR |
  HL_NOTIFIER_EVENT.RAZWI |
  HL_NOTIFIER_EVENT.PAGE_FAULT |
  HL_NOTIFIER_EVENT.CRITICL_HW_ERR |
  HL_NOTIFIER_EVENT.CRITICL_FW_ERR;

/** Those that an access to a wrong address causes. */
const ACCESS_FAULTS: number =
  HL_NOTIFIER_EVENT.RAZWI | HL_NOTIFIER_EVENT.PAGE_FAULT | HL_NOTIFIER_EVENT.USER_ENGINE_ERR;

/** The smallest page of a card: an access without translation lies in a page that its transfer touches. */
const PAGE_MASK = ~0xfffn;

/** What one queue has in flight. */
export interface QueueFlight {
  /** The engine behind the queue, as fault records name it. */
  readonly engineId: number;
  readonly requests: readonly DmaRequest[];
}

/** Whether a fault puts data in doubt. A time-out or a reset alone spoils no completed transfer; events that could not be read may be anything. */
export function doubtsData({ mask }: DeviceFault): boolean {
  return mask === 0 || (mask & DATA_FAULTS) !== 0;
}

/**
 * The transfers that the fault may have spoiled.
 * @param flights everything that is in flight on the card
 * @param isForeign whether a range of device addresses touches memory of other contexts
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
  if (isOne && data === HL_NOTIFIER_EVENT.UNDEFINED_OPCODE && undefinedOpcode !== undefined) {
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
