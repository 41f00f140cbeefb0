/**
 * The exchange of a few bytes of every rank, by which a team finds its members: the type. Exchange in one process, for tests and for programs that
 * have several ranks as workers.
 */

import { checkSize } from './rank-options.ts';

/**
 * An all-gather of small bytes, at most a few KiB: every rank calls it with its own, and gets those of all ranks, itself included, in any order. It is
 * called once for each team that is created.
 */
export type Exchange = (bytes: Uint8Array) => Promise<readonly Uint8Array[]>;

/**
 * Makes an exchange for ranks in this process: every rank gets the same function.
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
