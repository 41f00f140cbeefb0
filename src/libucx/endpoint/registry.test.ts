/** Endpoints by their handles, whose failures libucp reports inside its calls. */

import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import { functionAt } from '../../sys/index.ts';
import { endpointFail } from '../../ucs/debug/diagnostics.ts';
import { Status } from '../../ucs/type/status.ts';
import type { EngineEndpoint } from '../engine/engine.ts';
import { EndpointRegistry } from './registry.ts';

const HANDLE = 0x5000;
const endpointLost = vi.fn();
const forgotten = vi.fn();
let registry: EndpointRegistry;

beforeEach(() => {
  endpointLost.mockClear();
  forgotten.mockClear();
  registry = new EndpointRegistry({ endpointLost } as never, { forget: forgotten } as never);
});
afterEach(() => registry.close());

function added(handle = HANDLE, isBorrowed = false) {
  const calls: unknown[] = [];
  const endpoint = {
    handle,
    isBorrowed,
    onFailed: (status: Status) => void calls.push(['failed', status]),
    onLeft: () => void calls.push(['left']),
    onNotice: (notice: number) => void calls.push(['notice', notice]),
  } as unknown as EngineEndpoint;
  registry.add(endpoint);
  return { endpoint, calls };
}

/** The call of libucp for an endpoint that has failed. */
function fail(handle: number, status: Status): void {
  functionAt(registry.errorCallback.address, 'void', ['uint64_t', 'uint64_t', 'int8_t'])(0, handle, status);
}

describe('a failure that libucp reports', () => {
  it('reaches the endpoint in progress, once; until then libucp is not asked about its requests', () => {
    const { calls } = added();
    fail(HANDLE, Status.ENDPOINT_TIMEOUT);
    expect([calls, registry.isDue, endpointLost.mock.calls.length]).toEqual([[], true, 1]);
    expect([registry.progress(), registry.progress(), registry.isDue]).toEqual([1, 0, false]);
    expect([calls, registry.size]).toEqual([[['failed', Status.ENDPOINT_TIMEOUT]], 1]);
  });

  it('of an endpoint that is unknown ends the questions about requests, and nothing else', () => {
    fail(HANDLE, Status.CONNECTION_RESET);
    expect([registry.isDue, endpointLost.mock.calls.length]).toEqual([false, 1]);
  });

  it('of an endpoint that libucp has made leaves its handle to the next peer', () => {
    const first = added(HANDLE, true);
    fail(HANDLE, Status.CONNECTION_RESET);
    expect(registry.get(HANDLE)).toBeUndefined();
    const second = added(HANDLE, true);
    registry.progress();
    expect([first.calls, second.calls]).toEqual([[['failed', Status.CONNECTION_RESET]], []]);
    registry.forget(first.endpoint);
    expect([registry.get(HANDLE), forgotten.mock.calls.length]).toEqual([second.endpoint, 2]);
    registry.forget(second.endpoint);
    expect([registry.get(HANDLE), registry.size]).toEqual([undefined, 0]);
  });

  it('is published', () => {
    const published: unknown[] = [];
    const observe = (message: unknown): void => void published.push(message);
    added();
    endpointFail.subscribe(observe);
    try {
      fail(HANDLE, Status.IO_ERROR);
      registry.progress();
    } finally {
      endpointFail.unsubscribe(observe);
    }
    expect(published).toEqual([{ transports: ['libucp'], status: Status.IO_ERROR }]);
  });

  it('that throws leaves the others to the next progress', () => {
    const first = added();
    const second = added(HANDLE + 1);
    first.endpoint.onFailed = () => {
      throw new Error('thrown');
    };
    fail(HANDLE, Status.IO_ERROR);
    fail(HANDLE + 1, Status.IO_ERROR);
    expect(() => registry.progress()).toThrow('thrown');
    expect([registry.progress(), second.calls.length]).toEqual([1, 1]);
  });
});

describe('a message of the peer', () => {
  it('that it closes is not a failure, but libucp is not queried about its requests any more', () => {
    const { calls } = added();
    registry.noticed(HANDLE, undefined);
    expect([registry.isDue, endpointLost.mock.calls.length]).toEqual([true, 1]);
    expect([registry.progress(), calls]).toEqual([1, [['left']]]);
  });

  it('with a notice reaches the endpoint in progress, before failures', () => {
    const { calls } = added();
    fail(HANDLE, Status.IO_ERROR);
    registry.noticed(HANDLE, 2);
    registry.noticed(HANDLE + 1, 2);
    expect(calls).toEqual([]);
    expect([registry.progress(), calls]).toEqual([
      2,
      [
        ['notice', 2],
        ['failed', Status.IO_ERROR],
      ],
    ]);
    expect(endpointLost).toHaveBeenCalledTimes(1);
  });

  it('with a notice is work for progress', () => {
    added();
    registry.noticed(HANDLE, 2);
    expect([registry.isDue, registry.progress(), registry.isDue]).toEqual([true, 1, false]);
  });
});
