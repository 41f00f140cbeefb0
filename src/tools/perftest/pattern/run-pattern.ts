/**
 * Runs `perftest --pattern`: starts the ranks or joins those of a launcher, compares the bytes with the formula, and prints the results as a table, CSV or
 * JSON.
 */

import { extname } from 'node:path';
import type { LaunchedRank } from '../../../coll/exchange/listener.ts';
import { statusError } from '../../../ucs/type/error.ts';
import { Status } from '../../../ucs/type/status.ts';
import { EMULATED_NOTE, ProgressBar } from '../../base/text-table.ts';
import { launchRanks } from '../../ranks/launch.ts';
import { dataError } from '../side/traffic.ts';
import { type PatternResult, type PatternRow, runPatternRank } from './pattern-rank.ts';
import { formulaBytes, formulaText, type PatternSpec, transferBytes } from './pattern-spec.ts';

const PROGRAM = new URL(`./pattern-rank-program${extname(import.meta.url)}`, import.meta.url);

/**
 * Runs all ranks.
 * @param launched the rank of this process; undefined to start all
 * @param print called with lines; undefined for none
 * @throws UcxError of the ranks; ERR_PERFTEST_DATA if blocks differ; ERR_IO_ERROR if the number of bytes differs from the formula
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
    throw dataError(`${wrong} received blocks differ from those sent (each rank receives ${blocks} from each sender)`);
  if (bytes !== expected)
    throw statusError(Status.IO_ERROR, `${bytes} bytes were moved instead of ${expected}, which the formula gives`);
}

/** Output format. */
type PatternForm = 'text' | 'csv' | 'json';

const COLUMNS = ['size', 'batch', 'blocks', 'transfers', 'bytes', 'p50', 'p90', 'p99', 'rate', 'transfers', 'wrong'];
const UNITS = ['(B)', '', '', '', '', '(us)', '(us)', '(us)', '(GB/s)', '(1/s)', ''];
const CSV = 'size,batch,blocks,transfers,bytes,p50_us,p90_us,p99_us,GBps,transfers_per_s,wrong,carrier';
const WIDTHS = [10, 8, 8, 10, 15, 11, 11, 11, 9, 11, 6];

/** Text before the rows; undefined for none. */
function patternHead(form: PatternForm, spec: PatternSpec, emulated: boolean): string | undefined {
  if (form === 'json') return undefined;
  if (form === 'csv') return `${emulated ? '# emulated cards\n' : ''}${CSV}`;
  const { pattern, ranks, operation, sendMemory, recvMemory, iterations, shapes, kv } = spec;
  const lines = [
    `# ${pattern}, ${ranks} ranks, ${operation} of lists, ${sendMemory} to ${recvMemory}, ${iterations} iterations`,
  ];
  if (kv !== undefined) {
    const { blocks, blockBytes } = shapes[0]!;
    lines.push(
      `# KV cache of ${kv.tokens} tokens: ${blocks} pages of ${blockBytes} bytes, ${transferBytes(shapes[0]!)} bytes`,
    );
  }
  lines.push(`# ${formulaText(spec)}`);
  if (emulated) lines.push(`# ${EMULATED_NOTE}`);
  return [...lines, line([...COLUMNS, '  carrier']), line([...UNITS, ''])].join('\n');
}

/** One row; undefined for JSON. */
function patternRow(form: PatternForm, row: PatternRow): string | undefined {
  if (form === 'json') return undefined;
  const { blockBytes, batch, blocks, transfers, bytes, p50Ns, p90Ns, p99Ns, wrong, carrier } = row;
  const cells = [
    ...[blockBytes, batch, blocks, transfers, bytes].map(String),
    ...[p50Ns, p90Ns, p99Ns].map((ns) => (ns / 1e3).toFixed(1)),
    (row.bytesPerSecond / 1e9).toFixed(3),
    row.transfersPerSecond.toFixed(0),
    wrong === undefined ? 'N/A' : String(wrong),
  ];
  return form === 'csv' ? [...cells, carrier].join(',') : line([...cells, `  ${carrier}`]);
}

/** Text after the rows; undefined for none. */
function patternTail(
  form: PatternForm,
  spec: PatternSpec,
  emulated: boolean,
  rows: readonly PatternRow[],
): string | undefined {
  if (form !== 'json') return undefined;
  const results = rows.map((row) => ({ ...row, formulaBytes: formulaBytes(spec, row) }));
  const { shapes: _shapes, ...rest } = spec;
  return JSON.stringify({ ...rest, emulated, formula: formulaText(spec), results }, undefined, 2);
}

function line(cells: readonly string[]): string {
  return cells
    .map((cell, column) => cell.padStart(WIDTHS[column] ?? 0))
    .join('')
    .trimEnd();
}
