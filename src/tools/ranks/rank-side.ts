/** Process of a rank: reads its assignment, opens the exchange with the other ranks, and sends results or a failure to the process that has started it. */

import { forkedExchange } from '../../coll/exchange/forked.ts';
import type { LaunchedRank } from '../../coll/exchange/listener.ts';
import { setParentDeathSignal } from '../../sys/index.ts';
import { isUcxError } from '../../ucs/type/error.ts';
import type { RankAssignment, RankMessage } from './rank-messages.ts';

/**
 * Runs the rank of this process, which launchRanks has started.
 * @param run function of the rank; it passes its results to `report`
 */
export async function runRankProgram<S, R>(
  run: (spec: S, launched: LaunchedRank, report: (result: R) => void) => Promise<void>,
): Promise<void> {
  setParentDeathSignal();
  const { spec, rank, size }: RankAssignment<S> = JSON.parse(process.argv[2]!);
  const send = (message: RankMessage<R>): void => {
    if (process.connected) process.send?.(message, undefined, undefined, () => {});
  };
  try {
    const exchange = forkedExchange(process);
    await run(spec, { rank, size, exchange }, (result) => send({ kind: 'result', result }));
  } catch (error) {
    if (!isUcxError(error) && !(error instanceof Error && 'syscall' in error)) throw error;
    if (isUcxError(error)) {
      const { rank: named } = error.details;
      const blamed = typeof named === 'number' && named !== rank ? named : undefined;
      send({ kind: 'failure', text: `${error.message} (${error.code})`, blamed });
    } else {
      send({ kind: 'failure', text: error.message });
    }
    process.exitCode = 1;
  }
  if (process.connected) process.disconnect();
}
