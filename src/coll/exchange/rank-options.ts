/** Checks of options that teams and exchanges have in common. */

import { invalidParam } from '../../ucs/type/error.ts';

/** The most ranks of a team: each has a connection to all others. */
export const TEAM_SIZE_MAX = 4096;

const TIMEOUT_MAX_MS = 2 ** 31;

/** Checks a number of ranks. @throws UcxError ERR_INVALID_PARAM */
export function checkSize(size: number): void {
  if (!Number.isInteger(size) || size < 1 || size > TEAM_SIZE_MAX) {
    throw invalidParam('size', `must be an integer from 1 to ${TEAM_SIZE_MAX}`, size);
  }
}

/** Checks a rank, and the number of ranks. @throws UcxError ERR_INVALID_PARAM */
export function checkRank(rank: number, size: number): void {
  checkSize(size);
  if (!Number.isInteger(rank) || rank < 0 || rank >= size) {
    throw invalidParam('rank', `must be an integer from 0 to ${size - 1}`, rank);
  }
}

/** Checks a time in milliseconds. @param least the shortest one @throws UcxError ERR_INVALID_PARAM */
export function checkTimeoutMs(timeoutMs: number, least: number): void {
  if (typeof timeoutMs !== 'number' || !(timeoutMs >= least && timeoutMs <= TIMEOUT_MAX_MS)) {
    throw invalidParam('timeoutMs', `must be a number from ${least} to ${TIMEOUT_MAX_MS}`, timeoutMs);
  }
}
