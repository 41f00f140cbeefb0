/** A DMA queue over a driver that executes nothing: numbers that wrap, spoiled transfers, lost cards, callbacks, counters. */

import { describe, expect, it } from 'vitest';
import { FakeMemory } from '../../../test/fixtures/driver/fake-card.ts';
import { RecordingDevice } from '../../../test/fixtures/driver/recording-device.ts';
import { expectNoLeaks } from '../../../test/fixtures/leak-check.ts';
import { useUncaught } from '../../../test/fixtures/processes/uncaught.ts';
import { Errno, scratchStatistics } from '../../sys/index.ts';
import { commandSubmissionEnd, transferEnd } from '../../ucs/debug/diagnostics.ts';
import { ManualClock } from '../../ucs/sys/clock.ts';
import { Status } from '../../ucs/type/status.ts';
import { CommandRoute } from './command-route.ts';
import { DmaQueue, type DmaQueueOptions } from './queue.ts';
import type { DmaRequest } from './request.ts';
import { Batches, TRANSIENT_ERRORS_MAX, TransientErrors } from './submission.ts';

expectNoLeaks();

const HBM_HIGH = 0x10010018;
const eventLoop = (): Promise<void> => new Promise((resolve) => setImmediate(resolve));

function open(slots = 4, more: Partial<DmaQueueOptions> = {}) {
  const device = new RecordingDevice();
  const queue = new DmaQueue({
    device,
    route: new CommandRoute(device, { queueIndex: 8, engineId: 45, slots }),
    ...more,
  });
  const put = (bytes = 64, to = 0): DmaRequest => {
    const request = queue.take(bytes)!;
    request.setSource(0x7000, -1);
    request.setDestination(to, HBM_HIGH);
    queue.start(request);
    return request;
  };
  /** Lets the queue poll the driver. */
  const poll = (): number => {
    let ended = 0;
    for (let i = 0; i < 64; i++) ended += queue.progress();
    return ended;
  };
  const close = (...requests: DmaRequest[]): void => {
    for (const request of requests) queue.free(request);
    queue.close();
  };
  return { device, queue, put, poll, close };
}

describe('numbers of batches', () => {
  it('wrap: transfers end in order across it, and those behind it are in flight', () => {
    const { device, queue, put, close } = open(4, { batchesBefore: 0x7fff_fffd });
    const all = [put(), put(), put(), put()];
    expect(device.submissions.map(({ completion }) => completion.value | 0)).toEqual([
      0x7fff_fffe, 0x7fff_ffff, -0x8000_0000, -0x7fff_ffff,
    ]);
    expect(queue.inFlight()).toEqual(all);
    device.complete(-0x8000_0000);
    let inCall: DmaRequest[] = [];
    all[0]!.onComplete = () => {
      inCall = queue.inFlight();
    };
    expect(queue.progress()).toBe(3);
    expect([inCall, queue.outstanding, queue.counts.in_flight]).toEqual([[all[3]], 1, 1]);
    device.complete(-0x7fff_ffff);
    expect(queue.progress()).toBe(1);
    expect(all.map(({ status }) => status)).toEqual(new Array(4).fill(Status.OK));
    close(...all);
  });

  it('have each a slot, over the wrap', () => {
    const batches = new Batches(4, 0x7fff_fffe);
    const slots: number[] = [];
    for (let i = 0; i < 4; i++) {
      expect(batches.isSlotFree).toBe(true);
      slots.push(batches.nextSlot);
      batches.submitted = batches.next;
    }
    expect([slots, batches.inFlight, batches.isSlotFree]).toEqual([[2, 3, 0, 1], 4, false]);
    expect([batches.oldestSlot, batches.slotInFlight(3), batches.submitted]).toEqual([2, 1, -0x7fff_fffe]);
    batches.retire();
    batches.retire();
    expect([batches.retired, batches.oldestSlot, batches.inFlight]).toEqual([-0x8000_0000, 0, 2]);
  });
});

