/** Which unauthenticated peer is evicted at the bounds. */

import { describe, expect, it } from 'vitest';
import { UnauthenticatedPeers } from './unauthenticated-peers.ts';

const PEERS = Array.from({ length: 8 }, (_, id) => ({ id }));

describe('UnauthenticatedPeers', () => {
  it('evicts the oldest peer of an address that has half of the places, then the oldest of all', () => {
    const unauthenticatedPeers = new UnauthenticatedPeers<{ id: number }>(4);
    unauthenticatedPeers.add(PEERS[0]!, 'a');
    unauthenticatedPeers.add(PEERS[1]!, 'b');
    unauthenticatedPeers.add(PEERS[2]!, 'b');
    expect([unauthenticatedPeers.excess('a'), unauthenticatedPeers.excess('c')]).toEqual([undefined, undefined]);
    expect(unauthenticatedPeers.excess('b')).toBe(PEERS[1]);
    unauthenticatedPeers.add(PEERS[3]!, 'c');
    expect([
      unauthenticatedPeers.excess('a'),
      unauthenticatedPeers.excess('b'),
      unauthenticatedPeers.excess('d'),
    ]).toEqual([PEERS[0], PEERS[1], PEERS[0]]);
    unauthenticatedPeers.delete(PEERS[0]!);
    unauthenticatedPeers.delete(PEERS[0]!);
    expect([unauthenticatedPeers.size, unauthenticatedPeers.excess('a'), unauthenticatedPeers.excess('b')]).toEqual([
      3,
      undefined,
      PEERS[1],
    ]);
  });

  it('has room for at least one', () => {
    const unauthenticatedPeers = new UnauthenticatedPeers<{ id: number }>(1);
    expect(unauthenticatedPeers.excess('a')).toBeUndefined();
    unauthenticatedPeers.add(PEERS[0]!, 'a');
    expect([unauthenticatedPeers.excess('a'), unauthenticatedPeers.excess('b')]).toEqual([PEERS[0], PEERS[0]]);
  });
});
