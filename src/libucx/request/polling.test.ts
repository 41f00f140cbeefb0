/** The detection of ends over a fake libucp: by polling, by its callbacks, and by nobody once an endpoint has failed. */

import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import { FakeRequests } from '../../../test/fixtures/libucp/fake-libucp.ts';
import { Status } from '../../ucs/type/status.ts';
import { type RequestEndpoint, RequestKind, RequestState, type UcpRequest } from './request.ts';

const POLLED_MAX = 4;
const SPENT_MAX = 16;
const QUIET_CALLS = 64;
const LIMIT_NS = 2e9;

let fake: FakeRequests;
beforeEach(() => {
  fake = new FakeRequests();
});
afterEach(() => fake[Symbol.dispose]());

interface Started {
  readonly request: UcpRequest;
  readonly handle: number;
}

function start(kind: RequestKind = RequestKind.SEND, callback?: () => void): Started {
  const request = fake.requests.begin(kind, 'tag/libucp')!;
  const handle = fake.libucp.request();
  fake.requests.started(request, handle, { callback });
  return { request, handle };
}

/** Starts operations until one is reported by a callback of libucp. */
function startReported(kind: RequestKind = RequestKind.SEND): Started {
  for (;;) {
    const started = start(kind);
    if (started.request.state === RequestState.REPORTED) return started;
  }
}

const progress = (events = 1): number => fake.requests.polling.progress(events);
const report = ({ request, handle }: Started, status: Status = Status.OK): void =>
  fake.libucp.report(fake.requests.polling.callbackOf[request.kind]!, handle, request.index, status);

function endpoint(fields: Partial<RequestEndpoint> = {}): RequestEndpoint {
  const own = { status: Status.OK, cause: undefined, peerId: '', isBorrowed: false, onFailed: vi.fn() };
  return { ...own, dropHandle: vi.fn(() => false), ...fields };
}

describe('polling', () => {
  it('covers a few operations, whose callbacks run in progress in the order of their starts', () => {
    const order: number[] = [];
    const all = Array.from({ length: POLLED_MAX + 1 }, (_, index) =>
      start(RequestKind.SEND, () => void order.push(index)),
    );
    expect(all.map(({ request }) => request.state)).toEqual([
      ...Array.from({ length: POLLED_MAX }, () => RequestState.POLLED),
      RequestState.REPORTED,
    ]);
    for (const index of [2, 0]) fake.libucp.end(all[index]!.handle);
    expect([progress(), order]).toEqual([2, [0, 2]]);
    for (const index of [1, 3]) fake.libucp.end(all[index]!.handle);
    expect([progress(), order, fake.requests.polling.inProgress]).toEqual([2, [0, 2, 1, 3], 1]);
  });

  it('takes the tag and the length of each receive', () => {
    const [first, second] = [start(RequestKind.TAG_RECV), start(RequestKind.TAG_RECV)];
    fake.libucp.end(first.handle, Status.OK, { tag: 2n ** 63n + 1n, byteLength: 2 ** 33 });
    fake.libucp.end(second.handle, Status.OK, { tag: 7n, byteLength: 9 });
    expect(progress()).toBe(2);
    expect([first.request.senderTag, first.request.receivedBytes]).toEqual([2n ** 63n + 1n, 2 ** 33]);
    expect([second.request.senderTag, second.request.receivedBytes]).toEqual([7n, 9]);
  });

  it('happens without a report of libucp at every 64th progress', () => {
    const { request, handle } = start();
    fake.libucp.end(handle);
    for (let i = 1; i < QUIET_CALLS; i++) progress(0);
    expect(request.isCompleted).toBe(false);
    progress(0);
    expect(request.isCompleted).toBe(true);
  });

  it('happens before sleeping: the worker does not sleep with ended operations', () => {
    const { request, handle } = start();
    expect(fake.requests.polling.checkEnded()).toBe(false);
    fake.libucp.end(handle);
    expect(fake.requests.polling.checkEnded()).toBe(true);
    expect(fake.requests.polling.hasEnded).toBe(true);
    expect([progress(0), request.isCompleted, fake.requests.polling.hasEnded]).toEqual([1, true, false]);
  });

  it('reports the failure of a single operation', () => {
    const { request, handle } = start();
    fake.libucp.end(handle, Status.IO_ERROR);
    expect([progress(), request.status, fake.requests.polling.inProgress]).toEqual([1, Status.IO_ERROR, 0]);
  });

  it.each([Status.OK, Status.IO_ERROR])(
    'leaves the end to an operation that continues without libucp, after %i',
    (status) => {
      const { request, handle } = start();
      const deferEnd = vi.fn(() => true);
      request.deferEnd = deferEnd;
      fake.libucp.end(handle, status);
      progress();
      expect([deferEnd.mock.calls, request.isCompleted]).toEqual([[[request, status]], false]);
    },
  );
});