describe('long areas', () => {
  it('take batches of many packets, two at a time, and each again when its batch has retired', () => {
    const { device, queue, put, close } = open(4, { packetBytesMax: 4096 });
    const all: DmaRequest[] = [];
    device.isCorked = true;
    const group = (requests: number): void => {
      for (let i = 0; i < requests; i++) all.push(put(64, i * 64));
      device.isCorked = false;
      queue.submitWaiting();
      device.isCorked = true;
    };
    group(42);
    group(43);
    group(300);
    // Both long areas are in use: this batch has as many as a slot.
    group(43);
    expect(device.submissions.map(({ transfers }) => transfers.length)).toEqual([42, 43, 300, 42]);
    device.complete(1);
    queue.progress();
    expect(device.submissions.at(-1)!.transfers).toHaveLength(1);
    device.complete(2);
    queue.progress();
    group(1364 + 5);
    expect(device.submissions.slice(5).map(({ transfers }) => transfers.length)).toEqual([1364]);
    device.complete(5);
    queue.progress();
    device.complete(device.submissions.length);
    while (queue.outstanding > 0) {
      device.complete(device.submissions.length);
      queue.progress();
    }
    expect(new Set(all.map(({ status }) => status))).toEqual(new Set([Status.OK]));
    close(...all);
  });
});

describe('a corked queue', () => {
  it('submits nothing without a request', () => {
    const { device, queue, put, close } = open();
    device.isCorked = true;
    const all = [put(), put()];
    expect(device.submissions).toEqual([]);
    device.isCorked = false;
    queue.submitWaiting();
    expect(device.submissions.map(({ transfers }) => transfers.length)).toEqual([2]);
    device.complete(1);
    queue.progress();
    close(...all);
  });

  it('takes as many as it has requests, all in flight at once', () => {
    const { device, queue, put, close } = open(16);
    device.isCorked = true;
    const all = Array.from({ length: 4096 }, () => put());
    expect([queue.room, queue.take(8)]).toEqual([0, undefined]);
    device.isCorked = false;
    while (queue.outstanding > 0) {
      queue.submitWaiting();
      device.complete(device.submissions.length);
      expect(queue.progress()).toBeGreaterThan(0);
    }
    expect(new Set(all.map(({ status }) => status))).toEqual(new Set([Status.OK]));
    close(...all);
  });
});

describe('a card that is lost', () => {
  it('fails what is in flight when the card has executed it, and what waits behind it', () => {
    const { device, queue, put, close } = open(1);
    const [flying, waiting] = [put(), put()];
    queue.lose();
    expect([flying.status, waiting.status, put().status]).toEqual([
      Status.INPROGRESS,
      Status.INPROGRESS,
      Status.IO_ERROR,
    ]);
    // What waits does not end while batches are in flight, which may have a part of it.
    expect(queue.progress()).toBe(0);
    device.complete(1);
    expect(queue.progress()).toBe(1);
    expect([flying.status, waiting.status, device.submissions.length]).toEqual([Status.IO_ERROR, Status.INPROGRESS, 1]);
    expect([queue.progress(), waiting.status, device.inFlight]).toEqual([1, Status.IO_ERROR, 0]);
    close(flying, waiting);
  });

  it('does not change the reason of a queue that has failed', () => {
    const { device, queue, put, poll, close } = open();
    const request = put();
    device.waitResult = -Errno.ETIMEDOUT;
    poll();
    queue.lose();
    expect([queue.failure, request.status]).toEqual([Status.TIMED_OUT, Status.TIMED_OUT]);
    close(request);
  });

  it('that is found lost before a submission takes none', () => {
    const { device, queue, put, close } = open();
    const take = device.takeSubmission.bind(device);
    device.takeSubmission = () => {
      queue.lose();
      return take();
    };
    const request = put();
    expect([device.submissions, device.inFlight, request.status]).toEqual([[], 0, Status.INPROGRESS]);
    expect([queue.progress(), request.status]).toEqual([1, Status.IO_ERROR]);
    close(request);
  });
});

