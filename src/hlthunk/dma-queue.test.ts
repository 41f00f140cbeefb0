/** The packets and submissions of a DMA queue, seen by a driver that records them: lengths beyond 4 GiB, batches, refusals, time-outs. */

import { describe, expect, it } from 'vitest';
import { expectNoLeaks } from '../../test/fixtures/leak-check.ts';
import { RecordingDevice } from '../../test/fixtures/recording-device.ts';
import { Errno } from '../sys/index.ts';
import { Status } from '../ucs/status.ts';
import { CommandRing } from './command-ring.ts';
import { packAddress } from './device-address.ts';
import { DMA_PACKET_BYTES_MAX, DmaQueue } from './dma-queue.ts';

expectNoLeaks();

const HBM = 0x1001_0018_0000_0000n;
const HBM_HIGH = 0x10010018;
const HOST_LOW = 0x7000 | 0;
const HOST_HIGH = 0xfff00000 | 0;

function openQueue(slots = 4, packetBytesMax?: number): { device: RecordingDevice; queue: DmaQueue } {
  const device = new RecordingDevice();
  const options = packetBytesMax === undefined ? {} : { packetBytesMax };
  return { device, queue: new DmaQueue({ device, queueIndex: 8, slots, ...options }) };
}

describe('packets', () => {
  it('moves a length beyond 4 GiB in one batch of packets', () => {
    const { device, queue } = openQueue();
    const byteLength = 10 * 2 ** 30 + 123;
    const request = queue.transfer(HOST_LOW, HOST_HIGH, 0xffff_f000 | 0, HBM_HIGH, byteLength)!;
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
      expect(transfer.source).toBe(packAddress(HOST_LOW, HOST_HIGH) + offset);
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

  it('takes several batches for what does not fit into one, and ends with the last', () => {
    const { device, queue } = openQueue(2, 4096);
    const byteLength = 4096 * 100;
    const request = queue.transfer(HOST_LOW, HOST_HIGH, 0, HBM_HIGH, byteLength)!;
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

  it('collects what waits for a slot into one batch', () => {
    const { device, queue } = openQueue(1);
    const requests = Array.from({ length: 30 }, (_, i) => queue.transfer(HOST_LOW, HOST_HIGH, i * 64, HBM_HIGH, 64)!);
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

describe('refusals', () => {
  it('tries again after EAGAIN and loses nothing', () => {
    const { device, queue } = openQueue();
    device.csResult = -Errno.EAGAIN;
    const request = queue.transfer(HOST_LOW, HOST_HIGH, 0, HBM_HIGH, 8)!;
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
    const first = queue.transfer(HOST_LOW, HOST_HIGH, 0, HBM_HIGH, 8)!;
    const second = queue.transfer(HOST_LOW, HOST_HIGH, 64, HBM_HIGH, 8)!;
    expect(device.submissions).toHaveLength(1);
    expect(queue.putShort(new Uint8Array(8), 0, 0, HBM_HIGH, 8)).toBeUndefined();
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
    const requests = [0, 1, 2].map((i) => queue.transfer(HOST_LOW, HOST_HIGH, i * 64, HBM_HIGH, 8)!);
    for (const request of requests) {
      request.onComplete = () => {
        ended += 1;
      };
    }
    device.waitResult = errno;
    let reported = 0;
    for (let turn = 0; turn < 200; turn++) reported += queue.progress();
    expect([ended, reported, queue.outstanding, device.inFlight]).toEqual([3, 3, 0, 0]);
    expect(requests.map((request) => request.status)).toEqual([status, status, status]);
    expect(queue.failure).toBe(status);
    const late = queue.transfer(HOST_LOW, HOST_HIGH, 0, HBM_HIGH, 8)!;
    expect(late.status).toBe(status);
    for (const request of [...requests, late]) queue.free(request);
    queue.close();
  });

  it('knows its own time-out when the driver only says that the card is in reset', () => {
    const { device, queue } = openQueue();
    const requests = [0, 1].map((i) => queue.transfer(HOST_LOW, HOST_HIGH, i * 64, HBM_HIGH, 8)!);
    device.timedOutSeq = 2;
    device.waitResult = -Errno.EBUSY;
    for (let turn = 0; turn < 100; turn++) queue.progress();
    expect(requests.map((request) => request.status)).toEqual([Status.TIMED_OUT, Status.TIMED_OUT]);
    for (const request of requests) queue.free(request);
    queue.close();
  });

  it('fails what completes after a fault, and only that', () => {
    const { device, queue } = openQueue();
    const first = queue.transfer(HOST_LOW, HOST_HIGH, 0, HBM_HIGH, 8)!;
    device.faults = Status.IO_ERROR;
    device.complete(1);
    queue.progress();
    const second = queue.transfer(HOST_LOW, HOST_HIGH, 0, HBM_HIGH, 8)!;
    device.complete(2);
    queue.progress();
    expect([first.status, second.status]).toEqual([Status.IO_ERROR, Status.OK]);
    queue.free(first);
    queue.free(second);
    queue.close();
  });

  it('keeps its reason when a wait ends late', async () => {
    const { device, queue } = openQueue();
    const request = queue.transfer(HOST_LOW, HOST_HIGH, 0, HBM_HIGH, 8)!;
    device.waitResult = -Errno.EBADF;
    const waiting = queue.wait(1e6);
    queue.abort(Status.CANCELED);
    await waiting;
    expect([request.status, queue.failure]).toEqual([Status.CANCELED, Status.CANCELED]);
    queue.free(request);
    queue.close();
  });
});

describe('short gets', () => {
  it('copies the bytes of every slot out before a callback can reuse one', () => {
    const { device, queue } = openQueue(4);
    const targets = [0, 1, 2, 3].map(() => new Uint8Array(4));
    const requests = targets.map((target) => queue.getShort(target, 0, 0, HBM_HIGH, 4)!);
    for (const [index, submission] of device.submissions.entries()) {
      device.bytesAt(submission.transfers[0]!.destination).fill(index + 1, 0, 4);
    }
    requests[0]!.onComplete = () => {
      for (let more = queue.putShort(new Uint8Array(4), 0, 0, HBM_HIGH, 4); more !== undefined; ) {
        requests.push(more);
        more = queue.putShort(new Uint8Array(4), 0, 0, HBM_HIGH, 4);
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
  it('gives everything back when a command buffer is refused', () => {
    const device = new RecordingDevice();
    const refusing = {
      mapHost: (address: number, byteLength: number) => device.mapHost(address, byteLength),
      createKernelBuffer: () => {
        throw new Error('refused');
      },
    };
    expect(() => new CommandRing(refusing, 4)).toThrow('refused');
    expect(device.mappings).toBe(0);
  });
});
