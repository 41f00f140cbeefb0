/** The packets and submissions of a DMA queue, recorded by a test driver: lengths beyond 4 GiB, batches, rejections, time-outs. */

import { describe, expect, it } from 'vitest';
import { RecordingDevice } from '../../../test/fixtures/driver/recording-device.ts';
import { expectNoLeaks } from '../../../test/fixtures/leak-check.ts';
import { Errno, scratchStatistics } from '../../sys/index.ts';
import { joinBig } from '../../ucs/type/int64.ts';
import { Status } from '../../ucs/type/status.ts';
import { CommandRing } from './command-ring.ts';
import { CommandRoute } from './command-route.ts';
import { DMA_PACKET_BYTES_MAX, DmaQueue } from './queue.ts';
import type { DmaRequest } from './request.ts';
import { TRANSIENT_ERRORS_MAX } from './submission.ts';

expectNoLeaks();

const HBM = 0x1001_0018_0000_0000n;
const HBM_HIGH = 0x10010018;
const HOST_LOW = 0x7000 | 0;
const HOST_HIGH = 0xfff00000 | 0;

/** Node.js 20 has resizable ArrayBuffers (ES2024); the library types of ES2023 do not. */
interface ResizableBuffer extends ArrayBuffer {
  resize(byteLength: number): void;
}
const ResizableBuffer = ArrayBuffer as unknown as new (
  byteLength: number,
  options: { maxByteLength: number },
) => ResizableBuffer;
interface ResizableTarget {
  readonly buffer: ResizableBuffer;
}

/** Lets the event loop run all pending tasks. */
const eventLoop = (): Promise<void> => new Promise((resolve) => setImmediate(resolve));

function openQueue(slots = 4, packetBytesMax?: number): { device: RecordingDevice; queue: DmaQueue } {
  const device = new RecordingDevice();
  const options = packetBytesMax === undefined ? {} : { packetBytesMax };
  return {
    device,
    queue: new DmaQueue({
      device,
      route: new CommandRoute(device, { queueIndex: 8, engineId: 45, slots }),
      ...options,
    }),
  };
}

/** Starts a transfer of host memory to an address of HBM, given by its low word. */
function transfer(queue: DmaQueue, to: number, byteLength: number): DmaRequest {
  const request = queue.take(byteLength)!;
  request.setSource(HOST_LOW, HOST_HIGH);
  request.setDestination(to, HBM_HIGH);
  queue.start(request);
  return request;
}

/** Starts a short get of 4 bytes of HBM. */
function getShort(queue: DmaQueue, target: Uint8Array, offset: number): DmaRequest {
  const request = queue.takeGet(target, offset, 4)!;
  request.setSource(0, HBM_HIGH);
  queue.start(request);
  return request;
}

describe('packets', () => {
  it('moves a length beyond 4 GiB in one batch of packets', () => {
    const { device, queue } = openQueue();
    const byteLength = 10 * 2 ** 30 + 123;
    const request = transfer(queue, 0xffff_f000 | 0, byteLength);
    expect(device.submissions).toHaveLength(1);
    const { transfers, queueIndex, completion } = device.submissions[0]!;
    expect(queueIndex).toBe(8);
    expect(transfers.map((transfer) => transfer.byteLength)).toEqual([
      DMA_PACKET_BYTES_MAX,
      DMA_PACKET_BYTES_MAX,
      byteLength - 2 * DMA_PACKET_BYTES_MAX,
    ]);
    let offset = 0n;
    for (const transfer of transfers) {
      expect(transfer.source).toBe(joinBig(HOST_LOW, HOST_HIGH) + offset);
      expect(transfer.destination).toBe(HBM + 0xffff_f000n + offset);
      offset += BigInt(transfer.byteLength);
    }
    expect(completion.value).toBe(1);
    expect(request.status).toBe(Status.INPROGRESS);
    device.complete(1);
    expect(queue.progress()).toBe(1);
    expect(request.status).toBe(Status.OK);
    queue.free(request);
    queue.close();
  });

  it('uses several batches if one is too small, and completes with the last', () => {
    const { device, queue } = openQueue(2, 4096);
    const byteLength = 4096 * 100;
    const request = transfer(queue, 0, byteLength);
    expect(device.submissions).toHaveLength(2);
    device.complete(1);
    expect(queue.progress()).toBe(0);
    expect(request.status).toBe(Status.INPROGRESS);
    device.complete(2);
    queue.progress();
    device.complete(3);
    expect(queue.progress()).toBe(1);
    const lengths = device.submissions.flatMap(({ transfers }) => transfers.map((transfer) => transfer.byteLength));
    expect(lengths).toEqual(new Array(100).fill(4096));
    const ends = new Set(
      device.submissions.flatMap(({ transfers }) => transfers.map(({ destination }) => destination)),
    );
    expect(ends.size).toBe(100);
    queue.free(request);
    queue.close();
  });

  it('combines requests that wait for a slot into one batch', () => {
    const { device, queue } = openQueue(1);
    const requests = Array.from({ length: 30 }, (_, i) => transfer(queue, i * 64, 64));
    expect(device.submissions.map(({ transfers }) => transfers.length)).toEqual([1]);
    device.complete(1);
    queue.progress();
    expect(device.submissions.map(({ transfers }) => transfers.length)).toEqual([1, 29]);
    device.complete(2);
    expect(queue.progress()).toBe(29);
    expect(device.inFlight).toBe(0);
    for (const request of requests) queue.free(request);
    queue.close();
  });
});

