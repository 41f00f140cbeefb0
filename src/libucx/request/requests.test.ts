/** Requests over a fake libucp: what is returned, when callbacks run, and that each request of libucp is freed exactly once. */

import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import { FakeLibucp, FakeRequests } from '../../../test/fixtures/libucp/fake-libucp.ts';
import type { Request } from '../../api/contract/request.ts';
import { operationEnd } from '../../ucs/debug/diagnostics.ts';
import { Status } from '../../ucs/type/status.ts';
import type { UcpRemoteKey } from '../mem/remote-key.ts';
import { type RequestEndpoint, RequestKind, RequestState, TRANSPORT, type UcpRequest } from './request.ts';

const MESSAGE = { tag: 0x1234_5678_9abc_def0n, byteLength: 24 };

let fake: FakeRequests;
beforeEach(() => {
  fake = new FakeRequests();
});
afterEach(() => fake[Symbol.dispose]());

function begin(kind: RequestKind = RequestKind.SEND, protocol = 'tag/libucp'): UcpRequest {
  const request = fake.requests.begin(kind, protocol)!;
  request.transport = TRANSPORT;
  return request;
}

/** A send that continues after its call. */
function send(params = {}): { readonly request: UcpRequest; readonly handle: number } {
  const request = begin();
  const handle = fake.libucp.request();
  expect(fake.requests.started(request, handle, params)).toBe(request);
  return { request, handle };
}

const progress = (events = 1): number => fake.requests.polling.progress(events);
/** Progress without events frees what has ended. */
const settle = (): void => {
  progress(0);
};

describe('an operation that ends in its call', () => {
  it.each([
    [0, Status.OK],
    [Status.IO_ERROR, Status.IO_ERROR],
  ])('with %i returns %i, and its request is free again', (pointer, status) => {
    const callback = vi.fn();
    expect(fake.requests.started(begin(), pointer, { callback })).toBe(status);
    expect([fake.requests.inUse, callback.mock.calls, fake.events.onStarted.mock.calls]).toEqual([0, [], []]);
  });

  it('returns its request, with its callback called, if the program wants one in any case', () => {
    const callback = vi.fn();
    const params = { callback, userData: 7, noImmediateCompletion: true };
    const request = fake.requests.started(begin(), 0, params) as Request;
    expect(callback.mock.calls).toEqual([[request, Status.OK]]);
    expect([request.status, request.userData, fake.requests.inUse]).toEqual([Status.OK, 7, 1]);
    request.free();
    expect(fake.requests.inUse).toBe(0);
  });

  it('returns its status if that callback has freed its request', () => {
    const params = { callback: (request: Request) => request.free(), noImmediateCompletion: true };
    expect(fake.requests.started(begin(), Status.IO_ERROR, params)).toBe(Status.IO_ERROR);
    expect(fake.requests.inUse).toBe(0);
  });
});

describe('a receive that matches at once', () => {
  it.each([undefined, { noImmediateCompletion: true }])('releases its request of libucp, with %j', (params) => {
    const request = begin(RequestKind.TAG_RECV);
    const pointer = fake.libucp.request(Status.OK, MESSAGE);
    const received = fake.requests.receiveStarted(request, pointer, params);
    expect(fake.libucp.freed).toEqual([pointer]);
    expect([request.senderTag, request.receivedBytes]).toEqual([MESSAGE.tag, MESSAGE.byteLength]);
    if (params === undefined) expect([received, fake.requests.inUse]).toEqual([Status.OK, 0]);
    else (received as Request).free();
    settle();
    expect([fake.libucp.freed, fake.requests.inUse]).toEqual([[pointer], 0]);
  });

  it('ends with the failure of its message', () => {
    const pointer = fake.libucp.request(Status.MESSAGE_TRUNCATED, MESSAGE);
    expect(fake.requests.receiveStarted(begin(RequestKind.TAG_RECV), pointer, undefined)).toBe(
      Status.MESSAGE_TRUNCATED,
    );
    expect(fake.libucp.inUse).toEqual([]);
  });

  it('waits for its message otherwise', () => {
    const request = begin(RequestKind.TAG_RECV);
    const pointer = fake.libucp.request();
    expect(fake.requests.receiveStarted(request, pointer, undefined)).toBe(request);
    fake.libucp.end(pointer, Status.OK, MESSAGE);
    expect(progress()).toBe(1);
    expect([request.status, request.senderTag, request.receivedBytes]).toEqual([Status.OK, MESSAGE.tag, 24]);
    request.free();
    settle();
    expect(fake.libucp.freed).toEqual([pointer]);
  });
});

