/**
 * Attribution of a fault of the card to transfers, from the driver's records and the transfers in flight.
 *
 * A transfer that may have faulted is a suspect. The driver records only the first fault of each kind; if the record certainly belongs to this fault, its
 * address or engine identifies the transfer. Otherwise all transfers in flight are suspects, with one exception: if some transfers use memory of other
 * contexts, only these can have accessed an address without translation, because memory of this context stays mapped while a transfer uses it.
 */

import { Errno, errnoName } from '../../sys/index.ts';
import { HL_NOTIFIER_EVENT } from '../../uapi/index.ts';
import type { UcxError } from '../../ucs/type/error.ts';
import { joinBig } from '../../ucs/type/int64.ts';
import { Status, statusName } from '../../ucs/type/status.ts';
import type { CardFile } from '../base/card-file.ts';
import { errnoMeaning, GaudiErrorCode, gaudiError, REOPEN_TEXT } from '../base/gaudi-error.ts';
import type { DeviceFault } from '../info/events.ts';
import type { DmaRequest } from './request.ts';

/** Events that mean that transferred data may be invalid. */
const DATA_FAULTS: number =
  HL_NOTIFIER_EVENT.UNDEFINED_OPCODE |
  HL_NOTIFIER_EVENT.USER_ENGINE_ERR |
  HL_NOTIFIER_EVENT.GENERAL_HW_ERR |
  HL_NOTIFIER_EVENT.RAZWI |
  HL_NOTIFIER_EVENT.PAGE_FAULT |
  HL_NOTIFIER_EVENT.CRITICL_HW_ERR |
  HL_NOTIFIER_EVENT.CRITICL_FW_ERR;

/** Events caused by accesses to wrong addresses. */
const ACCESS_FAULTS: number =
  HL_NOTIFIER_EVENT.RAZWI | HL_NOTIFIER_EVENT.PAGE_FAULT | HL_NOTIFIER_EVENT.USER_ENGINE_ERR;

/** Mask of the smallest page of a card: a page fault is attributed to the transfers that access its page. */
const PAGE_MASK = ~0xfffn;

/** The transfers in flight of one queue. */
export interface QueueFlight {
  /** The engine of the queue, with its id in fault records. */
  readonly engineId: number;
  /** Whether every record of the driver names the engine, that of a page fault too. */
  readonly isNamed: boolean;
  readonly requests: readonly DmaRequest[];
}

/** Whether data may be corrupted after a fault. A time-out or a reset alone does not corrupt completed transfers; unreadable events may be of any kind. */
export function doubtsData({ mask }: DeviceFault): boolean {
  return mask === 0 || (mask & DATA_FAULTS) !== 0;
}

/**
 * The transfers that the fault may have corrupted.
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
  if (flights.length > 0 && flights.every(({ isNamed }) => isNamed)) {
    const records = [pageFault, razwi, engineErr].filter((record) => record !== undefined);
    const isNamed = data !== 0 && (data & ~ACCESS_FAULTS) === 0 && fault.signals <= records.length;
    const ids = [pageFault?.engineId, engineErr?.engineId, ...(razwi?.engineIds ?? [])];
    return isNamed ? ofEngines(ids.filter((id) => id !== undefined)) : all;
  }
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

/** Known facts about the failure of a transfer. */
export interface DmaFailure {
  readonly status: Status;
  /** Errno with which the driver has failed a queue or rejected a submission; 0 for none. */
  readonly errno: number;
  /** Whether the queue has failed and accepts no more transfers. */
  readonly isLost: boolean;
  /** Events of the last fault of the card. */
  readonly fault: string | undefined;
}

/** ERR_GAUDI_TIMEOUT, ERR_GAUDI_CHANNEL_FAILED for a canceled transfer, otherwise ERR_GAUDI_DMA_FAILED. */
export function dmaError(card: CardFile, failure: DmaFailure): UcxError {
  const { status, errno, fault } = failure;
  const reason = card.lostReason ?? (errno === 0 ? undefined : reasonOf(card, failure));
  const why = reason === undefined ? '' : `: ${reason}`;
  const what = `a transfer of ${card.name} ended with ${statusName(status)}${why}`;
  const details = { status: statusName(status), minor: card.minor, busId: card.busId, fault };
  return gaudiError(codeOf(status), fault === undefined ? what : `${what}; last fault: ${fault}`, details);
}

/** Why the driver has failed a queue or rejected a submission. EBUSY means that the card is not operational. */
function reasonOf(card: CardFile, { errno, isLost }: DmaFailure): string {
  if (!isLost) {
    return `the driver rejected its submission with ${errnoName(errno)} (${errnoMeaning(errno)}); later transfers are not affected`;
  }
  const unusable = card.unusableReason();
  if (unusable !== undefined) return unusable;
  const why = errno === Errno.EBUSY ? card.whyBusy() : errnoMeaning(errno);
  return `${why}; this device accepts no more transfers: ${REOPEN_TEXT}`;
}

function codeOf(status: Status): GaudiErrorCode {
  if (status === Status.TIMED_OUT) return GaudiErrorCode.TIMEOUT;
  return status === Status.CANCELED ? GaudiErrorCode.CHANNEL_FAILED : GaudiErrorCode.DMA_FAILED;
}
