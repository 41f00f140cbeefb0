/** Puts, gets and flushes over fake lanes: short paths, order behind what waits, divided puts, and the memory of each. */

import { describe, expect, it } from 'vitest';
import { FakeLanes, type LaneOptions, RMA } from '../../../test/fixtures/lanes/fake-lanes.ts';
import { fillPattern } from '../../../test/fixtures/pattern.ts';
import type { Request } from '../../index.ts';
import { Status } from '../../ucs/type/status.ts';
import { DeviceType, IfaceFlag } from '../../uct/api/iface.ts';

function pattern(byteLength: number): Uint8Array {
  const bytes = new Uint8Array(byteLength);
  fillPattern(bytes, 3);
  return bytes;
}

/** A peer with memory that the lanes reach. */
function reached(lanes: readonly LaneOptions[] = [RMA], settings = {}, byteLength = 4096) {
  const stack = new FakeLanes(lanes, settings);
  const peer = stack.peer();
  const storage = new Uint8Array(byteLength);
  const memories = stack.mds.map((md) => md.add(storage));
  const packed = peer.keyOf(memories);
  const rkey = peer.endpoint.unpackRkey(packed);
  return { stack, peer, storage, packed, rkey };
}

/** What a call throws. */
function thrownBy(call: () => unknown): unknown {
  try {
    call();
    return undefined;
  } catch (error) {
    return error;
  }
}

describe('a short put', () => {
  it('goes without a request, in its call', () => {
    const { stack, peer, storage, rkey } = reached();
    for (let i = 0; i < 2; i++) expect(peer.endpoint.putNbx(pattern(64), 0, 64, rkey, 64 * i)).toBe(Status.OK);
    expect(storage.slice(0, 128)).toEqual(Uint8Array.of(...pattern(64), ...pattern(64)));
    expect([stack.worker.requestsInUse, peer.lanes[0]!.started.map(({ call }) => call)]).toEqual([
      0,
      ['putShort', 'putShort'],
    ]);
  });

  it('longer than the lane allows is a request', () => {
    const { peer, storage, rkey } = reached();
    peer.endpoint.putNbx(pattern(64), 0, 64, rkey, 0);
    const request = peer.endpoint.putNbx(pattern(65), 0, 65, rkey, 0) as Request;
    peer.lanes[0]!.started[1]!.end();
    expect([request.status, request.protocol, storage.slice(0, 65)]).toEqual([Status.OK, 'put/zcopy', pattern(65)]);
  });

  it('does not overtake what waits for resources', () => {
    const { stack, peer, storage, rkey } = reached();
    peer.endpoint.putNbx(pattern(8), 0, 8, rkey, 0);
    const { answers, started } = peer.lanes[0]!;
    answers.putShort = Status.NO_RESOURCE;
    const [one, two] = [Uint8Array.of(1), Uint8Array.of(2)];
    const first = peer.endpoint.putNbx(one, 0, 1, rkey, 0) as Request;
    delete answers.putShort;
    const second = peer.endpoint.putNbx(two, 0, 1, rkey, 0) as Request;
    expect([first.isCompleted, second.isCompleted, started.length]).toEqual([false, false, 1]);
    stack.worker.progress();
    expect([first.status, second.status, storage[0]]).toEqual([Status.OK, Status.OK, 2]);
  });

  it('fails once the connection has failed', () => {
    const { peer, rkey } = reached();
    peer.endpoint.putNbx(pattern(8), 0, 8, rkey, 0);
    peer.connection.fail(Status.ENDPOINT_TIMEOUT);
    expect(peer.endpoint.putNbx(pattern(8), 0, 8, rkey, 0)).toBe(Status.ENDPOINT_TIMEOUT);
    expect(peer.endpoint.getNbx(new Uint8Array(8), 0, 8, rkey, 0)).toBe(Status.ENDPOINT_TIMEOUT);
    expect(peer.lanes[0]!.started.length).toBe(1);
  });

  it('takes no key of another endpoint', () => {
    const { stack, peer, rkey } = reached();
    peer.endpoint.putNbx(pattern(8), 0, 8, rkey, 0);
    const other = stack.peer();
    expect(thrownBy(() => other.endpoint.putNbx(pattern(8), 0, 8, rkey, 0))).toMatchObject({
      status: Status.INVALID_PARAM,
    });
    expect(other.lanes[0]!.started).toEqual([]);
  });

  it('of a key that denies puts is refused, although gets made a path', () => {
    const { peer, storage } = reached([{ ...RMA, flags: IfaceFlag.CPU_ACCESS }]);
    const memory = peer.stack.context.memMap({ buffer: new Uint8Array(64), protection: ['remote-read'] });
    const rkey = peer.endpoint.unpackRkey(peer.stack.context.packRkey(memory));
    for (let i = 0; i < 2; i++) {
      expect(peer.endpoint.getNbx(new Uint8Array(8), 0, 8, rkey, 0)).toBe(Status.OK);
      expect(thrownBy(() => peer.endpoint.putNbx(pattern(8), 0, 8, rkey, 0))).toMatchObject({
        status: expect.any(Number),
      });
    }
    expect(peer.lanes[0]!.started.every(({ call }) => call === 'getShort')).toBe(true);
    expect(storage[0]).toBe(0);
  });

  it('with a path is gone with its key', () => {
    const { stack, peer, rkey } = reached();
    peer.endpoint.putNbx(pattern(8), 0, 8, rkey, 0);
    const before = stack.keys;
    rkey.release();
    expect(stack.keys).toBe(before - 1);
    expect(thrownBy(() => peer.endpoint.putNbx(pattern(8), 0, 8, rkey, 0))).toMatchObject({ code: 'ERR_CLOSED' });
    expect(peer.lanes[0]!.started.length).toBe(1);
  });
});

