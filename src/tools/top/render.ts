/**
 * The picture of `gaudi-ucx top`: text lines for a screen of a given size, 80 by 24 at least for eight cards. Pure; it knows no terminal.
 */

import type { TopCard, TopLink, TopModel } from './model.ts';

/** A screen. */
export interface Screen {
  readonly columns: number;
  readonly rows: number;
}

/** The screen that everything fits on with eight cards. */
export const SMALLEST_SCREEN: Screen = { columns: 80, rows: 24 };

/** Columns of the cards: name, width, whether it is text. */
const COLUMNS: readonly (readonly [string, number, boolean])[] = [
  ['card', 4, false],
  ['mod', 3, false],
  ['status', 12, true],
  ['HBM used GiB', 14, false],
  ['busy', 4, false],
  ['MHz', 5, false],
  ['h2d B/s', 7, false],
  ['d2h B/s', 7, false],
  ['d2d B/s', 7, false],
  ['err', 4, false],
];
const GIB = 2 ** 30;
const UNITS = ['', 'K', 'M', 'G', 'T'];
const CELL = 8;
const LABEL = 10;

/** The lines, none longer than the screen is wide and no more than it is high; without trailing blanks. */
export function renderTop(model: TopModel, title: string, screen: Screen): string[] {
  const lines = [
    titleLine(model, title, screen),
    '',
    rowOf(COLUMNS.map(([name]) => name)),
    ...model.cards.map(cardLine),
    '',
    ...linkLines(model),
    '',
    enginesLine(model),
    errorsLine(model),
  ];
  return lines.slice(0, screen.rows).map((line) => clip(line, screen.columns).trimEnd());
}

function titleLine({ emulated, cards, seconds }: TopModel, title: string, { columns }: Screen): string {
  const source = emulated ? 'emulated' : 'habanalabs driver';
  const left = `gaudi-ucx top: ${cards.length} cards (${source})${seconds === 0 ? ', first look: no rates' : ''}`;
  return `${left.padEnd(Math.max(left.length + 1, columns - title.length))}${title}`;
}

function cardLine(card: TopCard): string {
  const { minor, moduleId, status, inUse, hbmUsedBytes, hbmBytes, busyPercent, clockMhz } = card;
  const hbm = hbmBytes === 0 ? '-' : `${(hbmUsedBytes / GIB).toFixed(1)} of ${(hbmBytes / GIB).toFixed(1)}`;
  const state = status === 'operational' ? (inUse ? 'in use' : 'free') : status;
  return rowOf([
    String(minor),
    String(moduleId ?? '-'),
    state,
    hbm,
    `${Math.round(busyPercent)}%`,
    String(clockMhz),
    rate(card.hostToDevice),
    rate(card.deviceToHost),
    rate(card.deviceToDevice),
    String(errorsOf(card)),
  ]);
}

/** Cells in the columns of the cards. */
function rowOf(cells: readonly string[]): string {
  return COLUMNS.map(([, width, isText], index) => {
    const cell = clip(cells[index]!, width);
    return isText ? cell.padEnd(width) : cell.padStart(width);
  }).join(' ');
}

/** The matrix of links: how many are up, an exclamation mark where some are not, and what goes over them. */
function linkLines({ cards, links }: TopModel): string[] {
  if (cards.length === 0) return ['no cards: the node has none, or is gone'];
  if (links.length === 0) return ['links: not told by this driver'];
  const total = Math.max(...links.map((link) => link.total));
  const header = `${`up of ${total}, B/s`.padEnd(LABEL + 1)}${cards.map(({ minor }) => `to ${minor}`.padStart(CELL)).join('')}`;
  const rows = cards.map(({ minor: from }) => {
    const cells = cards.map(({ minor: to }) => linkCell(links.find((link) => link.from === from && link.to === to)));
    return `${`from ${from}`.padEnd(LABEL + 1)}${cells.map((cell) => cell.padStart(CELL)).join('')}`;
  });
  return [header, ...rows];
}

function linkCell(link: TopLink | undefined): string {
  if (link === undefined) return '-';
  const { up, total, bytesPerSecond } = link;
  const flow = bytesPerSecond === undefined || bytesPerSecond === 0 ? '' : ` ${rate(bytesPerSecond)}`;
  return `${up}${up < total ? '!' : ''}${flow}`;
}

function enginesLine({ cards }: TopModel): string {
  const busy = cards.filter(({ busyEngines }) => busyEngines.length > 0);
  if (busy.length === 0) return 'engines busy: none';
  return `engines busy: ${busy.map(({ minor, busyEngines }) => `card ${minor}: ${busyEngines.join(',')}`).join('; ')}`;
}

function errorsLine({ cards }: TopModel): string {
  const troubled = cards.filter((card) => errorsOf(card) > 0);
  if (troubled.length === 0) return 'errors: none';
  const words = troubled.map(({ minor, hardResets, refusedSubmissions, faults }) => {
    const parts = [
      ...(hardResets === 0 ? [] : [`${hardResets} hard resets`]),
      ...(refusedSubmissions === 0 ? [] : [`${refusedSubmissions} refused`]),
      ...faults,
    ];
    return `card ${minor}: ${parts.join(', ')}`;
  });
  return `errors: ${words.join('; ')}`;
}

function errorsOf({ hardResets, refusedSubmissions, faults }: TopCard): number {
  return hardResets + refusedSubmissions + faults.length;
}

/** `1.2G`, at most six characters; a dash for what nobody counts. */
function rate(bytesPerSecond: number | undefined): string {
  if (bytesPerSecond === undefined) return '-';
  let value = bytesPerSecond;
  let unit = 0;
  while (value >= 999.5 && unit < UNITS.length - 1) {
    value /= 1000;
    unit += 1;
  }
  return `${unit === 0 || value >= 99.95 ? Math.round(value) : value.toFixed(1)}${UNITS[unit]}`;
}

function clip(text: string, columns: number): string {
  return text.length <= columns ? text : `${text.slice(0, columns - 1)}…`;
}