describe('a callback of libucp', () => {
  it('ends its operation in the next progress, not inside the call of C', () => {
    const callback = vi.fn();
    const started = startReported();
    started.request.callback = callback;
    report(started);
    expect([callback.mock.calls.length, started.request.isCompleted]).toEqual([0, false]);
    expect(fake.requests.polling.hasEnded).toBe(true);
    progress();
    expect(callback.mock.calls).toEqual([[started.request, Status.OK]]);
    started.request.free();
    progress(0);
    expect(fake.libucp.freed).toEqual([started.handle]);
  });

  it('inside the call that starts the operation ends it once', () => {
    for (let i = 0; i < POLLED_MAX; i++) start();
    const request = fake.requests.begin(RequestKind.SEND, 'tag/libucp')!;
    const handle = fake.libucp.request();
    report({ request, handle });
    fake.requests.started(request, handle, undefined);
    expect([request.handle, fake.requests.polling.inProgress]).toEqual([0, POLLED_MAX]);
    expect([progress(), request.isCompleted]).toEqual([1, true]);
    request.free();
    progress(0);
    expect(fake.libucp.freed).toEqual([handle]);
  });

  it('gives a receive its tag and length', () => {
    const { request, handle } = startReported(RequestKind.TAG_RECV);
    const message = { tag: 2n ** 63n + 5n, byteLength: 2 ** 32 + 3 };
    const callback = fake.requests.polling.callbackOf[RequestKind.TAG_RECV]!;
    fake.libucp.reportTagged(callback, handle, request.index, message);
    progress();
    expect([request.senderTag, request.receivedBytes]).toEqual([message.tag, message.byteLength]);
  });

  it('gives a receive of an active message its length', () => {
    const { request, handle } = start(RequestKind.AM_RECV);
    expect(request.state).toBe(RequestState.REPORTED);
    fake.libucp.reportData(fake.requests.polling.callbackOf[RequestKind.AM_RECV]!, handle, request.index, 77);
    progress();
    expect([request.status, request.receivedBytes]).toEqual([Status.OK, 77]);
  });
});

describe('a callback of the program that throws', () => {
  it('makes progress throw; the others run in the next one', () => {
    const others = vi.fn();
    const all = [
      start(RequestKind.SEND, () => {
        throw new Error('thrown');
      }),
      start(RequestKind.SEND, others),
    ];
    for (const { handle } of all) fake.libucp.end(handle);
    expect(() => progress()).toThrow('thrown');
    expect(others).not.toHaveBeenCalled();
    expect([progress(0), others.mock.calls.length]).toEqual([1, 1]);
  });
});

describe('requests of libucp that have ended', () => {
  function freeAll(count: number): void {
    const all = Array.from({ length: count }, () => startReported());
    for (const each of all) report(each);
    progress();
    for (const { request } of all) request.free();
  }

  it('are freed when there is nothing else to do, or when there are many', () => {
    freeAll(SPENT_MAX - 1);
    progress(1);
    expect(fake.libucp.freed).toEqual([]);
    freeAll(1);
    progress(1);
    expect(fake.libucp.freed.length).toBe(SPENT_MAX);
    freeAll(1);
    progress(0);
    expect(fake.libucp.freed.length).toBe(SPENT_MAX + 1);
  });
});

describe('the requests of an endpoint', () => {
  it('that has failed end with its failure', () => {
    const { request, handle } = start();
    request.endpoint = endpoint({ status: Status.CONNECTION_RESET, cause: 'cause' });
    fake.libucp.end(handle, Status.CANCELED);
    progress();
    progress();
    expect([request.status, request.error]).toEqual([Status.CONNECTION_RESET, 'cause']);
  });

  it('that has failed end with CANCELED, if the program has canceled them', () => {
    const { request } = start();
    request.endpoint = endpoint({ status: Status.CONNECTION_RESET, cause: 'cause' });
    expect(request.cancel()).toBe(true);
    expect([request.status, request.error]).toEqual([Status.CANCELED, undefined]);
  });

  it('that has failed succeed all the same, if their operations have', () => {
    const all = [start(), start()];
    for (const { request, handle } of all) {
      request.endpoint = endpoint({ status: Status.CONNECTION_RESET });
      fake.libucp.end(handle);
    }
    progress();
    expect(all.map(({ request }) => request.status)).toEqual([Status.OK, Status.OK]);
  });

  it.each([
    [true, Status.CONNECTION_RESET, 1],
    [true, Status.ENDPOINT_TIMEOUT, 1],
    [true, Status.IO_ERROR, 0],
    [false, Status.CONNECTION_RESET, 0],
  ])('that is borrowed (%s) report with %i that it is lost: %i time limits', (isBorrowed, status, limits) => {
    const lost = endpoint({ isBorrowed });
    const [first, second] = [start(), start()];
    first.request.endpoint = lost;
    second.request.endpoint = lost;
    fake.libucp.end(first.handle, status);
    progress();
    expect([first.request.status, fake.clock.pendingTimers]).toEqual([status, limits]);
    fake.clock.advance(LIMIT_NS);
    expect([fake.requests.polling.checkEnded(), fake.events.onDue.mock.calls.length]).toEqual([limits === 1, limits]);
    progress(0);
    expect([second.request.isCompleted, second.request.status]).toEqual(
      limits === 1 ? [true, status] : [false, Status.INPROGRESS],
    );
  });

  it('that libucp does not end are not asked about any more, and are freed when it ends them after all', () => {
    const first = start();
    const second = start();
    first.request.endpoint = endpoint();
    fake.requests.polling.overdue.expect(first.request.endpoint, Status.CONNECTION_RESET);
    fake.clock.advance(LIMIT_NS);
    progress(0);
    expect([first.request.status, fake.requests.polling.overdue.size]).toEqual([Status.CONNECTION_RESET, 1]);
    first.request.free();
    fake.libucp.end(second.handle);
    progress();
    second.request.free();
    progress(0);
    expect(fake.libucp.inUse).toEqual([first.handle]);
    fake.libucp.end(first.handle);
    for (let i = 0; i < QUIET_CALLS; i++) progress(0);
    expect([fake.libucp.inUse, fake.requests.polling.overdue.size]).toEqual([[], 0]);
  });

  it('that a callback reports late are freed, and end nothing again', () => {
    const late = startReported();
    late.request.endpoint = endpoint();
    fake.requests.polling.overdue.expect(late.request.endpoint, Status.CONNECTION_RESET);
    fake.clock.advance(LIMIT_NS);
    progress(0);
    late.request.free();
    const { inProgress } = fake.requests.polling;
    const next = start();
    expect(next.request.index).toBe(late.request.index);
    report(late);
    expect([fake.requests.polling.inProgress, next.request.isCompleted]).toEqual([inProgress + 1, false]);
    progress(0);
    expect(fake.libucp.freed).toEqual([late.handle]);
  });
});