describe('a pending operation', () => {
  it('ends in progress, once, and its request of libucp is freed once it is freed', () => {
    const callback = vi.fn();
    const { request, handle } = send({ callback, userData: 5 });
    expect([progress(), request.isCompleted, request.userData]).toEqual([0, false, 5]);
    expect(fake.events.onStarted).toHaveBeenCalledTimes(1);
    fake.libucp.end(handle, Status.OK);
    expect([progress(), progress(), callback.mock.calls]).toEqual([1, 0, [[request, Status.OK]]]);
    settle();
    expect(fake.libucp.freed).toEqual([]);
    request.free();
    expect(fake.events.onFreed).toHaveBeenCalledTimes(1);
    settle();
    settle();
    expect(fake.libucp.freed).toEqual([handle]);
  });

  it('can be freed neither before its end nor twice', () => {
    const { request, handle } = send();
    expect(() => request.free()).toThrow(expect.objectContaining({ status: Status.BUSY }));
    fake.libucp.end(handle);
    progress();
    request.free();
    expect(() => request.free()).toThrow(/must not be freed twice/);
    expect(fake.requests.inUse).toBe(0);
  });

  it('counts for the program, unless it is a part of another one', () => {
    const counted = (): number[] => {
      const { tag_tx, requests, failures } = fake.requests.operations.values;
      return [tag_tx!, requests!, failures!];
    };
    fake.requests.runInner(() => send().request);
    expect(() =>
      fake.requests.runInner(() => {
        throw new Error('part');
      }),
    ).toThrow('part');
    fake.libucp.end(fake.libucp.inUse[0]!);
    progress();
    expect(counted()).toEqual([0, 0, 0]);
    const { handle } = send();
    fake.libucp.end(handle, Status.IO_ERROR);
    progress();
    progress();
    expect(counted()).toEqual([0, 1, 1]);
  });

  it('counts also if a callback starts it that runs inside a part', () => {
    const outer = fake.requests.beginComposite('list')!;
    outer.callback = () => void fake.requests.started(begin(), 0, undefined);
    fake.requests.runInner(() => {
      outer.end(Status.OK);
      fake.requests.started(begin(), 0, undefined);
    });
    expect(fake.requests.operations.values['tag_tx']).toBe(1);
  });

  it('is not begun beyond the limit', () => {
    using one = new FakeRequests(fake.libucp, 1);
    expect(one.requests.canStartWithoutRequest(RequestKind.SEND, true)).toBe(true);
    const request = one.requests.begin(RequestKind.SEND, 'tag/libucp')!;
    expect(one.requests.begin(RequestKind.SEND, 'tag/libucp')).toBeUndefined();
    expect(one.requests.beginComposite('list')).toBeUndefined();
    expect(one.requests.canStartWithoutRequest(RequestKind.SEND, true)).toBe(false);
    one.requests.discard(request);
    expect(one.requests.canStartWithoutRequest(RequestKind.SEND, true)).toBe(true);
    expect(one.requests.canStartWithoutRequest(RequestKind.SEND, false)).toBe(false);
  });
});

describe('an operation without a request', () => {
  const operation = { local: new Uint8Array(8), byteLength: 8, rkey: undefined, params: undefined };

  it('gets one if it is pending, which keeps its memory and its key until the end', () => {
    const rkey = { pin: vi.fn(), unpin: vi.fn() };
    const handle = fake.libucp.request();
    const started = fake.requests.startedWithoutRequest(RequestKind.SEND, handle, 'put/libucp', {
      ...operation,
      rkey: rkey as unknown as UcpRemoteKey,
    });
    const request = started as UcpRequest;
    expect([request.pinned, request.byteLength, rkey.pin.mock.calls.length]).toEqual([operation.local, 8, 1]);
    expect(rkey.unpin).not.toHaveBeenCalled();
    fake.libucp.end(handle);
    progress();
    expect([request.pinned, request.status, rkey.unpin.mock.calls.length]).toEqual([undefined, Status.OK, 1]);
  });

  it('is counted if it has ended', () => {
    const { requests } = fake;
    expect(requests.startedWithoutRequest(RequestKind.TAG_RECV, 0, 'tag/libucp', operation)).toBe(Status.OK);
    const failed = requests.startedWithoutRequest(RequestKind.SEND, Status.IO_ERROR, 'put/libucp', operation);
    expect(failed).toBe(Status.IO_ERROR);
    const { tag_rx, put, bytes_rx, failures } = requests.operations.values;
    expect([tag_rx, put, bytes_rx, failures, requests.inUse]).toEqual([1, 0, 8, 1, 0]);
  });
});