describe('a failure', () => {
  it('reads the faults first, which may name a time-out: that of a batch in flight, and of no earlier one', () => {
    for (const [seq, status] of [
      [2, Status.TIMED_OUT],
      [1, Status.IO_ERROR],
    ] as const) {
      const { device, queue, put, poll, close } = open(2);
      const first = put();
      device.complete(1);
      queue.progress();
      const second = put();
      device.waitResult = -Errno.EBUSY;
      device.onFaults = () => {
        device.timedOutSeq = seq;
      };
      expect(poll()).toBe(1);
      expect([second.status, queue.failureErrno]).toEqual([status, Errno.EBUSY]);
      close(first, second);
    }
  });

  it('is found by the driver at every 64th poll, or by a wait', async () => {
    const { device, queue, put, close } = open();
    const request = put();
    device.waitResult = -Errno.EIO;
    for (let i = 0; i < 63; i++) expect(queue.progress()).toBe(0);
    expect(queue.progress()).toBe(1);
    close(request);
    const other = open();
    const watched = other.put();
    other.device.waitResult = -Errno.EIO;
    other.queue.watch(1e6);
    await eventLoop();
    expect([watched.status, other.device.wakes]).toEqual([Status.IO_ERROR, 1]);
    other.close(watched);
  });

  it('of a short get delivers no bytes', () => {
    const { device, queue, close } = open();
    const target = new Uint8Array(4);
    const request = queue.takeGet(target, 0, 4)!;
    request.setSource(0, HBM_HIGH);
    queue.start(request);
    device.bytesAt(device.submissions[0]!.transfers[0]!.destination).fill(7, 0, 4);
    request.outcome = Status.IO_ERROR;
    device.complete(1);
    queue.progress();
    expect([request.status, ...target]).toEqual([Status.IO_ERROR, 0, 0, 0, 0]);
    close(request);
  });
});

describe('transient rejections', () => {
  it('are counted anew after a success, and after a batch was given up', () => {
    const { device, queue, put, close } = open();
    device.csResult = -Errno.ENOMEM;
    const first = put();
    for (let i = 1; i < TRANSIENT_ERRORS_MAX; i++) expect(queue.progress()).toBe(0);
    device.csResult = 0;
    queue.progress();
    device.complete(1);
    queue.progress();
    device.csResult = -Errno.ENOMEM;
    const second = put();
    for (let i = 1; i < TRANSIENT_ERRORS_MAX; i++) expect(queue.progress()).toBe(0);
    expect(second.status).toBe(Status.INPROGRESS);
    while (second.status === Status.INPROGRESS) queue.progress();
    const third = put();
    expect([second.status, queue.progress(), third.status]).toEqual([Status.NO_MEMORY, 0, Status.INPROGRESS]);
    queue.abort(Status.CANCELED);
    expect([first.status, third.status]).toEqual([Status.OK, Status.CANCELED]);
    close(first, second, third);
  });

  it('never end for EAGAIN, nor while batches are in flight, and end after exactly so many otherwise', () => {
    const errors = new TransientErrors();
    for (let i = 0; i < 2 * TRANSIENT_ERRORS_MAX; i++) errors.add(-Errno.EAGAIN, 1, false);
    for (let i = 0; i < 2 * TRANSIENT_ERRORS_MAX; i++) errors.add(-Errno.ENOMEM, 1, true);
    expect(errors.isExhausted).toBe(false);
    for (let i = 0; i < TRANSIENT_ERRORS_MAX; i++) errors.add(-Errno.EINTR, 3, false);
    expect(errors.isExhausted).toBe(false);
    errors.add(-Errno.EINTR, 3, false);
    expect([errors.isExhausted, errors.requests, errors.status]).toEqual([true, 3, Status.IO_ERROR]);
    errors.clear();
    expect(errors.isExhausted).toBe(false);
  });
});

describe('an exception of a callback', () => {
  const uncaught = useUncaught();

  it('is uncaught, and the requests behind it end', async () => {
    const { device, queue, put, close } = open();
    const [first, second] = [put(), put()];
    first.onComplete = () => {
      throw new Error('of the callback');
    };
    device.complete(2);
    expect([queue.progress(), second.status]).toEqual([2, Status.OK]);
    await eventLoop();
    expect(uncaught).toEqual([new Error('of the callback')]);
    close(first, second);
  });
});

