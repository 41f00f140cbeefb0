/** Runs `perftest --pattern`: starts the ranks or joins those of a launcher, prints their results, and compares the bytes with the formula. */

import { extname } from 'node:path';
import type { LaunchedRank } from '../../../coll/exchange/listener.ts';
import { statusError } from '../../../ucs/type/error.ts';
import { Status } from '../../../ucs/type/status.ts';
import { ProgressBar } from '../../base/progress-bar.ts';
import { launchRanks } from '../../ranks/launch.ts';
import { dataError } from '../side/content.ts';
import { type PatternResult, type PatternRow, runPatternRank } from './pattern-rank.ts';
import { type PatternForm, patternHead, patternRow, patternTail } from './pattern-report.ts';
import { formulaBytes, type PatternSpec } from './pattern-spec.ts';

const PROGRAM = new URL(`./pattern-rank-program${extname(import.meta.url)}`, import.meta.url);

/**
 * Runs all ranks.
 * @param launched the rank of this process; undefined to start all
 * @param print takes lines; undefined is none
 * @throws UcxError of the ranks; ERR_PERFTEST_DATA for blocks that differ; ERR_IO_ERROR for bytes that are not those of the formula
 */
export async function runPattern(
  spec: PatternSpec,
  launched: LaunchedRank | undefined,
  form: PatternForm,
  print: (text: string | undefined) => void,
): Promise<void> {
  const rows: PatternRow[] = [];
  let emulated = false;
  const isPrinting = launched === undefined || launched.rank === 0;
  const bar = isPrinting ? new ProgressBar(process.stderr, spec.shapes.length * spec.iterations) : undefined;
  const onResult = (result: PatternResult): void => {
    if (result.kind === 'progress') {
      bar?.update(spec.pattern, result.iterations);
      return;
    }
    bar?.clear();
    if (result.kind === 'begin') {
      ({ emulated } = result);
      print(patternHead(form, spec, emulated));
    } else {
      rows.push(result.row);
      print(patternRow(form, result.row));
    }
  };
  const needsCards = spec.sendMemory === 'gaudi' || spec.recvMemory === 'gaudi';
  try {
    if (launched !== undefined) await runPatternRank(spec, launched, onResult);
    else await launchRanks({ program: PROGRAM, spec, size: spec.ranks, needsCards, onResult });
  } finally {
    bar?.clear();
  }
  if (!isPrinting) return;
  print(patternTail(form, spec, emulated, rows));
  for (const row of rows) check(spec, row);
}

function check(spec: PatternSpec, row: PatternRow): void {
  const { bytes, wrong = 0, blocks } = row;
  const expected = formulaBytes(spec, row);
  if (wrong > 0)
    throw dataError(`${wrong} blocks differ from what was sent (each rank receives ${blocks} from each sender)`);
  if (bytes !== expected) throw statusError(Status.IO_ERROR, `${bytes} bytes were moved, by the formula ${expected}`);
}
