/** The error for a failed transfer: its code by the status, and the reason, if known. Cold. */

import { Errno, errnoName } from '../../sys/index.ts';
import type { UcxError } from '../../ucs/type/error.ts';
import { Status, statusName } from '../../ucs/type/status.ts';
import type { CardFile } from '../base/card-file.ts';
import { errnoMeaning, GaudiErrorCode, gaudiError } from '../base/gaudi-error.ts';

/** What is known about the failure of a transfer. */
export interface DmaFailure {
  readonly status: Status;
  /** Errno with which the driver has failed a queue or rejected a submission; 0 for none. */
  readonly errno: number;
  /** Whether the queue has failed: it takes no more transfers. */
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

/** Why the driver has failed a queue, with the remedy, or has rejected a submission. EBUSY means that the card is not operational. */
function reasonOf(card: CardFile, { errno, isLost }: DmaFailure): string {
  if (!isLost) {
    return `the driver has rejected its submission with ${errnoName(errno)} (${errnoMeaning(errno)}); later transfers are not affected`;
  }
  const unusable = card.unusableReason();
  if (unusable !== undefined) return unusable;
  const why = errno === Errno.EBUSY ? card.whyBusy() : errnoMeaning(errno);
  return `${why}; this open device takes no more transfers: close its context, and create a new one`;
}

function codeOf(status: Status): GaudiErrorCode {
  if (status === Status.TIMED_OUT) return GaudiErrorCode.TIMEOUT;
  return status === Status.CANCELED ? GaudiErrorCode.CHANNEL_FAILED : GaudiErrorCode.DMA_FAILED;
}
