/** Endpoints to processes that end, over a function that replaces the look at /proc. */

import { beforeEach, describe, expect, it } from 'vitest';
import type { ProcessIdentity } from '../../sys/index.ts';
import { ManualClock } from '../../ucs/sys/clock.ts';
import { Status } from '../../ucs/type/status.ts';
import type { EngineEndpoint } from '../engine/engine.ts';
import { EndedPeers } from './ended-peers.ts';

const SECOND_NS = 1e9;
const FIRST: ProcessIdentity = { pidNamespace: 1, pid: 4711, startTime: 5 };
/** A process that got the same id later. */
const SECOND: ProcessIdentity = { ...FIRST, startTime: 6 };

let clock: ManualClock;
let endedStart: number;
let dueCalls: number;
let peers: EndedPeers;

beforeEach(() => {
  clock = new ManualClock();
  endedStart = 0;
  dueCalls = 0;
  peers = new EndedPeers(
    clock,
    () => {
      dueCalls += 1;
    },
    ({ startTime }) => startTime === endedStart,
  );
});

function watched(process: ProcessIdentity): { readonly endpoint: EngineEndpoint; readonly failures: unknown[] } {
  const failures: unknown[] = [];
  const endpoint = {
    status: Status.OK as Status,
    onFailed(this: { status: Status }, status: Status, closedByPeer: boolean, cause: Error) {
      this.status = status;
      failures.push([status, closedByPeer, cause.message]);
    },
  } as unknown as EngineEndpoint;
  peers.watch(endpoint, process);
  return { endpoint, failures };
}

describe('a process of a peer', () => {
  it('that ends fails its endpoints once, after a progress that handles its last messages', () => {
    const [one, other, later] = [watched(FIRST), watched(FIRST), watched(SECOND)];
    clock.advance(SECOND_NS);
    expect([peers.isDue, dueCalls]).toEqual([false, 0]);
    endedStart = FIRST.startTime;
    clock.advance(SECOND_NS);
    expect([peers.isDue, dueCalls]).toEqual([true, 1]);
    expect(peers.progress()).toBe(0);
    expect(one.failures).toEqual([]);
    clock.advance(SECOND_NS);
    expect([peers.isDue, dueCalls]).toEqual([true, 2]);
    expect(peers.progress()).toBe(2);
    const failure = [
      Status.ENDPOINT_TIMEOUT,
      false,
      expect.stringMatching(/^cannot reach the peer: its process 4711 has ended: /),
    ];
    expect([one.failures, other.failures, later.failures]).toEqual([[failure], [failure], []]);
    clock.advance(SECOND_NS);
    expect(peers.isDue).toBe(false);
  });

  it('whose worker makes no progress fails its endpoints only after one', () => {
    const { failures } = watched(FIRST);
    endedStart = FIRST.startTime;
    clock.advance(3 * SECOND_NS);
    expect(peers.progress()).toBe(0);
    clock.advance(SECOND_NS);
    expect(peers.progress()).toBe(1);
    expect(failures).toHaveLength(1);
  });

  it('that has failed or closed an endpoint before leaves it as it is', () => {
    const [failed, closed] = [watched(FIRST), watched(FIRST)];
    endedStart = FIRST.startTime;
    clock.advance(SECOND_NS);
    peers.progress();
    failed.endpoint.onFailed(Status.CONNECTION_RESET, true, new Error('closed by the peer'));
    peers.forget(closed.endpoint);
    clock.advance(SECOND_NS);
    expect(peers.progress()).toBe(0);
    expect([failed.failures, closed.failures]).toEqual([[[Status.CONNECTION_RESET, true, 'closed by the peer']], []]);
  });

  it('is looked at while it has endpoints', () => {
    const { endpoint } = watched(FIRST);
    peers.forget(endpoint);
    endedStart = FIRST.startTime;
    clock.advance(2 * SECOND_NS);
    expect([peers.isDue, dueCalls]).toEqual([false, 0]);
    peers.close();
  });
});
