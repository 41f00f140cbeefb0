/** Which of those who have not shown who they are has to go. */

import { describe, expect, it } from 'vitest';
import { Strangers } from './strangers.ts';

const PEERS = Array.from({ length: 8 }, (_, id) => ({ id }));

describe('Strangers', () => {
  it('lets the oldest of an address go first that has half of the places, then the oldest of all', () => {
    const strangers = new Strangers<{ id: number }>(4);
    strangers.add(PEERS[0]!, 'a');
    strangers.add(PEERS[1]!, 'b');
    strangers.add(PEERS[2]!, 'b');
    expect([strangers.excess('a'), strangers.excess('c')]).toEqual([undefined, undefined]);
    expect(strangers.excess('b')).toBe(PEERS[1]);
    strangers.add(PEERS[3]!, 'c');
    expect([strangers.excess('a'), strangers.excess('b'), strangers.excess('d')]).toEqual([
      PEERS[0],
      PEERS[1],
      PEERS[0],
    ]);
    strangers.delete(PEERS[0]!);
    strangers.delete(PEERS[0]!);
    expect([strangers.size, strangers.excess('a'), strangers.excess('b')]).toEqual([3, undefined, PEERS[1]]);
  });

  it('has a place for one at least', () => {
    const strangers = new Strangers<{ id: number }>(1);
    expect(strangers.excess('a')).toBeUndefined();
    strangers.add(PEERS[0]!, 'a');
    expect([strangers.excess('a'), strangers.excess('b')]).toEqual([PEERS[0], PEERS[0]]);
  });
});