describe('a short get', () => {
  it('of a processor that reaches the memory ends in its call', () => {
    const { peer, storage, rkey } = reached([{ ...RMA, flags: IfaceFlag.CPU_ACCESS }]);
    storage.set(pattern(64), 32);
    for (let i = 0; i < 2; i++) {
      const target = new Uint8Array(80);
      expect(peer.endpoint.getNbx(target, 8, 64, rkey, 32)).toBe(Status.OK);
      expect(target.subarray(8, 72)).toEqual(pattern(64));
      expect([target[7], target[72]]).toEqual([0, 0]);
    }
  });
});

describe('a zero-copy put', () => {
  it('registers its memory until it ends, whichever way', () => {
    const { stack, peer, storage, rkey } = reached();
    const before = stack.memories;
    for (const status of [Status.OK, Status.IO_ERROR]) {
      const request = peer.endpoint.putNbx(pattern(1000), 0, 1000, rkey, 8) as Request;
      expect(stack.memories).toBe(before + 1);
      peer.lanes[0]!.started.pop()!.end(status);
      expect([request.status, stack.memories]).toEqual([status, before]);
    }
    expect(storage.slice(8, 1008)).toEqual(pattern(1000));
    expect(stack.mds[0]!.lostInFlight).toEqual([]);
  });

  it('starts at the place of its bytes in mapped memory', () => {
    const { stack, peer, storage, rkey } = reached();
    const bytes = pattern(2000);
    stack.map(bytes);
    const before = stack.memories;
    peer.endpoint.putNbx(bytes.subarray(100), 50, 1000, rkey, 8);
    expect(stack.memories).toBe(before);
    peer.lanes[0]!.started[0]!.end();
    expect(storage.slice(8, 1008)).toEqual(bytes.slice(150, 1150));
  });

  it('whose memory was unmapped while it waited ends with INVALID_ADDR', () => {
    const { stack, peer, rkey } = reached();
    const memory = stack.map(pattern(2000));
    const { answers } = peer.lanes[0]!;
    answers.putZcopy = Status.NO_RESOURCE;
    const request = peer.endpoint.putNbx(memory, 0, 2000, rkey, 8) as Request;
    stack.context.memUnmap(memory);
    answers.putZcopy = Status.INVALID_PARAM;
    stack.worker.progress();
    expect(request.status).toBe(Status.INVALID_ADDR);
  });

  it('keeps its memory mapped while it is in flight', () => {
    const { stack, peer, rkey } = reached();
    const memory = stack.map(pattern(2000));
    peer.endpoint.putNbx(memory, 0, 2000, rkey, 8);
    const { mdMemory } = memory;
    // Of allocated memory only, which would be gone.
    const allocated = stack.context.memMap({ allocate: 2000 });
    peer.endpoint.putNbx(allocated, 0, 2000, rkey, 8);
    expect(mdMemory.length).toBe(1);
    expect(thrownBy(() => stack.context.memUnmap(allocated))).toMatchObject({ status: Status.BUSY });
    peer.lanes[0]!.started[1]!.end();
    stack.context.memUnmap(allocated);
    peer.lanes[0]!.started[0]!.end();
    expect(stack.mds[0]!.lostInFlight).toEqual([]);
  });

  it('can be cancelled while it waits for resources, and not once a lane has it', () => {
    const { peer, rkey } = reached();
    const { answers, started } = peer.lanes[0]!;
    answers.putZcopy = Status.NO_RESOURCE;
    const waiting = peer.endpoint.putNbx(pattern(1000), 0, 1000, rkey, 0) as Request;
    expect([waiting.cancel(), waiting.status, waiting.cancel()]).toEqual([true, Status.CANCELED, false]);
    delete answers.putZcopy;
    const ends: Status[] = [];
    const callback = (_request: Request, status: Status): number => ends.push(status);
    const taken = peer.endpoint.putNbx(pattern(1000), 0, 1000, rkey, 0, { callback }) as Request;
    expect(taken.cancel()).toBe(false);
    started[0]!.end();
    expect([taken.status, taken.cancel(), ends]).toEqual([Status.OK, false, [Status.OK]]);
  });
});