describe('rejections', () => {
  it('retries after EAGAIN and loses nothing', () => {
    const { device, queue } = openQueue();
    device.csResult = -Errno.EAGAIN;
    const request = transfer(queue, 0, 8);
    expect([device.submissions.length, device.inFlight, queue.outstanding]).toEqual([0, 0, 1]);
    queue.progress();
    device.csResult = 0;
    queue.progress();
    expect([device.submissions.length, device.inFlight]).toEqual([1, 1]);
    device.complete(1);
    expect(queue.progress()).toBe(1);
    expect(request.status).toBe(Status.OK);
    queue.free(request);
    queue.close();
  });

  it('waits while the card has no room for submissions', () => {
    const { device, queue } = openQueue();
    device.room = 1;
    const first = transfer(queue, 0, 8);
    const second = transfer(queue, 64, 8);
    expect(device.submissions).toHaveLength(1);
    expect(queue.takePut(new Uint8Array(8), 0, 8)).toBeUndefined();
    device.complete(1);
    queue.progress();
    expect(device.submissions).toHaveLength(2);
    device.complete(2);
    queue.progress();
    expect([first.status, second.status]).toEqual([Status.OK, Status.OK]);
    queue.free(first);
    queue.free(second);
    queue.close();
  });

  it.each([
    ['a time-out', -Errno.ETIMEDOUT, Status.TIMED_OUT],
    ['an abort', -Errno.EIO, Status.IO_ERROR],
    ['a card in reset', -Errno.EBUSY, Status.IO_ERROR],
    ['a removed card', -Errno.ENODEV, Status.IO_ERROR],
  ])('ends everything once after %s', (_, errno, status) => {
    const { device, queue } = openQueue(1);
    let ended = 0;
    const requests = [0, 1, 2].map((i) => transfer(queue, i * 64, 8));
    for (const request of requests) {
      request.onComplete = () => {
        ended += 1;
      };
    }
    device.waitResult = errno;
    let reported = 0;
    for (let round = 0; round < 200; round++) reported += queue.progress();
    expect([ended, reported, queue.outstanding, device.inFlight]).toEqual([3, 3, 0, 0]);
    expect(requests.map((request) => request.status)).toEqual([status, status, status]);
    expect(queue.failure).toBe(status);
    const late = transfer(queue, 0, 8);
    expect(late.status).toBe(status);
    for (const request of [...requests, late]) queue.free(request);
    queue.close();
  });

  it('detects its own time-out if the driver only reports that the card is in reset', () => {
    const { device, queue } = openQueue();
    const requests = [0, 1].map((i) => transfer(queue, i * 64, 8));
    device.timedOutSeq = 2;
    device.waitResult = -Errno.EBUSY;
    for (let round = 0; round < 100; round++) queue.progress();
    expect(requests.map((request) => request.status)).toEqual([Status.TIMED_OUT, Status.TIMED_OUT]);
    for (const request of requests) queue.free(request);
    queue.close();
  });

  it('reports a transfer as possibly spoiled until its completion has been seen', () => {
    const { device, queue } = openQueue(2, 4096);
    const [first, second] = [8, 24].map((bytes) => transfer(queue, 0, bytes));
    const third = transfer(queue, 0, 4096 * 100);
    expect(queue.inFlight()).toEqual([first, second]);
    let inCallback: DmaRequest[] = [];
    first!.onComplete = () => {
      inCallback = queue.inFlight();
    };
    device.complete(2);
    queue.progress();
    // Transfers that were complete when faults were read have met none since; a part of the third is submitted.
    expect(inCallback).toEqual([]);
    expect(third.issued).toBeLessThan(third.byteLength);
    expect(queue.inFlight()).toEqual([third]);
    for (let batch = 3; third.status === Status.INPROGRESS; batch++) {
      device.complete(batch);
      queue.progress();
    }
    for (const request of [first!, second!, third]) {
      expect(request.status).toBe(Status.OK);
      queue.free(request);
    }
    queue.close();
  });

  it('fails the transfers that a fault has spoiled, and only those', () => {
    const { device, queue } = openQueue();
    const first = transfer(queue, 0, 8);
    device.onFaults = () => {
      for (const request of queue.inFlight()) request.outcome = Status.IO_ERROR;
    };
    device.complete(1);
    queue.progress();
    const second = transfer(queue, 0, 8);
    device.complete(2);
    queue.progress();
    expect([first.status, second.status]).toEqual([Status.IO_ERROR, Status.OK]);
    queue.free(first);
    queue.free(second);
    queue.close();
  });

  it('keeps its failure reason when a wait ends late', async () => {
    const { device, queue } = openQueue();
    const request = transfer(queue, 0, 8);
    device.waitResult = -Errno.EBADF;
    queue.watch(1e6);
    queue.abort(Status.CANCELED);
    await eventLoop();
    expect(device.wakes).toBe(1);
    expect([request.status, queue.failure]).toEqual([Status.CANCELED, Status.CANCELED]);
    queue.free(request);
    queue.close();
  });
});

