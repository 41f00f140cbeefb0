/** The keepalive, over peers that are lost: what it reads before it says that they are gone. */

import { expect, it, vi } from 'vitest';
import { useUncaught } from '../../../test/fixtures/processes/uncaught.ts';
import { ManualClock } from '../../ucs/sys/clock.ts';
import { Status } from '../../ucs/type/status.ts';
import type { Connection } from '../base/connection.ts';
import { Keepalive } from './keepalive.ts';

const INTERVAL_NS = 1e9;

/** A connection whose only lane says that its peer is gone. */
function lostConnection(): Connection {
  return { lanes: [{ endpoint: { check: () => Status.ENDPOINT_TIMEOUT } }] } as unknown as Connection;
}

const uncaught = useUncaught();

/**
 * The calls of progress and the reports of one check of a connection, which has ended after some calls of progress, each of which takes a message.
 * @param handler the application's, of the messages
 */
function check(callsToEnd: number, handler = (): void => {}): { calls: number; gone: Status[] } {
  const connection = lostConnection();
  const clock = new ManualClock();
  const seen = { calls: 0, gone: [] as Status[] };
  const keepalive = new Keepalive(
    {
      ifaces: [],
      watched: () => (seen.calls < callsToEnd ? [connection] : []),
      heldUp: () => new Set(),
      progress: () => {
        seen.calls += 1;
        handler();
        return seen.calls < callsToEnd ? 1 : 0;
      },
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

it('reports a lost peer though the handler of its messages throws', async () => {
  const error = new Error('of the handler');
  const handler = vi.fn().mockImplementationOnce(() => {
    throw error;
  });
  expect(check(Number.POSITIVE_INFINITY, handler).gone).toEqual([Status.ENDPOINT_TIMEOUT]);
  await new Promise(setImmediate);
  expect(uncaught).toEqual([error]);
});

/** What is reported of a running lane while a cancelled request is held up at the checks that say so. */
function heldUpAt(...checks: readonly boolean[]): Status[][] {
  const connection = { lanes: [{ endpoint: { check: () => Status.OK } }] } as unknown as Connection;
  const clock = new ManualClock();
  const gone: Status[] = [];
  let isHeldUp = false;
  const keepalive = new Keepalive(
    {
      ifaces: [],
      watched: () => [connection],
      heldUp: () => new Set(isHeldUp ? [connection] : []),
      progress: () => 0,
      onPeerGone: (_, status) => gone.push(status),
    },
    clock,
    INTERVAL_NS,
  );
  keepalive.start();
  const reports = checks.map((now) => {
    isHeldUp = now;
    clock.advance(INTERVAL_NS);
    return gone.splice(0);
  });
  keepalive.close();
  return reports;
}

it('reports a peer that holds up a cancelled request at two checks in a row', () => {
  expect(heldUpAt(true, false, true, true)).toEqual([[], [], [], [Status.ENDPOINT_TIMEOUT]]);
});