describe('a request', () => {
  it('releases both of its memories before its owner is called, each once', () => {
    const { device, queue, put, close } = open();
    const [first, second] = [new FakeMemory(1, 64), new FakeMemory(2, 64)];
    const request = put();
    request.hold(first, second);
    expect([first.inFlight, second.inFlight]).toEqual([1, 1]);
    let inCall: number[] = [];
    request.onComplete = () => {
      inCall = [first.inFlight, second.inFlight];
    };
    device.complete(1);
    queue.progress();
    request.releaseMemory();
    expect([inCall, first.inFlight, second.inFlight]).toEqual([[0, 0], 0, 0]);
    // One that has ended holds nothing.
    request.hold(first, second);
    expect([first.inFlight, request.firstMemory]).toEqual([0, undefined]);
    close(request);
  });

  it('is as new when it is used again, and refers to nothing of its owner while it is free', () => {
    const { device, queue, close } = open();
    const first = queue.takeGet(new Uint8Array(8), 3, 4)!;
    first.setSource(0, HBM_HIGH);
    queue.start(first);
    Object.assign(first, { context: 'mine', onComplete: () => undefined, outcome: Status.IO_ERROR });
    device.complete(1);
    queue.progress();
    queue.free(first);
    expect([first.live, first.target, first.context, first.onComplete]).toEqual([
      false,
      undefined,
      undefined,
      undefined,
    ]);
    const again = queue.take(100)!;
    expect(again).toBe(first);
    expect(again).toMatchObject({
      live: true,
      status: Status.INPROGRESS,
      outcome: Status.OK,
      byteLength: 100,
      issued: 0,
      batch: 0,
      targetOffset: 0,
      dataOffset: 0,
    });
    queue.free(again);
    close();
  });
});

describe('the activity of a queue', () => {
  it('counts transfers, bytes, failures and submissions', () => {
    const { device, queue, put, close } = open();
    const all = [put(100), put(30)];
    device.complete(1);
    queue.progress();
    device.csResult = -Errno.EIO;
    all.push(put(7));
    device.csResult = 0;
    device.complete(2);
    queue.progress();
    expect(queue.counts).toEqual({ operations: 2, bytes: 130, errors: 1, submissions: 2, in_flight: 0 });
    close(...all);
  });

  it('is published with the times of each transfer and each submission', () => {
    const clock = new ManualClock(1000);
    const device = new RecordingDevice();
    Object.assign(device, { clock });
    const queue = new DmaQueue({ device, route: new CommandRoute(device, { queueIndex: 8, engineId: 45, slots: 2 }) });
    const [transfers, submissions]: [unknown[], unknown[]] = [[], []];
    const onTransfer = (event: unknown): void => void transfers.push(event);
    const onSubmission = (event: unknown): void => void submissions.push(event);
    transferEnd.subscribe(onTransfer);
    commandSubmissionEnd.subscribe(onSubmission);
    const all = [0, 1].map(() => {
      const request = queue.take(64)!;
      request.setSource(0, 0);
      request.setDestination(0, HBM_HIGH);
      queue.start(request);
      clock.advance(5);
      return request;
    });
    device.complete(2);
    queue.progress();
    transferEnd.unsubscribe(onTransfer);
    commandSubmissionEnd.unsubscribe(onSubmission);
    const of = { card: 'recorder', queue: 8 };
    expect(transfers).toEqual([
      { ...of, byteLength: 64, status: Status.OK, startNs: 1000, endNs: 1010 },
      { ...of, byteLength: 64, status: Status.OK, startNs: 1005, endNs: 1010 },
    ]);
    expect(submissions).toEqual([
      { ...of, sequence: 1, startNs: 1000, endNs: 1010 },
      { ...of, sequence: 2, startNs: 1005, endNs: 1010 },
    ]);
    for (const request of all) queue.free(request);
    const { liveBlocks } = scratchStatistics();
    queue.close();
    expect([liveBlocks - scratchStatistics().liveBlocks, device.mappings]).toEqual([3, 0]);
  });
});