describe('transient rejections', () => {
  const MOMENTARY = [
    ['no memory', -Errno.ENOMEM, Status.NO_MEMORY],
    ['a signal', -Errno.EINTR, Status.IO_ERROR],
  ] as const;

  it.each(MOMENTARY)('retries after %s while something is in flight', (_, errno) => {
    const { device, queue } = openQueue();
    const first = transfer(queue, 0, 8);
    device.csResult = errno;
    const second = transfer(queue, 64, 8);
    for (let poll = 0; poll < 2 * TRANSIENT_ERRORS_MAX; poll++) expect(queue.progress()).toBe(0);
    expect([second.status, queue.failure, device.inFlight]).toEqual([Status.INPROGRESS, Status.OK, 1]);
    device.csResult = 0;
    device.complete(1);
    expect(queue.progress()).toBe(1);
    device.complete(2);
    expect(queue.progress()).toBe(1);
    expect([first.status, second.status]).toEqual([Status.OK, Status.OK]);
    for (const request of [first, second]) queue.free(request);
    queue.close();
  });

  it.each(MOMENTARY)('retries after %s while nothing is in flight', (_, errno) => {
    const { device, queue } = openQueue();
    device.csResult = errno;
    const request = transfer(queue, 0, 8);
    for (let poll = 0; poll < 10; poll++) expect(queue.progress()).toBe(0);
    device.csResult = 0;
    queue.progress();
    device.complete(1);
    expect(queue.progress()).toBe(1);
    expect(request.status).toBe(Status.OK);
    queue.free(request);
    queue.close();
  });

  it.each(MOMENTARY)('fails the requests of the batch, not the queue, if %s does not end', (_, errno, status) => {
    const { device, queue } = openQueue(2, 4096);
    device.csResult = errno;
    // The first batch holds 41 packets: those of these two, and a part of the third, which cannot be completed then.
    const lost = [8, 8, 4096 * 60].map((byteLength, i) => transfer(queue, i * 8, byteLength));
    const kept = [transfer(queue, 0, 8)];
    lost[0]!.onComplete = () => {
      device.csResult = 0;
      kept.push(transfer(queue, 0, 8));
    };
    let ended = 0;
    for (let poll = 0; poll < 2 * TRANSIENT_ERRORS_MAX && ended === 0; poll++) ended = queue.progress();
    expect(ended).toBe(3);
    expect(lost.map((request) => request.status)).toEqual([status, status, status]);
    expect([queue.failure, device.submissions.length]).toEqual([Status.OK, 1]);
    expect(device.submissions[0]!.transfers.map((transfer) => transfer.byteLength)).toEqual([8, 8]);
    device.complete(1);
    expect(queue.progress()).toBe(2);
    expect(kept.map((request) => request.status)).toEqual([Status.OK, Status.OK]);
    expect(device.inFlight).toBe(0);
    for (const request of [...lost, ...kept]) queue.free(request);
    queue.close();
  });

  it.each([-Errno.EINTR, -Errno.EAGAIN, -Errno.ENOMEM])('does not fail because a poll returns %i', async (errno) => {
    const { device, queue } = openQueue();
    const request = transfer(queue, 0, 8);
    device.waitResult = errno;
    for (let poll = 0; poll < 200; poll++) queue.progress();
    queue.watch(1e6);
    await eventLoop();
    expect([request.status, queue.failure]).toEqual([Status.INPROGRESS, Status.OK]);
    device.complete(1);
    queue.progress();
    queue.free(request);
    queue.close();
  });
});

