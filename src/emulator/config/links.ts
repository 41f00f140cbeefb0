/**
 * Initial scale-up links of a node, as options and text: all to all, except named pairs. The links themselves are in link-table.ts.
 */

import { checkString } from '../../ucs/type/check-options.ts';
import { invalidParam } from '../../ucs/type/error.ts';

/** Two cards by minor. */
export type CardPair = readonly [number, number];

const SYNTAX = 'must be full, or ^ and the pairs of cards without a link, such as ^0-1,2-5';
const PAIR = /^(\d{1,2})-(\d{1,2})$/;

/**
 * Checks pairs against the cards of a node.
 * @throws UcxError ERR_INVALID_PARAM for a card that does not exist, or a pair of a card with itself
 */
export function checkLinks(absentLinks: readonly CardPair[], cards: number): void {
  if (!Array.isArray(absentLinks)) throw invalidParam('absentLinks', 'must be a list of pairs', absentLinks);
  for (const pair of absentLinks) {
    const known =
      Array.isArray(pair) &&
      pair.length === 2 &&
      pair.every((minor) => Number.isInteger(minor) && minor >= 0 && minor < cards);
    if (!known || pair[0] === pair[1]) {
      throw invalidParam('absentLinks', `must be pairs of two different cards from 0 to ${cards - 1}`, pair);
    }
  }
}

/**
 * Parses `full` or `^0-1,2-5`: all links except those between cards 0 and 1, and 2 and 5.
 * @returns the absent pairs
 * @throws UcxError ERR_INVALID_PARAM
 */
export function parseLinks(text: string): CardPair[] {
  checkString('links', text);
  if (text === 'full') return [];
  if (!text.startsWith('^')) throw invalidParam('links', SYNTAX, text);
  return text
    .slice(1)
    .split(',')
    .map((part) => {
      const match = PAIR.exec(part.trim());
      if (match === null) throw invalidParam('links', SYNTAX, text);
      return [Number(match[1]), Number(match[2])] as const;
    });
}

/** The text that {@link parseLinks} reads. */
export function printLinks(absentLinks: readonly CardPair[]): string {
  return absentLinks.length === 0 ? 'full' : `^${absentLinks.map((pair) => pair.join('-')).join(',')}`;
}
