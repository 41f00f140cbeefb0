/**
 * The exchange of a few bytes of every rank, by which a team finds its members: its type, the checks of options that exchanges and teams share, and an
 * exchange within one process.
 */

import { invalidParam } from '../../ucs/type/error.ts';

/**
 * An all-gather of small data, at most a few KiB: every rank passes its bytes, and gets those of all ranks, itself included, in any order. Called once for
 * each team that is created.
 */
export type Exchange = (bytes: Uint8Array) => Promise<readonly Uint8Array[]>;

/**
 * Makes an exchange for ranks in this process; all ranks use the same function.
 * @param size number of ranks
 * @throws UcxError ERR_INVALID_PARAM
 */
export function localExchange(size: number): Exchange {
  checkSize(size);
  let given: Uint8Array[] = [];
  let waiting: ((all: readonly Uint8Array[]) => void)[] = [];
  return (bytes) =>
    new Promise((resolve) => {
      given.push(bytes);
      waiting.push(resolve);
      if (given.length < size) return;
      const [all, ready] = [given, waiting];
      [given, waiting] = [[], []];
      for (const each of ready) each(all);
    });
}

/** The most ranks of a team: each rank has a connection to all others. */
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

/** Checks a time in milliseconds. @param least the minimum @throws UcxError ERR_INVALID_PARAM */
export function checkTimeoutMs(timeoutMs: number, least: number): void {
  if (typeof timeoutMs !== 'number' || !(timeoutMs >= least && timeoutMs <= TIMEOUT_MAX_MS)) {
    throw invalidParam('timeoutMs', `must be a number from ${least} to ${TIMEOUT_MAX_MS}`, timeoutMs);
  }
}
