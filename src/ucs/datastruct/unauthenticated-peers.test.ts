/** Which unauthenticated peer is evicted at the bounds. */

import { describe, expect, it, vi } from 'vitest';
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

  it('has room for another peer of an address when one has left', () => {
    const peers = new UnauthenticatedPeers<object>(4);
    const [first, second] = [{}, {}];
    peers.add(first, 'a');
    peers.add(second, 'a');
    expect(peers.excess('a')).toBe(first);
    peers.delete(first);
    expect(peers.excess('a')).toBeUndefined();
  });

  it('keeps no address whose peers are gone, of which there can be any number', () => {
    const forget = vi.spyOn(Map.prototype, 'delete');
    try {
      const peers = new UnauthenticatedPeers<object>(8);
      const [first, second] = [{}, {}];
      peers.add(first, 'fd00::7');
      peers.add(second, 'fd00::7');
      const gone = (): boolean => forget.mock.calls.some(([key]) => key === 'fd00::7');
      peers.delete(first);
      expect(gone()).toBe(false);
      peers.delete(second);
      expect(gone()).toBe(true);
    } finally {
      forget.mockRestore();
    }
  });
});
