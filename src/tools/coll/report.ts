/** Formats the results of `gaudi-ucx coll`: as the table of nccl-tests, as CSV, or as JSON. */

import { EMULATED_NOTE } from '../base/text-table.ts';
import type { CollRow } from './measure.ts';
import type { CollSpec } from './spec.ts';

/** Output format. */
export type ReportForm = 'text' | 'csv' | 'json';

/** A run. */
export interface CollRun {
  readonly spec: CollSpec;
  readonly ranks: number;
  readonly emulated: boolean;
}

const COLUMNS = ['size', 'count', 'type', 'redop', 'root', 'time', 'algbw', 'busbw', 'wrong', 'algorithm'] as const;
const WIDTHS = [12, 12, 9, 8, 5, 11, 8, 8, 6, 0] as const;
const ROOTED: ReadonlySet<string> = new Set(['broadcast', 'reduce', 'gather', 'scatter']);

/** Text before the rows; undefined for none. */
export function headOf(form: ReportForm, { spec, ranks, emulated }: CollRun): string | undefined {
  if (form === 'json') return undefined;
  if (form === 'csv') return 'size,count,type,redop,root,time_us,algbw_GBps,busbw_GBps,wrong,algorithm';
  const note = emulated ? `\n# ${EMULATED_NOTE}` : '';
  const units = ['(B)', '(elements)', '', '', '', '(us)', '(GB/s)', '(GB/s)', '', ''];
  return `# ${spec.test}, ${ranks} ranks, ${spec.memory} memory${note}\n${line(COLUMNS)}\n${line(units)}`;
}

/** One row; undefined for JSON. */
export function rowOf(form: ReportForm, { spec }: CollRun, row: CollRow): string | undefined {
  if (form === 'json') return undefined;
  const cells = cellsOf(spec, row);
  return form === 'csv' ? cells.join(',') : line(cells);
}

/** Text after the rows; undefined for none. */
export function tailOf(
  form: ReportForm,
  { spec, ranks, emulated }: CollRun,
  rows: readonly CollRow[],
): string | undefined {
  if (form === 'csv') return undefined;
  if (form === 'json') return JSON.stringify({ ...spec, ranks, emulated, results: rows }, undefined, 2);
  const mean = rows.reduce((sum, { busBandwidth }) => sum + busBandwidth, 0) / rows.length;
  return `# average bus bandwidth: ${mean.toFixed(3)} GB/s`;
}

function cellsOf({ collective, dtype, op, root }: CollSpec, row: CollRow): string[] {
  return [
    String(row.bytes),
    String(row.count),
    dtype,
    /reduce/i.test(collective) ? op : 'none',
    ROOTED.has(collective) ? String(root) : '-1',
    (row.timeNs / 1e3).toFixed(1),
    row.algorithmBandwidth.toFixed(3),
    row.busBandwidth.toFixed(3),
    row.wrong === undefined ? 'N/A' : String(row.wrong),
    row.protocol,
  ];
}

function line(cells: readonly string[]): string {
  return cells
    .map((cell, column) => (column === 9 ? `  ${cell}` : cell.padStart(WIDTHS[column]!)))
    .join('')
    .trimEnd();
}
