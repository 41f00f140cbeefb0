/** Formats the results of `perftest --pattern`: as a table, as CSV, or as JSON. */

import { EMULATED_NOTE } from '../../base/text-table.ts';
import type { PatternRow } from './pattern-rank.ts';
import { formulaBytes, formulaText, type PatternSpec, transferBytes } from './pattern-spec.ts';

/** Output format. */
export type PatternForm = 'text' | 'csv' | 'json';

const COLUMNS = ['size', 'batch', 'blocks', 'transfers', 'bytes', 'p50', 'p90', 'p99', 'rate', 'transfers', 'wrong'];
const UNITS = ['(B)', '', '', '', '', '(us)', '(us)', '(us)', '(GB/s)', '(1/s)', ''];
const CSV = 'size,batch,blocks,transfers,bytes,p50_us,p90_us,p99_us,GBps,transfers_per_s,wrong,carrier';
const WIDTHS = [10, 8, 8, 10, 15, 11, 11, 11, 9, 11, 6];

/** Text before the rows; undefined for none. */
export function patternHead(form: PatternForm, spec: PatternSpec, emulated: boolean): string | undefined {
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
export function patternRow(form: PatternForm, row: PatternRow): string | undefined {
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
export function patternTail(
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