describe('a cancellation', () => {
  it('ends the request, if libucp has canceled its operation', () => {
    const callback = vi.fn();
    const { request, handle } = send({ callback });
    expect(request.cancel()).toBe(true);
    expect([request.status, callback.mock.calls]).toEqual([Status.CANCELED, [[request, Status.CANCELED]]]);
    expect([progress(), callback.mock.calls.length]).toEqual([0, 1]);
    request.free();
    settle();
    expect(fake.libucp.freed).toEqual([handle]);
  });

  it.each([Status.OK, Status.IO_ERROR])('of one that has ended with %i for libucp changes nothing', (status) => {
    const callback = vi.fn();
    const { request, handle } = send({ callback });
    fake.libucp.end(handle, status);
    expect([request.cancel(), request.isCompleted]).toEqual([false, false]);
    expect([progress(), request.status, callback.mock.calls]).toEqual([1, status, [[request, status]]]);
    expect(request.cancel()).toBe(false);
  });

  it('that libucp has not finished leaves the request in progress', () => {
    fake.libucp.onCancel = () => {};
    const { request, handle } = send();
    expect([request.cancel(), request.isCompleted]).toEqual([false, false]);
    fake.libucp.end(handle, Status.CANCELED);
    progress();
    progress();
    expect(request.status).toBe(Status.CANCELED);
  });

  it('takes only its own end: others that end meanwhile are reported', () => {
    const [first, second, third] = [send(), send(), send()];
    fake.libucp.end(first.handle);
    fake.libucp.end(third.handle);
    expect(second.request.cancel()).toBe(true);
    expect([first.request.isCompleted, third.request.isCompleted]).toEqual([false, false]);
    expect(progress()).toBe(2);
    expect([first.request.status, second.request.status, third.request.status]).toEqual([
      Status.OK,
      Status.CANCELED,
      Status.OK,
    ]);
  });

  it('of a request that a callback of libucp reports is reported by it', () => {
    const request = begin(RequestKind.AM_RECV, 'am/libucp');
    const handle = fake.libucp.request();
    fake.requests.started(request, handle, undefined);
    const callback = fake.requests.polling.callbackOf[RequestKind.AM_RECV]!;
    fake.libucp.onCancel = () => fake.libucp.report(callback, handle, request.index, Status.CANCELED);
    expect([request.cancel(), request.status, fake.requests.polling.inProgress]).toEqual([true, Status.CANCELED, 0]);
  });

  it('of one whose end a callback of libucp has reported changes nothing', () => {
    const request = begin(RequestKind.AM_RECV, 'am/libucp');
    const handle = fake.libucp.request();
    fake.requests.started(request, handle, undefined);
    const callback = fake.requests.polling.callbackOf[RequestKind.AM_RECV]!;
    fake.libucp.report(callback, handle, request.index, Status.OK);
    fake.libucp.onCancel = () => expect.fail('libucp is queried');
    expect([request.cancel(), progress(), request.status]).toEqual([false, 1, Status.OK]);
  });

  it('of a composite operation asks its owner', () => {
    const request = fake.requests.beginComposite('list')!;
    request.abandon = vi.fn(() => true);
    expect([request.cancel(), request.isCanceled]).toEqual([true, true]);
    request.end(Status.CANCELED);
    expect(request.cancel()).toBe(false);
  });

  it('of all leaves requests alone that are free', () => {
    const { request } = send();
    const freed = fake.requests.beginComposite('list')!;
    const abandon = vi.fn(() => true);
    fake.requests.discard(freed);
    freed.abandon = abandon;
    fake.requests.cancelAll();
    expect([request.status, freed.state, abandon.mock.calls]).toEqual([Status.CANCELED, RequestState.FREE, []]);
  });

  it('of an operation that continues without libucp is not its end', () => {
    const { request } = send();
    request.deferEnd = () => true;
    expect([request.cancel(), request.isCompleted]).toEqual([false, false]);
  });
});

