/** The exchange as text of at most 80 columns. It measures and decides nothing. */

import { formatBytes, formatRate, formatTable, formatTime } from '../text-table.ts';
import { EMULATED_NOTE } from './emulated-note.ts';
import type { Round } from './exchange-messages.ts';

/** One round of all cards. */
export interface RoundResult {
  readonly round: Round;
  /** Bytes that went from card to card, and the time for all of them. */
  readonly bytes: number;
  readonly ns: number;
  readonly transport: string | undefined;
  readonly protocol: string | undefined;
  /** Logical indices of the cards whose file is another one. */
  readonly different: readonly number[];
}

/** GB/s from one card to each. */
export type MatrixRow = readonly number[];

/** All results. */
export interface ExchangeResult {
  readonly file: string;
  readonly byteLength: number;
  /** Logical indices of the cards. */
  readonly cards: readonly number[];
  readonly emulated: boolean;
  /** SHA-256 of what is exchanged. */
  readonly expected: string;
  readonly rounds: readonly RoundResult[];
  readonly matrix: readonly MatrixRow[];
  /** Bytes of one put of the matrix. */
  readonly measuredBytes: number;
}

/** The text, without a newline at its end. */
export function describeExchange(result: ExchangeResult): string {
  const { file, byteLength, cards, emulated, expected, rounds, matrix, measuredBytes } = result;
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
    `${file}: ${cards.length} processes with ${emulated ? 'an emulated Gaudi card' : 'a Gaudi card'} each`,
    `exchange slices of its first ${byteLength} bytes, all with all, HBM to HBM`,
    '',
    formatTable([['round', 'moved', 'time', 'GB/s', 'transport', 'protocol', 'same file'], ...rows]),
    'The put round is the first use of every remote key, which costs an import.',
    '',
    `sha-256 of it  ${expected}`,
    ...rounds.flatMap(differences),
    '',
    `GB/s${emulated ? ' (emulated)' : ''} by puts of ${formatBytes(measuredBytes)}, row to column, one pair at a time:`,
    formatMatrix(cards, matrix),
    ...(emulated ? ['', EMULATED_NOTE] : []),
  ].join('\n');
}

function differences({ round, different }: RoundResult): string[] {
  return different.map((card) => `round ${round}: card ${card} has a DIFFERENT file`);
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
