/** The time limit for the first answer of a program that does not use this library, over functions that replace libucp. */

import { beforeEach, describe, expect, it } from 'vitest';
import { ManualClock } from '../../ucs/sys/clock.ts';
import { Status } from '../../ucs/type/status.ts';
import type { LibucpFunctions } from '../c/functions.ts';
import type { EngineEndpoint } from '../engine/engine.ts';
import { ANSWER_LIMIT_S, UnprovenPeers } from './unproven-peers.ts';

const LIMIT_NS = ANSWER_LIMIT_S * 1e9;

/** Flushes by their handle: the status of each. */
let flushes: Map<number, Status>;
let clock: ManualClock;
let peers: UnprovenPeers;
let dueCalls: number;

beforeEach(() => {
  flushes = new Map();
  clock = new ManualClock();
  dueCalls = 0;
  const functions = {
    ucp_ep_flush_nbx: (ep: number) => (flushes.has(ep) ? ep : Status.OK),
    ucp_request_check_status: (flush: number) => flushes.get(flush),
    ucp_request_free: (flush: number) => flushes.delete(flush),
  } as unknown as LibucpFunctions;
  peers = new UnprovenPeers(functions, 0, clock, () => {
    dueCalls += 1;
  });
});

/** An endpoint whose flush does not end at once. */
function endpointTo(handle: number): { readonly endpoint: EngineEndpoint; readonly failures: unknown[] } {
  flushes.set(handle, Status.INPROGRESS);
  return connectedTo(handle);
}

function connectedTo(handle: number): { readonly endpoint: EngineEndpoint; readonly failures: unknown[] } {
  const failures: unknown[] = [];
  const endpoint = {
    handle,
    status: Status.OK as Status,
    onFailed(status: Status, _closedByPeer: boolean, cause: Error) {
      this.status = status;
      failures.push([status, cause.message]);
    },
  };
  return { endpoint: endpoint as unknown as EngineEndpoint, failures };
}

describe('a peer', () => {
  it('that does not answer fails its endpoint once, with the reason', () => {
    const { endpoint, failures } = endpointTo(5);
    peers.expect(endpoint);
    clock.advance(LIMIT_NS - 1);
    expect([peers.isDue, peers.size]).toEqual([false, 1]);
    clock.advance(1);
    expect(peers.isDue).toBe(true);
    expect(dueCalls).toBe(1);
    expect(peers.progress()).toBe(1);
    clock.advance(3 * LIMIT_NS);
    expect(peers.progress()).toBe(0);
    expect(failures).toEqual([[Status.UNREACHABLE, expect.stringMatching(/no reply within 30 s.*UCX_TLS/)]]);
  });

  it('that answers is forgotten', () => {
    const [first, second] = [endpointTo(5), endpointTo(6)];
    peers.expect(first.endpoint);
    peers.expect(second.endpoint);
    flushes.set(5, Status.OK);
    clock.advance(LIMIT_NS);
    peers.progress();
    expect(first.failures).toEqual([]);
    expect(second.failures).toHaveLength(1);
    expect([...flushes.keys()]).toEqual([6]);
  });

  it('that needs no answer is not waited for', () => {
    peers.expect(connectedTo(5).endpoint);
    clock.advance(2 * LIMIT_NS);
    expect([peers.isDue, peers.size, dueCalls]).toEqual([false, 0, 0]);
  });
});