describe('what carried an operation', () => {
  it('is queried from libucp once, when it is first read', () => {
    const { request, handle } = send();
    expect(request.transport).toBe(TRANSPORT);
    fake.libucp.end(handle);
    progress();
    expect(fake.libucp.queried).toEqual([]);
    expect([request.transport, request.device, request.transport]).toEqual(['tcp', 'eth0', 'tcp']);
    expect(fake.libucp.queried).toEqual([handle]);
  });

  it('is not asked of one that has failed', () => {
    const { request, handle } = send();
    fake.libucp.end(handle, Status.IO_ERROR);
    progress();
    progress();
    expect([request.status, request.transport, fake.libucp.queried]).toEqual([Status.IO_ERROR, TRANSPORT, []]);
  });

  it.each([
    ['with a request from its start', () => send()],
    [
      'that was started without one',
      () => {
        const handle = fake.libucp.request();
        const call = { local: new Uint8Array(8), byteLength: 8, rkey: undefined, params: undefined };
        const request = fake.requests.startedWithoutRequest(RequestKind.SEND, handle, 'put/libucp', call);
        return { request: request as UcpRequest, handle };
      },
    ],
  ])('is not asked once an endpoint is gone, for an operation %s', (_name, start) => {
    const before = start();
    fake.requests.endpointLost();
    const after = start();
    fake.libucp.end(before.handle);
    fake.libucp.end(after.handle);
    progress();
    expect([before.request.transport, fake.libucp.queried]).toEqual([TRANSPORT, []]);
    expect([after.request.transport, fake.libucp.queried]).toEqual(['tcp', [after.handle]]);
  });

  it('is queried once also if libucp does not report it', () => {
    const ucp_request_query = vi.fn(() => Status.UNSUPPORTED);
    using silent = new FakeRequests(new FakeLibucp({ ucp_request_query }));
    const request = silent.requests.begin(RequestKind.SEND, 'tag/libucp')!;
    request.transport = TRANSPORT;
    const handle = silent.libucp.request();
    silent.requests.started(request, handle, undefined);
    silent.libucp.end(handle);
    silent.requests.polling.progress(1);
    expect([request.transport, request.device]).toEqual([TRANSPORT, undefined]);
    expect(ucp_request_query).toHaveBeenCalledTimes(1);
  });

  it('is not asked of a request that is freed', () => {
    const { request, handle } = send();
    fake.libucp.end(handle);
    progress();
    request.free();
    expect([request.transport, fake.libucp.queried]).toEqual([TRANSPORT, []]);
  });
});

describe('an observed operation', () => {
  const ends: { status: number; transport: string | undefined }[] = [];
  const observe = (message: unknown): void => void ends.push(message as (typeof ends)[number]);
  beforeEach(() => {
    ends.length = 0;
    operationEnd.subscribe(observe);
  });
  afterEach(() => void operationEnd.unsubscribe(observe));

  it('that ends at once has a request of libucp, which names the carrier and is freed', () => {
    const request = begin();
    const handle = fake.libucp.request(Status.OK);
    expect(fake.requests.started(request, handle, undefined)).toBe(Status.OK);
    expect(ends).toMatchObject([{ status: Status.OK, transport: 'tcp' }]);
    settle();
    expect([fake.libucp.freed, fake.requests.inUse]).toEqual([[handle], 0]);
  });

  it('is never started without a request', () => {
    expect(fake.requests.canStartWithoutRequest(RequestKind.SEND, true)).toBe(false);
  });
});

describe('a request of libucp in memory of the engine', () => {
  it('is not freed by libucp', () => {
    const request = begin();
    request.isLent = true;
    const handle = fake.libucp.request();
    fake.requests.started(request, handle, undefined);
    fake.libucp.end(handle);
    progress();
    request.free();
    settle();
    expect([request.status, fake.libucp.freed]).toEqual([Status.OK, []]);
  });
});

describe('a request that ends', () => {
  it('releases what its operation used, once', () => {
    const request = begin();
    const free = (): { free: ReturnType<typeof vi.fn> } => ({ free: vi.fn() });
    const blocks = [free(), free(), free()];
    Object.assign(request, { scratch: blocks[0], registration: blocks[1], header: blocks[2] });
    fake.requests.discard(request);
    expect(blocks.map((block) => block.free.mock.calls.length)).toEqual([1, 1, 1]);
    expect([request.scratch, request.registration, request.header]).toEqual([undefined, undefined, undefined]);
  });

  it('has the status that settling makes of that of libucp', () => {
    const { request, handle } = send();
    request.settle = (_request, status) => (status === Status.OK ? Status.IO_ERROR : status);
    fake.libucp.end(handle);
    progress();
    expect([request.status, fake.requests.operations.values['failures']]).toEqual([Status.IO_ERROR, 1]);
  });

  it('leaves nothing to the next operation', () => {
    const { request, handle } = send({ callback: vi.fn(), userData: 1 });
    Object.assign(request, { endpoint: {} as RequestEndpoint, error: new Error('old'), isCanceled: true });
    fake.libucp.end(handle);
    progress();
    request.free();
    const next = begin();
    expect(next).toBe(request);
    const { callback, userData, endpoint, error, isCanceled, receivedBytes, settle: settling } = next;
    expect({ callback, userData, endpoint, error, isCanceled, receivedBytes, settling }).toEqual({
      callback: undefined,
      userData: undefined,
      endpoint: undefined,
      error: undefined,
      isCanceled: false,
      receivedBytes: 0,
      settling: undefined,
    });
  });
});
