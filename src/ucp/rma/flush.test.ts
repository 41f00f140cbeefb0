/** Flush and fence over fake lanes: what they wait for, and which failure they end with. */

import { describe, expect, it, vi } from 'vitest';
import { Status } from '../../ucs/type/status.ts';
import type { Connection } from '../base/connection.ts';
import { FlushRequest } from '../base/request/request.ts';
import type { Lane } from '../lane/lanes.ts';
import { fenceConnection, initFlush, tryFlush } from './flush.ts';

/** A lane whose flush returns what the test says; one that moves data unless `moves` is false. */
function lane(flush: Status, moves = true) {
  const bytesMax = moves ? 100 : 0;
  const sizes = { shortBytesMax: bytesMax, zcopyBytesMax: bytesMax };
  const endpoint = { flush: vi.fn((_request: unknown): Status => flush), fence: vi.fn((): Status => Status.OK) };
  const iface = { attributes: { put: sizes, get: sizes, flags: 0 } };
  return { endpoint, iface, activity: { busy: false } };
}

type FakeLane = ReturnType<typeof lane>;
const lanesOf = (lanes: readonly FakeLane[]): readonly Lane[] => lanes as unknown as readonly Lane[];

/** A connection with these lanes. Requests that it queues are kept, and not started. */
function connectionOf(lanes: readonly FakeLane[], state: { failure?: Status; remote?: number; lists?: number } = {}) {
  const { failure = Status.OK, remote = 0, lists = 0 } = state;
  return {
    lanes,
    hasPending: false,
    remoteOperations: remote,
    kept: failure,
    queued: [] as FlushRequest[],
    takeFailure() {
      const { kept } = this;
      this.kept = Status.OK;
      return kept;
    },
    keepFailure(status: Status) {
      this.kept = status;
    },
    enqueue(request: FlushRequest) {
      this.queued.push(request);
    },
    awaitRemote: vi.fn(),
    notifications: { await: vi.fn((_onList: () => void) => lists) },
  };
}

const OWNER = { free: () => {} } as unknown as ConstructorParameters<typeof FlushRequest>[0];
const asConnection = (connection: ReturnType<typeof connectionOf>): Connection => connection as unknown as Connection;

/** A flush of the lanes of a connection, and the status with which it starts. */
function flushOf(connection: ReturnType<typeof connectionOf>, failure: Status = Status.OK) {
  const request = new FlushRequest(OWNER);
  initFlush(request, asConnection(connection), lanesOf(connection.lanes), failure);
  return { request, start: () => request.starter!() };
}

describe('a check of lanes', () => {
  it.each([
    [[Status.OK, Status.OK], Status.OK],
    [[Status.OK, Status.INPROGRESS], Status.INPROGRESS],
    [[Status.IO_ERROR, Status.OK], Status.IO_ERROR],
    [[Status.OK, Status.IO_ERROR], Status.IO_ERROR],
    [[Status.IO_ERROR, Status.TIMED_OUT], Status.IO_ERROR],
    [[Status.INPROGRESS, Status.IO_ERROR], Status.IO_ERROR],
  ])('of %j is %i', (statuses, expected) => {
    expect(tryFlush(lanesOf(statuses.map((status) => lane(status))))).toBe(expected);
  });
});

describe('a flush', () => {
  it('ends with the failure of a lane, whichever it is', () => {
    for (const statuses of [
      [Status.IO_ERROR, Status.OK],
      [Status.OK, Status.IO_ERROR],
    ]) {
      expect(flushOf(connectionOf(statuses.map((status) => lane(status)))).start()).toBe(Status.IO_ERROR);
    }
  });

  it('ends with a failure that was found before: by a check, or by a fence', () => {
    expect(flushOf(connectionOf([lane(Status.OK)], { failure: Status.TIMED_OUT })).start()).toBe(Status.TIMED_OUT);
    expect(flushOf(connectionOf([lane(Status.OK)], { failure: Status.TIMED_OUT }), Status.IO_ERROR).start()).toBe(
      Status.IO_ERROR,
    );
  });

  it('ends with a failure that a fence has found while the flush waited behind it', () => {
    const connection = connectionOf([lane(Status.OK)]);
    const { request, start } = flushOf(connection);
    connection.keepFailure(Status.IO_ERROR);
    expect([start(), request.failure, connection.kept]).toEqual([Status.IO_ERROR, Status.IO_ERROR, Status.OK]);
  });

  it('asks lanes without resources again, and only those', () => {
    const [full, done] = [lane(Status.NO_RESOURCE), lane(Status.OK)];
    const { start } = flushOf(connectionOf([full, done]));
    expect(start()).toBe(Status.NO_RESOURCE);
    full.endpoint.flush.mockReturnValue(Status.OK);
    expect(start()).toBe(Status.OK);
    expect([full.endpoint.flush.mock.calls.length, done.endpoint.flush.mock.calls.length]).toEqual([2, 1]);
  });

  it('is in progress until its lanes and the notifications before it have ended', () => {
    const slow = lane(Status.INPROGRESS);
    const connection = connectionOf([slow], { lists: 1 });
    const { request, start } = flushOf(connection);
    expect(start()).toBe(Status.INPROGRESS);
    expect(request.count).toBe(2);
    const withoutLanes = flushOf(connectionOf([lane(Status.OK)], { lists: 1 }));
    expect(withoutLanes.start()).toBe(Status.INPROGRESS);
  });
});

describe('a fence', () => {
  const fence = (connection: ReturnType<typeof connectionOf>): void => fenceConnection(asConnection(connection), OWNER);

  it('over one lane that keeps the order does nothing', () => {
    const connection = connectionOf([lane(Status.INPROGRESS), lane(Status.INPROGRESS, false)]);
    fence(connection);
    expect(connection.queued).toEqual([]);
  });

  it('over several lanes waits until they are flushed: later operations may take another', () => {
    const lanes = [lane(Status.OK), lane(Status.INPROGRESS)];
    const connection = connectionOf(lanes);
    fence(connection);
    const [queued] = connection.queued;
    expect(queued!.starter!()).toBe(Status.NO_RESOURCE);
    lanes[1]!.endpoint.flush.mockReturnValue(Status.OK);
    expect(queued!.starter!()).toBe(Status.OK);
  });

  it('keeps the failure of a lane for the next flush', () => {
    const connection = connectionOf([lane(Status.IO_ERROR), lane(Status.OK)]);
    fence(connection);
    expect([connection.queued, connection.kept]).toEqual([[], Status.IO_ERROR]);
  });

  it('waits for operations that only the peer can end', () => {
    const connection = connectionOf([lane(Status.OK)], { remote: 1 });
    fence(connection);
    expect(connection.queued.length).toBe(1);
  });

  it('waits behind what is queued', () => {
    const connection = connectionOf([lane(Status.OK)]);
    connection.hasPending = true;
    fence(connection);
    expect(connection.queued.length).toBe(1);
  });
});