describe('a put that two devices share', () => {
  const NETWORKS: readonly LaneOptions[] = [RMA, { ...RMA, device: 'net1' }];
  const LONG = 2 ** 18;
  const shared = () =>
    reached(NETWORKS, { MAX_RMA_RAILS: 2, MIN_RMA_CHUNK_SIZE: 65_536, MULTI_LANE_MAX_RATIO: 10 }, LONG);

  it('ends with the last of its parts, and has moved all bytes', () => {
    const { peer, storage, rkey } = shared();
    const request = peer.endpoint.putNbx(pattern(LONG), 0, LONG, rkey, 0) as Request;
    const [one, two] = peer.lanes.map(({ started }) => started[0]!);
    expect([one!.bytes.byteLength + two!.bytes.byteLength, two!.remoteOffset]).toEqual([LONG, one!.bytes.byteLength]);
    two!.end();
    expect(request.isCompleted).toBe(false);
    one!.end();
    expect([request.status, Buffer.compare(storage, pattern(LONG))]).toEqual([Status.OK, 0]);
  });

  it('ends with its first failure, when no part is in flight', () => {
    const { stack, peer, rkey } = shared();
    const before = stack.memories;
    const request = peer.endpoint.putNbx(pattern(LONG), 0, LONG, rkey, 0) as Request;
    const [one, two] = peer.lanes.map(({ started }) => started[0]!);
    one!.end(Status.IO_ERROR);
    expect(request.isCompleted).toBe(false);
    two!.end(Status.TIMED_OUT);
    expect([request.status, stack.memories, stack.worker.internalTransfers]).toEqual([Status.IO_ERROR, before, 0]);
  });

  it('starts a part again that found no room, and only that', () => {
    const { stack, peer, storage, rkey } = shared();
    const [one, two] = peer.lanes;
    one!.answers.putZcopy = Status.NO_RESOURCE;
    const request = peer.endpoint.putNbx(pattern(LONG), 0, LONG, rkey, 0) as Request;
    // Ended before all parts have started.
    two!.started[0]!.end();
    expect(request.isCompleted).toBe(false);
    delete one!.answers.putZcopy;
    stack.worker.progress();
    stack.worker.progress();
    expect([one!.started.length, two!.started.length]).toEqual([1, 1]);
    one!.started[0]!.end();
    expect([request.status, Buffer.compare(storage, pattern(LONG))]).toEqual([Status.OK, 0]);
  });

  it('drops the parts that no lane has accepted after a failure', () => {
    const { stack, peer, rkey } = shared();
    const before = stack.memories;
    const [one, two] = peer.lanes;
    one!.answers.putZcopy = Status.NO_RESOURCE;
    const request = peer.endpoint.putNbx(pattern(LONG), 0, LONG, rkey, 0) as Request;
    two!.started[0]!.end(Status.IO_ERROR);
    stack.worker.progress();
    expect([request.status, one!.started.length]).toEqual([Status.IO_ERROR, 0]);
    expect([stack.memories, stack.worker.internalTransfers]).toEqual([before, 0]);
  });

  it('ends when its peer is gone and no lane uses its memory any more', () => {
    const { stack, peer, rkey } = shared();
    const before = stack.memories;
    const [one, two] = peer.lanes;
    one!.answers.putZcopy = Status.NO_RESOURCE;
    const request = peer.endpoint.putNbx(pattern(LONG), 0, LONG, rkey, 0) as Request;
    expect(stack.memories).toBe(before + 2);
    peer.connection.fail(Status.ENDPOINT_TIMEOUT);
    expect([request.isCompleted, stack.memories]).toEqual([false, before + 1]);
    two!.started[0]!.end(Status.ENDPOINT_TIMEOUT);
    expect([request.status, stack.memories, stack.mds[0]!.lostInFlight]).toEqual([Status.ENDPOINT_TIMEOUT, before, []]);
  });
});

