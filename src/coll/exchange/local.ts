/** Exchange in one process, for tests and for programs that have several ranks as workers. */

import type { Exchange } from './exchange.ts';
import { checkSize } from './rank-options.ts';

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
