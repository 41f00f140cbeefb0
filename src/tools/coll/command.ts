/** Command `gaudi-ucx coll`: arguments and output. */

import { extname } from 'node:path';
import { Command } from 'commander';
import { labelsEmulation } from '../../assembly/open-node.ts';
import { type LaunchedRank, launchedRank } from '../../coll/exchange/listener.ts';
import { systemClock } from '../../ucs/sys/clock.ts';
import { statusError } from '../../ucs/type/error.ts';
import { Status } from '../../ucs/type/status.ts';
import { readArguments, suggestingOption } from '../base/command-line.ts';
import { launchRanks } from '../ranks/launch.ts';
import type { CollRow } from './measure.ts';
import { type CollResult, runRank } from './rank.ts';
import { type CollRun, headOf, type ReportForm, rowOf, tailOf } from './report.ts';
import { type CollOptions, readRanks, readSpec, TESTS } from './spec.ts';

const PROGRAM = new URL(`./coll-rank-program${extname(import.meta.url)}`, import.meta.url);

/** Time after which a rank reports that it waits for others. */
const SILENT_WAIT_NS = 2e9;

/** Makes the command. It fails if the data of a rank differs from the expected result. */
export function collCommand(): Command {
  return new Command('coll')
    .description(
      'measure and check collective operations; with RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT set, join the ranks of a launcher',
    )
    .addOption(
      suggestingOption('--test <name>', `operation: ${Object.keys(TESTS).join(', ')}`, Object.keys(TESTS)).default(
        'all_reduce',
      ),
    )
    .option('--ranks <number>', 'processes to start on this host', '2')
    .option('--size <range>', 'sizes in bytes, such as 1K..64M; instead of -b and -e')
    .option('-b, --minbytes <size>', 'smallest size (1K)')
    .option('-e, --maxbytes <size>', 'largest size (64M, or the smallest)')
    .option('-f, --stepfactor <number>', 'factor between two sizes', '4')
    .option('-n, --iters <number>', 'measured iterations', '20')
    .option('-w, --warmup_iters <number>', 'iterations before the measured ones, not measured', '5')
    .option('-c, --check <0|1>', 'compare the data with the expected result', '1')
    .option('-o, --op <name>', 'sum, prod, min or max', 'sum')
    .option('-d, --datatype <name>', 'float, bfloat16, half, double, int32, int64 or uint8', 'float')
    .option('-r, --root <rank>', 'root of broadcast, reduce, gather and scatter', '0')
    .option('-m, --memory <type>', 'host or gaudi', 'gaudi')
    .option('-A, --algorithm <name>', 'algorithm instead of the estimated best')
    .option('--explain', 'print the chosen algorithm, and why')
    .option('--csv', 'as CSV')
    .option('--json', 'as JSON')
    .action(async (options: CollOptions, command: Command) => {
      // If only one of them is set, the launcher is misconfigured; the error names the missing variable.
      const isLaunched = process.env['RANK'] !== undefined || process.env['WORLD_SIZE'] !== undefined;
      const { spec, launched, ranks } = readArguments(command, () => {
        const rank = isLaunched ? launchedRank(process.env) : undefined;
        const count = rank?.size ?? readRanks(options.ranks);
        return { spec: readSpec(options, count), launched: rank, ranks: count };
      });
      labelsEmulation();
      const form: ReportForm = options.json === true ? 'json' : options.csv === true ? 'csv' : 'text';
      const rows: CollRow[] = [];
      let run: CollRun = { spec, ranks, emulated: false };
      const onResult = (result: CollResult): void => {
        if (result.kind === 'begin') {
          run = { spec, ranks, emulated: result.emulated };
          if (form === 'text') print(result.explanation);
          print(headOf(form, run));
        } else {
          rows.push(result.row);
          print(rowOf(form, run, result.row));
        }
      };
      if (launched !== undefined) await runRank(spec, tellingWait(launched), onResult);
      else await launchRanks({ program: PROGRAM, spec, size: ranks, needsCards: spec.memory === 'gaudi', onResult });
      if (launched !== undefined && launched.rank > 0) return;
      print(tailOf(form, run, rows));
      const wrong = rows.reduce((sum, row) => sum + (row.wrong ?? 0), 0);
      if (wrong > 0)
        throw statusError(
          Status.IO_ERROR,
          `${spec.test}: data differs from the expected result, see the number of wrong ranks for each size`,
        );
    });
}

/** The rank with an exchange that reports a long wait, as for a wrong MASTER_ADDR. */
function tellingWait({ rank, size, exchange }: LaunchedRank): LaunchedRank {
  const { MASTER_ADDR = '127.0.0.1', MASTER_PORT } = process.env;
  const text = `gaudi-ucx: rank ${rank} of ${size} waits for the others at ${MASTER_ADDR}:${MASTER_PORT}\n`;
  return {
    rank,
    size,
    exchange: (bytes) => {
      const timer = systemClock.setTimer(SILENT_WAIT_NS, () => process.stderr.write(text));
      return exchange(bytes).finally(() => timer.cancel());
    },
  };
}

function print(text: string | undefined): void {
  if (text !== undefined) process.stdout.write(`${text}\n`);
}
