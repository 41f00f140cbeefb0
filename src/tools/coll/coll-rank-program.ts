/** The program of one rank that `gaudi-ucx coll` starts: runs it, and sends its results, or why it failed, to its parent. */

import { forkedExchange } from '../../coll/exchange/forked.ts';
import { setParentDeathSignal } from '../../sys/index.ts';
import { isUcxError } from '../../ucs/type/error.ts';
import { runRank } from './rank.ts';
import type { RankAssignment, RankMessage } from './rank-messages.ts';

setParentDeathSignal();
const { spec, rank, size } = JSON.parse(process.argv[2]!) as RankAssignment;

function send(message: RankMessage): void {
  if (process.connected) process.send!(message, undefined, undefined, () => {});
}

try {
  const exchange = forkedExchange(process);
  await runRank(
    spec,
    { rank, size, exchange },
    {
      begin: (emulated, explanation) => send({ kind: 'begin', emulated, explanation }),
      row: (row) => send({ kind: 'row', row }),
    },
  );
} catch (error) {
  if (!isUcxError(error) && !(error instanceof Error && 'syscall' in error)) throw error;
  send({ kind: 'failure', text: `${error.message}${isUcxError(error) ? ` (${error.code})` : ''}` });
  process.exitCode = 1;
}
if (process.connected) process.disconnect();
