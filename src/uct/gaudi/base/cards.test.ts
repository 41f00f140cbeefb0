/** What errors say about several cards: a line for each text, with the ranges of the indices. */

import { expect, it } from 'vitest';
import { cardLines } from './cards.ts';

const card = (index: number | undefined): Parameters<typeof cardLines>[0][number] => {
  return { index, minor: 3, busId: '0000:19:00.0' };
};

it('shares a line between cards with the same text, and keeps the order of the texts', () => {
  const texts = ['busy', 'removed', 'busy', 'busy', 'failed', 'busy'];
  const cards = texts.map((_, index) => card(index));
  expect(cardLines(cards, ({ index }) => texts[index!]!)).toEqual([
    'cards 0, 2-3, 5: busy',
    'card 1 (accel3, 0000:19:00.0): removed',
    'card 4 (accel3, 0000:19:00.0): failed',
  ]);
});

it('sorts the indices, and names cards without one', () => {
  expect(cardLines([7, 3, 6, 5, 2].map(card), () => 'x')).toEqual(['cards 2-3, 5-7: x']);
  expect(cardLines([card(1), card(undefined)], () => 'x')).toEqual([
    'card 1 (accel3, 0000:19:00.0), card (accel3, 0000:19:00.0): x',
  ]);
  expect(cardLines([], () => 'x')).toEqual([]);
});
