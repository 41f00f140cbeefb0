/** Formats the results of the exchange as text of at most 80 columns. */

import { EMULATED_NOTE, formatBytes, formatRate, formatTable, formatTime } from '../base/text-table.ts';
import type { Round } from './exchange-messages.ts';

/** One round of all cards. */
export interface RoundResult {
  readonly round: Round;
  /** Bytes transferred between cards, and the time of all transfers. */
  readonly bytes: number;
  readonly ns: number;
  readonly transport: string | undefined;
  readonly protocol: string | undefined;
  /** Note of explain for the protocol. */
  readonly note?: string | undefined;
  /** Logical indices of the cards whose file differs. */
  readonly different: readonly number[];
}

/** GB/s from one card to each. */
export type MatrixRow = readonly number[];

/** All results. */
export interface ExchangeResult {
  /** Whether the processes have cards of one node, or one node with one card each. */
  readonly unit: 'card' | 'node';
  readonly file: string;
  readonly byteLength: number;
  /** Logical indices of the cards, or numbers of the nodes. */
  readonly cards: readonly number[];
  readonly emulated: boolean;
  /** SHA-256 of the exchanged bytes. */
  readonly expected: string;
  readonly rounds: readonly RoundResult[];
  readonly matrix: readonly MatrixRow[];
  /** Bytes of one put of the matrix. */
  readonly measuredBytes: number;
}

/** The text, without a newline at its end. */
export function describeExchange(result: ExchangeResult): string {
  const { unit, cards, emulated, expected, rounds, matrix, measuredBytes } = result;
  const rows = rounds.map((round) => [
    round.round,
    formatBytes(round.bytes),
    formatTime(round.ns),
    formatRate(round.bytes, round.ns),
    round.transport ?? '-',
    round.protocol ?? '-',
    `${cards.length - round.different.length} of ${cards.length}`,
  ]);
  return [
    ...preamble(result),
    '',
    formatTable([['round', 'moved', 'time', 'GB/s', 'transport', 'protocol', 'same file'], ...rows]),
    ...(unit === 'card'
      ? ['The put round uses each remote key first, so its time includes their imports.']
      : paths(rounds)),
    '',
    `sha-256 sent   ${expected}`,
    ...rounds.flatMap((round) => differences(unit, round)),
    '',
    `GB/s${emulated ? ' (emulated)' : ''} of puts of ${formatBytes(measuredBytes)} from row to column, one pair at a time:`,
    formatMatrix(cards, matrix),
    ...(emulated ? ['', EMULATED_NOTE] : []),
  ].join('\n');
}

function preamble({ unit, file, byteLength, cards, emulated, rounds }: ExchangeResult): string[] {
  const card = emulated ? 'an emulated Gaudi card' : 'a Gaudi card';
  const transports = [...new Set(rounds.flatMap(({ transport }) => transport ?? []))].join(', ');
  const [who, path] =
    unit === 'card' ? ['processes', 'all to all, HBM to HBM'] : ['nodes', `HBM to HBM over ${transports}`];
  return [
    `${file}: ${cards.length} ${who} with ${card} each`,
    `exchange slices of its first ${byteLength} bytes, ${path}`,
  ];
}

/** The paths of the bytes, as explain names them. */
function paths(rounds: readonly RoundResult[]): string[] {
  return rounds.flatMap(({ round, protocol, transport, note }) =>
    note === undefined ? [] : [`${round}: ${protocol} on ${transport} (${note})`],
  );
}

function differences(unit: string, { round, different }: RoundResult): string[] {
  return different.map((index) => `round ${round}: ${unit} ${index} has a DIFFERENT file`);
}

function formatMatrix(cards: readonly number[], matrix: readonly MatrixRow[]): string {
  const width = 6;
  const header = ['    ', ...cards.map((card) => String(card).padStart(width))];
  const rows = matrix.map((row, from) => [
    String(cards[from]).padEnd(4),
    ...row.map((rate) => rate.toFixed(2).padStart(width)),
  ]);
  return [header, ...rows].map((cells) => cells.join(' ')).join('\n');
}
