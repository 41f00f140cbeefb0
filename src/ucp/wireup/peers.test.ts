/** The lists of a worker about its peers: which it remembers, which connections wait for resources, and which requests for descriptors. */

import { describe, expect, it } from 'vitest';
import type { Connection } from '../base/connection.ts';
import { IDLE_PEERS_MAX, Peers, PendingConnections } from './peers.ts';

const CONNECTION = {} as Connection;

function addressOf(number: number): Uint8Array {
  return Uint8Array.of(number & 255, number >> 8);
}

describe('the peers', () => {
  it('without connections are remembered up to a number, the newest', () => {
    const peers = new Peers();
    for (let i = 0; i <= IDLE_PEERS_MAX; i++) peers.release(peers.get(addressOf(i), i));
    expect([peers.size, peers.find(addressOf(0)), peers.find(addressOf(1))?.next]).toEqual([
      IDLE_PEERS_MAX,
      undefined,
      1,
    ]);
  });

  it('with connections are remembered, also if they had none for a while', () => {
    const peers = new Peers();
    const known = peers.get(addressOf(0));
    peers.release(known);
    expect(peers.get(addressOf(0), 5)).toBe(known);
    known.own.set(0, CONNECTION);
    peers.release(known);
    for (let i = 1; i <= IDLE_PEERS_MAX + 1; i++) peers.release(peers.get(addressOf(i)));
    expect([peers.find(addressOf(0)), known.next, peers.size]).toEqual([known, 0, IDLE_PEERS_MAX + 1]);
  });
});

describe('connections that wait for resources', () => {
  function connection(left: number, isUnreported = false) {
    const made = {
      left,
      isUnreported,
      restart() {
        made.left -= 1;
        return 1;
      },
      get isDrained() {
        return made.left === 0;
      },
    };
    return made;
  }

  it('are tried until nothing waits on them, and a failure within a call is reported once', () => {
    const [one, two] = [connection(1), connection(3, true)];
    const waiting = new Set([one, two] as unknown as Connection[]);
    const failed: unknown[] = [];
    const pending = new PendingConnections(waiting, (each) => failed.push(each));
    const started = [0, 1, 2, 3].map(() => pending.restart());
    expect([started, pending.size, [one.left, two.left]]).toEqual([[2, 1, 1, 0], 0, [0, 0]]);
    expect(failed).toEqual([two]);
  });
});
