/** Requests that libucp does not end, over a clock that stands still: when they end, and when their memory is given back. */

import { beforeEach, describe, expect, it, vi } from 'vitest';
import { FakeLibucp } from '../../../test/fixtures/libucp/fake-libucp.ts';
import { ManualClock } from '../../ucs/sys/clock.ts';
import { Status } from '../../ucs/type/status.ts';
import { OverdueRequests } from './overdue-requests.ts';
import type { RequestEndpoint, UcpRequest } from './request.ts';

const LIMIT_NS = 2e9;

let libucp: FakeLibucp;
let clock: ManualClock;
let all: UcpRequest[];
let ends: [UcpRequest, Status][];
const onDue = vi.fn();
let overdue: OverdueRequests;

beforeEach(() => {
  libucp = new FakeLibucp();
  clock = new ManualClock();
  all = [];
  ends = [];
  onDue.mockClear();
  overdue = new OverdueRequests(libucp.functions, all, clock, onDue);
});

/** An endpoint whose handle can be dropped so often. */
function endpoint(drops = 0): RequestEndpoint & { status: Status } {
  let left = drops;
  return { status: Status.OK, dropHandle: vi.fn(() => left-- > 0) } as never;
}

function pending(of: RequestEndpoint, isLent = false) {
  const parts = { rkey: { unpin: vi.fn() }, scratch: { free: vi.fn() }, header: { free: vi.fn() } };
  const registration = { free: vi.fn() };
  const handle = libucp.request();
  const request = { endpoint: of, handle, isLent, pinned: new Uint8Array(4), registration, ...parts };
  all.push(request as unknown as UcpRequest);
  const released = (): readonly number[] =>
    [parts.rkey.unpin, parts.scratch.free, parts.header.free, registration.free].map((each) => each.mock.calls.length);
  return { request: request as unknown as UcpRequest, handle, released };
}

function progress(): void {
  overdue.progress((request, status) => {
    request.handle = 0;
    ends.push([request, status]);
  });
}

const expire = (): void => {
  clock.advance(LIMIT_NS);
  progress();
};

const [NONE, ONCE] = [
  [0, 0, 0, 0],
  [1, 1, 1, 1],
];

describe('requests of an endpoint that has failed', () => {
  it('end after the time limit, not before', () => {
    const [lost, other] = [endpoint(), endpoint()];
    const [first, second] = [pending(lost), pending(other)];
    overdue.expect(lost, Status.CONNECTION_RESET);
    clock.advance(LIMIT_NS - 1);
    expect([overdue.isDue, onDue.mock.calls.length]).toEqual([false, 0]);
    clock.advance(1);
    expect([overdue.isDue, onDue.mock.calls.length]).toEqual([true, 1]);
    progress();
    expect(ends).toEqual([[first.request, Status.CONNECTION_RESET]]);
    expect([overdue.isDue, overdue.has(first.handle), overdue.has(second.handle)]).toEqual([false, true, false]);
  });

  it('end with the status of the endpoint, if it has one', () => {
    const lost = endpoint();
    pending(lost);
    overdue.expect(lost, Status.CANCELED);
    lost.status = Status.ENDPOINT_TIMEOUT;
    expire();
    expect(ends.map(([, status]) => status)).toEqual([Status.ENDPOINT_TIMEOUT]);
  });

  it('are left to libucp once more, if closing the endpoint by force ends them', () => {
    const lost = endpoint(1);
    const { request } = pending(lost);
    overdue.expect(lost, Status.CONNECTION_RESET);
    expire();
    expect([lost.dropHandle, ends, clock.pendingTimers]).toEqual([expect.anything(), [], 1]);
    expire();
    expect(ends).toEqual([[request, Status.CONNECTION_RESET]]);
  });

  it('that libucp has ended in time do not end again', () => {
    const lost = endpoint();
    const { request } = pending(lost);
    overdue.expect(lost, Status.CONNECTION_RESET);
    request.handle = 0;
    expire();
    expect([ends, overdue.size]).toEqual([[], 0]);
  });

  it('have one time limit, and none if there are none', () => {
    const lost = endpoint();
    overdue.expect(lost, Status.CONNECTION_RESET);
    expect(clock.pendingTimers).toBe(0);
    pending(lost);
    overdue.expect(lost, Status.CONNECTION_RESET);
    clock.advance(1);
    overdue.expect(lost, Status.IO_ERROR);
    expect([clock.pendingTimers, clock.nextDeadlineNs]).toEqual([1, LIMIT_NS]);
  });
});

describe('what an overdue request uses', () => {
  function overdueOne(isLent = false) {
    const lost = endpoint();
    const one = pending(lost, isLent);
    overdue.expect(lost, Status.CONNECTION_RESET);
    expire();
    const { pinned, rkey, scratch, header, registration } = one.request;
    // Its end releases nothing that libucp still uses.
    expect([pinned, rkey, scratch, header, registration]).toEqual(Array.from({ length: 5 }, () => undefined));
    expect([one.released(), overdue.size]).toEqual([NONE, 1]);
    return one;
  }

  it('is kept until libucp has ended it', () => {
    const { handle, released } = overdueOne();
    overdue.poll();
    expect([released(), libucp.inUse]).toEqual([NONE, [handle]]);
    libucp.end(handle, Status.CANCELED);
    overdue.poll();
    overdue.poll();
    expect([released(), libucp.freed, overdue.size]).toEqual([ONCE, [handle], 0]);
  });

  it('is released when a callback of libucp reports its end; then the caller frees its request', () => {
    const { handle, released } = overdueOne();
    expect([overdue.ended(handle), released(), libucp.freed, overdue.has(handle)]).toEqual([true, ONCE, [], false]);
  });

  it('is in use until libucp has returned, if its request is in memory of the engine, which is not freed', () => {
    const { handle, released } = overdueOne(true);
    expect([overdue.ended(handle), released(), overdue.has(handle)]).toEqual([false, NONE, true]);
    libucp.end(handle, Status.CANCELED);
    overdue.poll();
    expect([released(), libucp.freed, overdue.has(handle)]).toEqual([ONCE, [], false]);
  });

  it('is released when the worker closes, and time limits are canceled', () => {
    const { released } = overdueOne();
    const late = endpoint();
    pending(late);
    overdue.expect(late, Status.CONNECTION_RESET);
    overdue.close();
    expect([released(), overdue.size, clock.pendingTimers]).toEqual([ONCE, 0, 0]);
  });
});
