/** Halves that wait for their clients: how many, and for how long. */

import { describe, expect, it } from 'vitest';
import { NO_ENDPOINT } from '../../api/layout/frame.ts';
import { ManualClock } from '../../ucs/sys/clock.ts';
import { Status } from '../../ucs/type/status.ts';
import type { Connection } from '../base/connection.ts';
import { ATTACHING_MAX, ATTACHING_PER_CLIENT_MAX, Attaching } from './sockets.ts';

const TIMEOUT_NS = 5e9;

function half(): Connection {
  return { remoteId: NO_ENDPOINT, failure: Status.OK } as Connection;
}

describe('Attaching', () => {
  it('refuses clients of one address, then of one listener, and takes them again when others have come or gone', () => {
    const clock = new ManualClock();
    const attaching = new Attaching(clock, () => undefined);
    const [listener, other] = [{}, {}];
    const halves = Array.from({ length: ATTACHING_MAX }, half);
    const clientOf = (i: number): string => (i < ATTACHING_PER_CLIENT_MAX ? '10.0.0.1' : `10.0.1.${i}`);
    for (const [i, each] of halves.entries()) {
      expect(attaching.rejectionOf(listener, clientOf(i))).toBeUndefined();
      attaching.add(each, listener, clientOf(i), TIMEOUT_NS);
    }
    expect(attaching.rejectionOf(listener, '10.0.2.1')).toMatch(/^1024 accepted clients/);
    expect(attaching.rejectionOf(other, '10.0.2.1')).toBeUndefined();
    expect(attaching.rejectionOf(other, '10.0.0.1')).toMatch(/^512 accepted clients from 10\.0\.0\.1/);
    attaching.delete(halves[0]!);
    attaching.delete(halves[0]!);
    expect(attaching.rejectionOf(listener, '10.0.0.1')).toBeUndefined();
    for (const each of halves) attaching.delete(each);
    expect(attaching.size).toBe(0);
    attaching.close();
    expect(clock.pendingTimers).toBe(0);
  });

  it('tells of those whose clients have not come in time, once, and of no others', () => {
    const clock = new ManualClock();
    const late: Connection[] = [];
    const attaching = new Attaching(clock, (connection) => late.push(connection));
    const listener = {};
    const [first, attached, failed, second] = [half(), half(), half(), half()];
    for (const each of [first, attached, failed]) attaching.add(each, listener, 'a', TIMEOUT_NS);
    clock.advance(1e9);
    attaching.add(second, listener, 'a', TIMEOUT_NS);
    attached.remoteId = 7;
    failed.failure = Status.CONNECTION_RESET;
    clock.advance(TIMEOUT_NS - 1e9);
    expect([late, attaching.size]).toEqual([[first], 1]);
    clock.advance(1e9);
    expect([late, attaching.size, clock.pendingTimers]).toEqual([[first, second], 0, 0]);
  });

  it('waits for ever without a time limit', () => {
    const clock = new ManualClock();
    const attaching = new Attaching(clock, () => undefined);
    attaching.add(half(), {}, 'a', Number.POSITIVE_INFINITY);
    expect([attaching.size, clock.pendingTimers]).toEqual([1, 0]);
  });
});