describe('a flush of an endpoint', () => {
  it('without anything in flight ends in its call, and reports a kept failure once', () => {
    const { peer } = reached();
    expect(peer.endpoint.flushNbx()).toBe(Status.OK);
    peer.connection.keepFailure(Status.IO_ERROR);
    peer.connection.keepFailure(Status.TIMED_OUT);
    expect([peer.endpoint.flushNbx(), peer.endpoint.flushNbx()]).toEqual([Status.IO_ERROR, Status.OK]);
  });

  it('ends with a failure of the lane, and behind what waits', () => {
    const { stack, peer, rkey } = reached();
    const lane = peer.lanes[0]!;
    const { answers } = lane;
    answers.putZcopy = Status.NO_RESOURCE;
    peer.endpoint.putNbx(pattern(1000), 0, 1000, rkey, 0);
    // The lane reports it once.
    let failure: Status = Status.IO_ERROR;
    lane.flush = () => {
      const told = failure;
      failure = Status.OK;
      return told;
    };
    const flush = peer.endpoint.flushNbx() as Request;
    const next = peer.endpoint.flushNbx() as Request;
    stack.worker.progress();
    expect([flush.isCompleted, next.isCompleted]).toEqual([false, false]);
    delete answers.putZcopy;
    stack.worker.progress();
    expect([flush.status, next.status]).toEqual([Status.IO_ERROR, Status.OK]);
  });

  it('that does not end in its call ends with a failure that the lane has told in it', () => {
    const { peer } = reached();
    const lane = peer.lanes[0]!;
    const told: Status[] = [Status.IO_ERROR];
    lane.flush = () => told.pop() ?? Status.OK;
    const flush = peer.endpoint.flushNbx({ noImmediateCompletion: true }) as Request;
    expect([flush.status, told]).toEqual([Status.IO_ERROR, []]);
  });

  it('waits for the lanes that have operations in flight, all of them', () => {
    const lanes = [RMA, { ...RMA, name: 'b', deviceType: DeviceType.SHM }].map((lane) => ({
      ...lane,
      deviceType: DeviceType.SHM,
    }));
    const { peer } = reached(lanes);
    for (const { answers } of peer.lanes) answers.flush = Status.INPROGRESS;
    const flush = peer.endpoint.flushNbx() as Request;
    peer.lanes[1]!.flushes[0]!.end();
    expect(flush.isCompleted).toBe(false);
    peer.lanes[0]!.flushes[0]!.end(Status.IO_ERROR);
    expect(flush.status).toBe(Status.IO_ERROR);
  });
});
