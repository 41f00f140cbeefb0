/** The failure of an attempt to connect, as the cause of the error that users see. */

import { UcxError } from '../../../ucs/type/error.ts';
import { Status } from '../../../ucs/type/status.ts';
import type { ConnectAnswer } from '../../api/connection-manager.ts';

const NO_DATA = new Uint8Array(0);

/** The answer for a failure with a description. Code ERR_TCP_CM. */
export function failedAnswer(status: Status, reason: string): ConnectAnswer {
  return { status, privateData: NO_DATA, error: new UcxError({ code: 'ERR_TCP_CM', status, message: reason }) };
}

/** Statuses that are reported unchanged: local resources, or the time-out. Others are reported as UNREACHABLE. */
const REPORTED: readonly Status[] = [Status.EXCEEDS_LIMIT, Status.NO_MEMORY, Status.TIMED_OUT];

/** The answer for a system call that has failed. */
export function unreachableAnswer(error: UcxError): ConnectAnswer {
  const status = REPORTED.includes(error.status) ? error.status : Status.UNREACHABLE;
  return { status, privateData: NO_DATA, error };
}

/** Makes the text of a peer printable. */
export function printable(bytes: Uint8Array): string {
  return Buffer.from(bytes)
    .toString('utf8')
    .replace(/[^\P{C}]/gu, '?');
}
