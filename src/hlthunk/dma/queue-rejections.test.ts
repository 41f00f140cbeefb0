/** Submissions that the driver rejects for good: their requests fail, and the queue continues unless the card is lost. */

import { describe, expect, it } from 'vitest';
import { RecordingDevice } from '../../../test/fixtures/driver/recording-device.ts';
import { expectNoLeaks } from '../../../test/fixtures/leak-check.ts';
import { Errno } from '../../sys/index.ts';
import { Status } from '../../ucs/type/status.ts';
import { CommandRoute } from './command-route.ts';
import { DmaQueue } from './queue.ts';
import type { DmaRequest } from './request.ts';

expectNoLeaks();

const HBM_HIGH = 0x10010018;

function openQueue(slots: number): { device: RecordingDevice; queue: DmaQueue; put: (bytes: number) => DmaRequest } {
  const device = new RecordingDevice();
  const queue = new DmaQueue({
    device,
    route: new CommandRoute(device, { queueIndex: 8, engineId: 45, slots }),
    packetBytesMax: 4096,
  });
  const put = (bytes: number): DmaRequest => {
    const request = queue.take(bytes)!;
    request.setSource(0x7000, -1);
    request.setDestination(0, HBM_HIGH);
    queue.start(request);
    return request;
  };
  return { device, queue, put };
}

describe('a rejected submission', () => {
  it.each([Errno.EIO, Errno.EINVAL, Errno.EFAULT])('fails its own request only: errno %i', (errno) => {
    const { device, queue, put } = openQueue(4);
    device.csResult = -errno;
    const rejected = put(64);
    expect([rejected.status, queue.failure, queue.failureErrno, queue.outstanding]).toEqual([
      Status.IO_ERROR,
      Status.OK,
      errno,
      0,
    ]);
    device.csResult = 0;
    const next = put(64);
    device.complete(1);
    expect(queue.progress()).toBe(1);
    expect([next.status, queue.failureErrno, device.inFlight]).toEqual([Status.OK, 0, 0]);
    for (const request of [rejected, next]) queue.free(request);
    queue.close();
  });

  it('ends its requests behind the batches in flight, which may have packets of them', () => {
    const { device, queue, put } = openQueue(1);
    const order: string[] = [];
    // The first batch holds a part of the long transfer; the second, rejected, has its rest and all of the short one.
    const [long, short] = [put(4096 * 60), put(64)];
    for (const [name, request] of Object.entries({ long, short })) request.onComplete = () => void order.push(name);
    expect(long.issued).toBeGreaterThan(0);
    expect(long.issued).toBeLessThan(long.byteLength);
    device.csResult = -Errno.EIO;
    device.complete(1);
    queue.progress();
    expect([order, long.status, short.status]).toEqual([['long', 'short'], Status.IO_ERROR, Status.IO_ERROR]);
    expect([queue.outstanding, device.inFlight, queue.failure]).toEqual([0, 0, Status.OK]);
    for (const request of [long, short]) queue.free(request);
    queue.close();
  });

  it('does not touch the transfers in flight, nor end before them', () => {
    const { device, queue, put } = openQueue(4);
    const earlier = put(64);
    device.csResult = -Errno.EIO;
    const rejected = put(64);
    device.csResult = 0;
    const later = put(64);
    expect([earlier, rejected, later].map(({ status }) => status)).toEqual(new Array(3).fill(Status.INPROGRESS));
    device.complete(1);
    expect(queue.progress()).toBe(2);
    expect([earlier, rejected, later].map(({ status }) => status)).toEqual([
      Status.OK,
      Status.IO_ERROR,
      Status.INPROGRESS,
    ]);
    device.complete(2);
    queue.progress();
    expect(later.status).toBe(Status.OK);
    for (const request of [earlier, rejected, later]) queue.free(request);
    queue.close();
  });

  it.each([Errno.EBUSY, Errno.EPERM, Errno.ENODEV])('ends the queue if the card is lost: errno %i', (errno) => {
    const { device, queue, put } = openQueue(4);
    device.csResult = -errno;
    const rejected = put(64);
    device.csResult = 0;
    const next = put(64);
    expect([rejected.status, next.status, queue.failure]).toEqual(new Array(3).fill(Status.IO_ERROR));
    expect(device.submissions).toEqual([]);
    for (const request of [rejected, next]) queue.free(request);
    queue.close();
  });
});
