/** Names of cards: an index belongs to a bus id, whatever happens to other cards of the node. */

import { describe, expect, it } from 'vitest';
import { cardLabel, indexOf, namedCards } from './card-names.ts';
import type { AbsentCard, CardEntry } from './port.ts';

const entry = (minor: number, busId: string): CardEntry => {
  return { minor, busId, moduleId: undefined, numaNode: -1, path: `/dev/accel/accel${minor}` };
};
const CARDS = [entry(0, '0000:b3:00.0'), entry(1, '0000:19:00.0'), entry(2, '0000:33:00.0')];

function names(cards: readonly CardEntry[], absent: readonly AbsentCard[] = []): string[] {
  return namedCards({ cards: () => cards, absentCards: () => absent }).map(cardLabel);
}

describe('the names of cards', () => {
  const all = ['card 0 (accel1, 0000:19:00.0)', 'card 1 (accel2, 0000:33:00.0)', 'card 2 (accel0, 0000:b3:00.0)'];

  it('are in the order of the bus ids, whatever the minors', () => {
    expect(names(CARDS)).toEqual(all);
    expect(namedCards({ cards: () => CARDS })).toHaveLength(3);
    expect(indexOf({ cards: () => CARDS }, { busId: '0000:b3:00.0' })).toBe(2);
    expect(names([])).toEqual([]);
  });

  it.each([0, 1, 2])('stay while card %i is removed', (gone) => {
    const { minor, busId } = CARDS[gone]!;
    expect(names(CARDS.toSpliced(gone, 1), [{ minor, busId, state: 'removed' }])).toEqual(all);
    // Its driver has gone, and with it the minor.
    const unbound = names(CARDS.toSpliced(gone, 1), [{ minor: undefined, busId, state: 'no driver' }]);
    expect(unbound).toEqual(all.map((name) => (name.includes(busId) ? name.replace(/accel\d, /, '') : name)));
  });

  it('do not count the cards of other containers', () => {
    expect(names(CARDS, [{ minor: undefined, busId: '0000:01:00.0', state: 'no device node' }])).toEqual(all);
  });
});
