/** Why an attempt to connect has failed, as the cause of the error that users see. */

import { UcxError } from '../../../ucs/type/error.ts';
import { Status } from '../../../ucs/type/status.ts';
import type { ConnectAnswer } from '../../api/connection-manager.ts';

const NO_DATA = new Uint8Array(0);

/** The answer for a failure that has a reason in words. Code ERR_TCP_CM. */
export function failedAnswer(status: Status, reason: string): ConnectAnswer {
  return { status, privateData: NO_DATA, error: new UcxError({ code: 'ERR_TCP_CM', status, message: reason }) };
}

/** Failures that are told as they are: this machine lacks something, or the time is over. The others mean that the listener could not be reached. */
const TOLD: readonly Status[] = [Status.EXCEEDS_LIMIT, Status.NO_MEMORY, Status.TIMED_OUT];

/** The answer for a system call that has failed. */
export function unreachableAnswer(error: UcxError): ConnectAnswer {
  const status = TOLD.includes(error.status) ? error.status : Status.UNREACHABLE;
  return { status, privateData: NO_DATA, error };
}

/** Text that a peer has sent, fit to be printed. */
export function printable(bytes: Uint8Array): string {
  return Buffer.from(bytes)
    .toString('utf8')
    .replace(/[^\P{C}]/gu, '?');
}