describe('a receive that ended without libucp', () => {
  it('does not change the length of the next one, when libucp ends it after all', () => {
    const late = start(RequestKind.AM_RECV);
    late.request.endpoint = endpoint();
    fake.requests.polling.overdue.expect(late.request.endpoint, Status.CONNECTION_RESET);
    fake.clock.advance(LIMIT_NS);
    progress(0);
    late.request.free();
    const next = start(RequestKind.AM_RECV);
    expect(next.request).toBe(late.request);
    const callback = fake.requests.polling.callbackOf[RequestKind.AM_RECV]!;
    fake.libucp.reportData(callback, next.handle, next.request.index, 5);
    fake.libucp.reportData(callback, late.handle, late.request.index, 99);
    progress();
    expect(next.request.receivedBytes).toBe(5);
  });
});

describe('a flush of the worker', () => {
  function flush(): Started {
    const request = fake.requests.begin(RequestKind.SEND, 'flush')!;
    fake.requests.polling.followWalk(request);
    const handle = fake.libucp.request();
    fake.requests.started(request, handle, undefined);
    return { request, handle };
  }

  it('is polled without a sleep until it has ended', () => {
    const { polling } = fake.requests;
    expect(polling.isWalking).toBe(false);
    const [first, second] = [flush(), flush()];
    fake.libucp.end(first.handle);
    progress();
    expect([first.request.isCompleted, polling.isWalking]).toEqual([true, true]);
    fake.libucp.end(second.handle);
    progress();
    expect(polling.isWalking).toBe(false);
  });

  it('is polled again at intervals only, after a second', () => {
    flush();
    fake.clock.advance(1e9 - 1);
    expect(fake.requests.polling.isWalking).toBe(true);
    fake.clock.advance(1);
    expect(fake.requests.polling.isWalking).toBe(false);
  });

  it('is not counted if libucp has not started it', () => {
    const request = fake.requests.begin(RequestKind.SEND, 'flush')!;
    fake.requests.polling.followWalk(request);
    fake.requests.started(request, Status.IO_ERROR, undefined);
    expect(fake.requests.polling.isWalking).toBe(false);
  });
});

describe('requests that are abandoned', () => {
  it('include those that ended without libucp', () => {
    const late = start();
    late.request.endpoint = endpoint();
    fake.requests.polling.overdue.expect(late.request.endpoint, Status.CONNECTION_RESET);
    fake.clock.advance(LIMIT_NS);
    progress(0);
    expect(fake.requests.polling.abandonAll()).toEqual({ sends: 1, others: 0 });
  });

  it('end with CANCELED; those that have ended are freed', () => {
    const ended = start();
    fake.libucp.end(ended.handle);
    progress();
    const all = [start(), startReported(), start(RequestKind.AM_RECV)];
    const counts = fake.requests.polling.abandonAll();
    expect(fake.libucp.freed).toEqual([ended.handle]);
    expect(counts).toEqual({ sends: POLLED_MAX + 1, others: 1 });
    progress();
    expect(all.map(({ request }) => request.status)).toEqual(all.map(() => Status.CANCELED));
    expect([ended.request.status, fake.requests.polling.inProgress]).toEqual([Status.OK, 0]);
  });
});
