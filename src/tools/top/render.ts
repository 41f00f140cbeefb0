/**
 * Renders `gaudi-ucx top` as lines of text for a screen of a given size. Eight cards fit on 80 columns and 24 rows; wider screens show more columns, lower
 * screens scroll.
 */

import { clip } from '../../ucs/type/inspect.ts';
import type { TopCard, TopLink, TopModel } from '../model/top-model.ts';
import { OPERATIONAL } from '../node-access/card.ts';
import { cardRow, errorsOf, fittingColumns, rateText, titleRow } from './columns.ts';

/** Size of a screen, in characters. */
export interface Screen {
  readonly columns: number;
  readonly rows: number;
}

/** The smallest screen that shows eight cards without scrolling. */
export const SMALLEST_SCREEN: Screen = { columns: 80, rows: 24 };

/** Orders of the cards. */
export const SORT_ORDERS = ['card', 'HBM', 'busy', 'traffic', 'errors'] as const;
export type SortOrder = (typeof SORT_ORDERS)[number];

/** Choices of the user. */
export interface View {
  readonly sort: SortOrder;
  /** Number of lines of the scrolling area above the screen. */
  readonly scroll: number;
  /** Whether the view is interactive: it then has colours and a line with the keys. */
  readonly isLive: boolean;
}

/** The view without keys and colours: for `--once`, and when standard output is not a terminal. */
export const PLAIN_VIEW: View = { sort: 'card', scroll: 0, isLive: false };

const CELL = 8;
const LABEL = 10;
const RED = '\u001b[31m';
const PLAIN = '\u001b[39m';
/** Lines that do not scroll: title, keys, titles of the columns. */
const FIXED_LINES = 3;

/** A line, and whether it reports an error. */
interface Line {
  readonly text: string;
  readonly isError: boolean;
}

/** The lines, cut to the size of the screen; without trailing blanks. */
export function renderTop(model: TopModel, title: string, screen: Screen, view: View = PLAIN_VIEW): string[] {
  const columns = fittingColumns(screen.columns);
  const fixed = [titleLine(model, title, screen), noticeLine(model, view), titleRow(columns)].map(plain);
  const body: Line[] = [
    ...sorted(model.cards, view.sort).map((card) => ({ text: cardRow(columns, card), isError: errorsOf(card) > 0 })),
    plain(''),
    ...linkLines(model),
    plain(''),
    plain(enginesLine(model)),
    errorsLine(model),
  ];
  const room = Math.max(0, screen.rows - fixed.length);
  const start = Math.max(0, Math.min(view.scroll, body.length - room));
  return [...fixed, ...body.slice(start, start + room)].slice(0, screen.rows).map(({ text, isError }) => {
    const line = clip(text, screen.columns).trimEnd();
    return isError && view.isLive ? `${RED}${line}${PLAIN}` : line;
  });
}

/** Largest value of {@link View.scroll} for a screen. */
export function scrollMax({ cards, links }: TopModel, { rows }: Screen): number {
  const body = cards.length + (cards.length > 0 && links.length > 0 ? cards.length + 1 : 1) + 4;
  return Math.max(0, body - (rows - FIXED_LINES));
}

function plain(text: string): Line {
  return { text, isError: false };
}

function titleLine({ emulated, cards, seconds, driverVersion }: TopModel, title: string, { columns }: Screen): string {
  const driver = `habanalabs driver${driverVersion === undefined ? '' : ` ${driverVersion}`}`;
  const source = emulated ? 'emulated' : driver;
  const left = `gaudi-ucx top: ${cards.length} cards (${source})${seconds === 0 ? ', first sample: no rates' : ''}`;
  return `${left.padEnd(Math.max(left.length + 1, columns - title.length))}${title}`;
}

