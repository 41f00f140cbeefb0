/** The waits at both ends of a team: until its ranks have agreed on their endpoints, and until they were told that this one leaves. */

import type { AwaitedWorker } from '../../api/awaited/worker.ts';
import type { Clock, Timer } from '../../ucs/sys/clock.ts';
import type { UcxError } from '../../ucs/type/error.ts';
import type { Members } from './members.ts';
import { timedOut } from './wire/errors.ts';

/** Time in which peers take the last messages of a team that has failed. */
const LEAVE_NS = 500e6;

/** The parts of a team that the waits need. */
export interface MembershipParts {
  readonly members: Members;
  readonly worker: AwaitedWorker;
  readonly clock: Clock;
  /** Time after which a wait for ranks fails; 0 for no limit. */
  readonly timeoutNs: number;
}

/**
 * Waits until all ranks have agreed on their endpoints.
 * @param hasEnded whether they will not any more
 * @param fail called if they have not in time
 */
export async function untilConnected(
  { members, worker, clock, timeoutNs }: MembershipParts,
  hasEnded: () => boolean,
  fail: (error: UcxError) => void,
): Promise<void> {
  const startedNs = clock.nowNs();
  let missing: number | undefined;
  let timer: Timer | undefined;
  // Like an operation it fails only if nothing has happened since the last look.
  const look = (): void => {
    const isLate = clock.nowNs() - startedNs >= timeoutNs && members.missing.length === missing;
    missing = members.missing.length;
    if (isLate) fail(timedOut('createTeam', members.missing, timeoutNs / 1e6));
    else timer = clock.setTimer(timeoutNs / 4, look);
    worker.promises.wake();
  };
  if (timeoutNs > 0) timer = clock.setTimer(timeoutNs / 4, look);
  await worker.promises.until(() => members.missing.length === 0 || hasEnded());
  timer?.cancel();
}

/** Waits until the ranks were told. @param isGivenUp whether those that do not answer are waited for only a short time */
export async function untilTold(
  { worker, clock }: MembershipParts,
  isTold: () => boolean,
  isGivenUp: () => boolean,
): Promise<void> {
  let isLate = false;
  const timer = clock.setTimer(LEAVE_NS, () => {
    isLate = true;
    worker.promises.wake();
  });
  await worker.promises.until(() => isTold() || worker.closed || (isLate && isGivenUp()));
  timer.cancel();
}
