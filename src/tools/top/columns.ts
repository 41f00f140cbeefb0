/** Columns of the cards in `gaudi-ucx top`: contents, width, and selection for the width of a screen. */

import { clip } from '../../ucs/type/inspect.ts';
import type { TopCard } from '../model/top-model.ts';
import { OPERATIONAL } from '../node-access/card.ts';

/** A column. */
interface Column {
  readonly title: string;
  readonly width: number;
  readonly isText: boolean;
  /** Columns of low rank have priority. */
  readonly rank: number;
  readonly cell: (card: TopCard) => string;
}

const GIB = 2 ** 30;
const UNITS = ['', 'K', 'M', 'G', 'T'];

const COLUMNS: readonly Column[] = [
  { title: 'card', width: 4, isText: false, rank: 0, cell: ({ index }) => String(index ?? '-') },
  {
    title: 'device',
    width: 8,
    isText: true,
    rank: 8,
    cell: ({ minor }) => (minor === undefined ? '-' : `accel${minor}`),
  },
  { title: 'mod', width: 3, isText: false, rank: 3, cell: ({ moduleId }) => String(moduleId ?? '-') },
  { title: 'bus id', width: 12, isText: true, rank: 7, cell: ({ busId }) => busId },
  { title: 'status', width: 12, isText: true, rank: 0, cell: ({ status }) => status },
  { title: 'HBM used GiB', width: 13, isText: false, rank: 0, cell: hbmOf },
  { title: 'busy', width: 4, isText: false, rank: 0, cell: ({ busyPercent }) => `${Math.round(busyPercent)}%` },
  { title: 'MHz', width: 4, isText: false, rank: 6, cell: ({ clockMhz }) => (clockMhz === 0 ? '-' : String(clockMhz)) },
  { title: 'C', width: 3, isText: false, rank: 5, cell: ({ temperature }) => rounded(temperature) },
  { title: 'W', width: 4, isText: false, rank: 5, cell: ({ power }) => rounded(power) },
  { title: 'h2d B/s', width: 7, isText: false, rank: 0, cell: ({ hostToDevice }) => rateText(hostToDevice) },
  { title: 'd2h B/s', width: 7, isText: false, rank: 0, cell: ({ deviceToHost }) => rateText(deviceToHost) },
  { title: 'd2d B/s', width: 7, isText: false, rank: 4, cell: ({ deviceToDevice }) => rateText(deviceToDevice) },
  { title: 'err', width: 5, isText: false, rank: 0, cell: (card) => String(errorsOf(card)) },
  { title: 'pid', width: 7, isText: false, rank: 1, cell: ownerOf },
  { title: 'firmware', width: 36, isText: true, rank: 9, cell: ({ firmware }) => firmware ?? '-' },
  { title: 'process', width: 48, isText: true, rank: 8, cell: ({ command }) => command ?? '-' },
];

/** The columns that fit, separated by one blank, in their order. */
export function fittingColumns(columns: number): readonly Column[] {
  const chosen: Column[] = [];
  let used = -1;
  for (const column of [...COLUMNS].sort((left, right) => left.rank - right.rank)) {
    if (used + column.width + 1 > columns) continue;
    used += column.width + 1;
    chosen.push(column);
  }
  return COLUMNS.filter((column) => chosen.includes(column));
}

/** The titles, in the columns of the cards. */
export function titleRow(columns: readonly Column[]): string {
  return rowOf(columns, (column) => column.title);
}

/** The row of a card. */
export function cardRow(columns: readonly Column[], card: TopCard): string {
  return rowOf(columns, (column) => column.cell(card));
}

function rowOf(columns: readonly Column[], textOf: (column: Column) => string): string {
  return columns
    .map((column) => {
      const text = clip(textOf(column), column.width);
      return column.isText ? text.padEnd(column.width) : text.padStart(column.width);
    })
    .join(' ');
}

/** The process that has opened the card; `in use` if unknown. */
function ownerOf({ pid, inUse }: TopCard): string {
  return pid === undefined ? (inUse ? 'in use' : '-') : String(pid);
}

function hbmOf({ hbmUsedBytes, hbmBytes }: TopCard): string {
  return hbmBytes === 0 ? '-' : `${(hbmUsedBytes / GIB).toFixed(1)} of ${(hbmBytes / GIB).toFixed(1)}`;
}

function rounded(value: number | undefined): string {
  return value === undefined ? '-' : String(Math.round(value));
}

/** Number of errors of a card: resets, rejected submissions, recorded faults, and one if it is not operational. */
export function errorsOf({ hardResets, refusedSubmissions, faults, status }: TopCard): number {
  return hardResets + refusedSubmissions + faults.length + (status === OPERATIONAL ? 0 : 1);
}

/** Formats a number such as `1.2G` with at most six characters; a dash without a counter. */
export function rateText(bytesPerSecond: number | undefined): string {
  if (bytesPerSecond === undefined) return '-';
  let value = bytesPerSecond;
  let unit = 0;
  while (value >= 999.5 && unit < UNITS.length - 1) {
    value /= 1000;
    unit += 1;
  }
  return `${unit === 0 || value >= 99.95 ? Math.round(value) : value.toFixed(1)}${UNITS[unit]}`;
}