/** The help for the keys, and a notice if this process emulates the node. */
function noticeLine({ emulated, serverPid, driverVersion }: TopModel, { isLive, sort }: View): string {
  // Emulated cards behind device nodes have a driver version.
  const isOwn = emulated && serverPid === undefined && driverVersion === undefined;
  const notice = isOwn
    ? 'emulated node of this process: other programs cannot use it (start a shared one by gaudi-ucx node up)'
    : '';
  if (!isLive) return notice;
  const keys = `q quit, s sort: ${sort}, up and down scroll`;
  return isOwn ? `${keys}; ${notice}` : keys;
}

function sorted(cards: readonly TopCard[], order: SortOrder): readonly TopCard[] {
  if (order === 'card') return cards;
  const weight = (card: TopCard): number => {
    if (order === 'HBM') return card.hbmUsedBytes;
    if (order === 'busy') return card.busyPercent;
    if (order === 'errors') return errorsOf(card);
    return (card.hostToDevice ?? 0) + (card.deviceToHost ?? 0) + (card.deviceToDevice ?? 0);
  };
  return [...cards].sort((left, right) => weight(right) - weight(left) || cards.indexOf(left) - cards.indexOf(right));
}

/** The matrix of links: number of links that are up, an exclamation mark if some are down, and their traffic. */
function linkLines({ cards, links }: TopModel): Line[] {
  if (cards.length === 0) return [plain('no cards: the node has none, or its server has ended')];
  if (links.length === 0) return [plain('links: not reported by this driver')];
  const total = Math.max(...links.map((link) => link.total));
  const header = `${`up of ${total}, B/s`.padEnd(LABEL + 1)}${cards.map((card) => `to ${shortNameOf(card)}`.padStart(CELL)).join('')}`;
  const rows = cards.map((card) => {
    const { minor: from } = card;
    const found = cards.map(({ minor: to }) => links.find((link) => link.from === from && link.to === to));
    const text = `${`from ${shortNameOf(card)}`.padEnd(LABEL + 1)}${found.map((link) => linkCell(link).padStart(CELL)).join('')}`;
    return { text, isError: found.some((link) => link !== undefined && link.up < link.total) };
  });
  return [plain(header), ...rows];
}

/** The index of a card; its module id if GAUDI_MAPPING_TABLE omits the card. Both are in the table of the cards. */
function shortNameOf({ index, moduleId }: TopCard): string {
  return index === undefined ? `m${moduleId ?? '?'}` : String(index);
}

function linkCell(link: TopLink | undefined): string {
  if (link === undefined) return '-';
  const { up, total, bytesPerSecond } = link;
  const flow = bytesPerSecond === undefined || bytesPerSecond === 0 ? '' : ` ${rateText(bytesPerSecond)}`;
  return `${up}${up < total ? '!' : ''}${flow}`;
}

function enginesLine({ cards }: TopModel): string {
  const busy = cards.filter(({ busyEngines }) => busyEngines.length > 0);
  if (busy.length === 0) return 'engines busy: none';
  return `engines busy: ${busy.map((card) => `${nameOf(card)}: ${card.busyEngines.join(',')}`).join('; ')}`;
}

/** The name of a card, short because device node and bus id are in the table. */
function nameOf({ index, busId }: TopCard): string {
  return `card ${index ?? busId}`;
}

function errorsLine({ cards }: TopModel): Line {
  const faulty = cards.filter((card) => errorsOf(card) > 0);
  if (faulty.length === 0) return plain('errors: none');
  const words = faulty.map((card) => {
    const { status, hardResets, refusedSubmissions, faults } = card;
    const parts = [
      ...(status === OPERATIONAL ? [] : [status]),
      ...(hardResets === 0 ? [] : [`${hardResets} hard ${hardResets === 1 ? 'reset' : 'resets'}`]),
      ...(refusedSubmissions === 0 ? [] : [`${refusedSubmissions} refused`]),
      ...faults,
    ];
    return `${nameOf(card)}: ${parts.join(', ')}`;
  });
  return { text: `errors: ${words.join('; ')}`, isError: true };
}
