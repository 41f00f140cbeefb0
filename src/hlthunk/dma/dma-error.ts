/** The error for a failed transfer: its code by the status, and the reason, if known. Cold. */

import { Errno } from '../../sys/index.ts';
import type { UcxError } from '../../ucs/type/error.ts';
import { Status, statusName } from '../../ucs/type/status.ts';
import type { CardFile } from '../base/card-file.ts';
import { errnoMeaning, GaudiErrorCode, gaudiError } from '../base/gaudi-error.ts';

/** What is known about the failure of a transfer. */
export interface DmaFailure {
  readonly status: Status;
  /** Errno with which the driver has failed a queue; 0 for none. */
  readonly errno: number;
  /** Events of the last fault of the card. */
  readonly fault: string | undefined;
}

/** ERR_GAUDI_TIMEOUT, ERR_GAUDI_CHANNEL_FAILED for a canceled transfer, otherwise ERR_GAUDI_DMA_FAILED. */
export function dmaError(card: CardFile, { status, errno, fault }: DmaFailure): UcxError {
  const reason = card.lostReason ?? (errno === 0 ? undefined : reasonOf(card, errno));
  const why = reason === undefined ? '' : `: ${reason}`;
  const what = `a transfer of ${card.name} ended with ${statusName(status)}${why}`;
  const details = { status: statusName(status), minor: card.minor, busId: card.busId, fault };
  return gaudiError(codeOf(status), fault === undefined ? what : `${what}; last fault: ${fault}`, details);
}

/** Why the driver has failed a queue, by its errno: EBUSY means that the card is not operational. */
function reasonOf(card: CardFile, errno: number): string {
  return errno === Errno.EBUSY ? (card.malfunction() ?? 'the card is in reset') : errnoMeaning(errno);
}

function codeOf(status: Status): GaudiErrorCode {
  if (status === Status.TIMED_OUT) return GaudiErrorCode.TIMEOUT;
  return status === Status.CANCELED ? GaudiErrorCode.CHANNEL_FAILED : GaudiErrorCode.DMA_FAILED;
}