describe('watching', () => {
  it('makes one call for any number of watches, and the next one for the batches in flight then', async () => {
    const { device, queue } = openQueue();
    device.heldWaits = [];
    queue.watch(1e9);
    expect(device.heldWaits).toHaveLength(0);
    const requests = [0, 1].map((i) => transfer(queue, i * 64, 8));
    const blocks = scratchStatistics().liveBlocks;
    for (let again = 0; again < 100; again++) queue.watch(1e9);
    expect(device.heldWaits.map(({ seq }) => seq)).toEqual([1]);
    device.complete(1);
    queue.progress();
    queue.watch(1e9);
    expect(device.heldWaits).toHaveLength(1);
    device.heldWaits[0]!.end(0);
    await eventLoop();
    expect(device.wakes).toBe(1);
    queue.watch(1e9);
    expect(device.heldWaits.map(({ seq }) => seq)).toEqual([1, 2]);
    expect(scratchStatistics().liveBlocks).toBe(blocks);
    device.heldWaits[1]!.end(0);
    await eventLoop();
    device.complete(2);
    queue.progress();
    for (const request of requests) queue.free(request);
    queue.close();
  });

  it('begins with a submission during a sleep, and only then', async () => {
    const { device, queue } = openQueue();
    device.heldWaits = [];
    const first = transfer(queue, 0, 8);
    expect(device.heldWaits).toHaveLength(0);
    device.sleepNs = 1e9;
    const second = transfer(queue, 0, 8);
    expect(device.heldWaits.map(({ seq }) => seq)).toEqual([1]);
    device.heldWaits[0]!.end(0);
    await eventLoop();
    device.complete(2);
    queue.progress();
    for (const request of [first, second]) queue.free(request);
    queue.close();
  });

  it('keeps the arguments of a call in progress beyond the end of the queue', async () => {
    const { device, queue } = openQueue();
    device.heldWaits = [];
    const before = scratchStatistics().liveBlocks;
    const request = transfer(queue, 0, 8);
    queue.watch(1e9);
    queue.abort(Status.CANCELED);
    queue.free(request);
    queue.close();
    // Three blocks of the queue; the one of the call stays.
    expect(scratchStatistics().liveBlocks).toBe(before - 2);
    device.heldWaits[0]!.end(-Errno.EBADF);
    await eventLoop();
    expect(scratchStatistics().liveBlocks).toBe(before - 3);
    expect(device.wakes).toBe(0);
  });
});

describe('short gets', () => {
  it.each([
    ['detached', (target: ResizableTarget) => structuredClone(target.buffer, { transfer: [target.buffer] })],
    ['shrunk', (target: ResizableTarget) => target.buffer.resize(11)],
  ])('end with INVALID_ADDR when the target was %s in flight', (_, change) => {
    const { device, queue } = openQueue();
    const buffer = new ResizableBuffer(16, { maxByteLength: 16 });
    const target = new Uint8Array(buffer);
    const bad = getShort(queue, target, 8);
    change({ buffer });
    const good = new Uint8Array(4);
    const next = getShort(queue, good, 0);
    for (const submission of device.submissions) {
      device.bytesAt(submission.transfers[0]!.destination).fill(7, 0, 4);
    }
    device.complete(2);
    expect(queue.progress()).toBe(2);
    expect([bad.status, next.status, queue.failure]).toEqual([Status.INVALID_ADDR, Status.OK, Status.OK]);
    expect([...good]).toEqual([7, 7, 7, 7]);
    for (let i = 0; i < target.length; i++) expect(target[i]).toBe(0);
    for (const request of [bad, next]) queue.free(request);
    queue.close();
  });

  it('copies the bytes of every slot before a callback can reuse one', () => {
    const { device, queue } = openQueue(4);
    const targets = [0, 1, 2, 3].map(() => new Uint8Array(4));
    const requests = targets.map((target) => getShort(queue, target, 0));
    for (const [index, submission] of device.submissions.entries()) {
      device.bytesAt(submission.transfers[0]!.destination).fill(index + 1, 0, 4);
    }
    requests[0]!.onComplete = () => {
      for (let more = queue.takePut(new Uint8Array(4), 0, 4); more !== undefined; ) {
        more.setDestination(0, HBM_HIGH);
        queue.start(more);
        requests.push(more);
        more = queue.takePut(new Uint8Array(4), 0, 4);
      }
    };
    device.complete(4);
    queue.progress();
    expect(targets.map((target) => target[0])).toEqual([1, 2, 3, 4]);
    device.complete(device.submissions.length);
    queue.progress();
    for (const request of requests) queue.free(request);
    queue.close();
  });
});

describe('the ring', () => {
  it('releases everything if a command buffer is rejected', () => {
    const device = new RecordingDevice();
    const refusing = {
      asic: 'gaudi2' as const,
      mapHost: (address: number, byteLength: number) => device.mapHost(address, byteLength),
      createKernelBuffer: () => {
        throw new Error('refused');
      },
    };
    expect(() => new CommandRing(refusing, 4)).toThrow('refused');
    expect(device.mappings).toBe(0);
  });
});
