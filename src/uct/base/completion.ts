/** Completion of operations by transports: decrements the count and keeps the first failure. */

import { Status } from '../../ucs/type/status.ts';
import type { Completion } from '../api/iface.ts';

/** Whether a value is a completion. Checked before a transfer starts, because an error at its end would have no caller. */
export function isCompletion(value: unknown): boolean {
  return typeof value === 'object' && value !== null;
}

/** Reports to a completion that one of its operations has ended with `status`. */
export function completeOne(completion: Completion, status: Status): void {
  if (status < 0 && completion.failure === Status.OK) completion.failure = status;
  completion.count -= 1;
  if (completion.count === 0) completion.onComplete();
}
