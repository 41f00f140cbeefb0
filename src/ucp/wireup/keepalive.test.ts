/** The keepalive, over peers that are lost: what it reads before it says that they are gone. */

import { expect, it } from 'vitest';
import { ManualClock } from '../../ucs/sys/clock.ts';
import { Status } from '../../ucs/type/status.ts';
import type { PeerConnection } from '../base/peer-connection.ts';
import { Keepalive } from './keepalive.ts';

const INTERVAL_NS = 1e9;

/** A connection whose only lane says that its peer is gone. */
function lostConnection(): PeerConnection {
  return { lanes: [{ endpoint: { check: () => Status.ENDPOINT_TIMEOUT } }] } as unknown as PeerConnection;
}

/** The calls of progress and the reports of one check of a connection, which has ended after some calls of progress, each of which takes a message. */
function check(callsToEnd: number): { calls: number; gone: Status[] } {
  const connection = lostConnection();
  const clock = new ManualClock();
  const seen = { calls: 0, gone: [] as Status[] };
  const keepalive = new Keepalive(
    {
      ifaces: [],
      watched: () => (seen.calls < callsToEnd ? [connection] : []),
      progress: () => (++seen.calls < callsToEnd ? 1 : 0),
      onPeerGone: (_, status) => seen.gone.push(status),
    },
    clock,
    INTERVAL_NS,
  );
  keepalive.start();
  clock.advance(INTERVAL_NS);
  keepalive.close();
  return seen;
}

it('reads all messages of a lost peer, one of which may be its close message', () => {
  expect(check(100)).toEqual({ calls: 100, gone: [] });
});

it('reports a lost peer though messages never cease to come', () => {
  const { calls, gone } = check(Number.POSITIVE_INFINITY);
  expect(calls).toBeLessThan(10_000);
  expect(gone).toEqual([Status.ENDPOINT_TIMEOUT]);
});
