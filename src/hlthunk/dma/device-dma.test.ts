/** The DMA of a card over a driver that executes nothing: which memory it holds, what it submits and watches, how it sleeps. */

import { afterEach, describe, expect, it } from 'vitest';
import { FakeMemory } from '../../../test/fixtures/driver/fake-card.ts';
import { expectNoLeaks } from '../../../test/fixtures/leak-check.ts';
import type { ArgumentBlock } from '../../driver/port.ts';
import { Errno, viewAt } from '../../sys/index.ts';
import {
  type AsicProfile,
  DRM_IOCTLS,
  GAUDI_PROFILE,
  GAUDI2_PROFILE,
  Gaudi2QueueBase,
  GaudiQueueBase,
  HL_CS_ARGS,
  HL_CS_CHUNK,
  HL_NOTIFIER_EVENT,
  HL_WAIT_CS_ARGS,
} from '../../uapi/index.ts';
import { ManualClock } from '../../ucs/sys/clock.ts';
import { Status } from '../../ucs/type/status.ts';
import { GaudiErrorCode } from '../base/gaudi-error.ts';
import type { DeviceFault } from '../info/events.ts';
import { DeviceDma, type DeviceDmaOptions } from './dma.ts';

expectNoLeaks();

const INVALID = expect.objectContaining({ code: GaudiErrorCode.INVALID_PARAMS });
const BUSY = expect.objectContaining({ code: GaudiErrorCode.DEVICE_BUSY });

const FAULT: DeviceFault = {
  sequence: 1,
  signals: 1,
  mask: HL_NOTIFIER_EVENT.GENERAL_HW_ERR,
  events: ['GENERAL_HW_ERR'],
  pageFault: undefined,
  razwi: undefined,
  undefinedOpcode: undefined,
  engineErr: undefined,
  csTimeout: undefined,
};

/** The driver: its submissions, by queue; waits that it has not answered; the completion words of the rings, in the order of their making. */
class Driver {
  readonly queues: number[] = [];
  readonly waits: number[] = [];
  readonly rings: Int32Array[] = [];
  csResult = 0;
  polls = 0;
  unmaps = 0;
  readonly file = {
    numbers: DRM_IOCTLS,
    lostReason: undefined,
    ioctl: (request: number, block: ArgumentBlock): number => {
      if (request >>> 0 !== DRM_IOCTLS.CS) return 0;
      if (this.csResult !== 0) return this.csResult;
      this.queues.push(block.words[64 / 4 + HL_CS_CHUNK.words.queue_index]!);
      block.words[HL_CS_ARGS.out.words.seq] = this.queues.length;
      block.words[HL_CS_ARGS.out.words.seq + 1] = 0;
      return 0;
    },
    ioctlAsync: (_request: number, block: ArgumentBlock): Promise<number> => {
      this.waits.push(block.words[HL_WAIT_CS_ARGS.in.words.seq]!);
      return new Promise((resolve) => this.ends.push(resolve));
    },
  };
  readonly ends: ((result: number) => void)[] = [];
  readonly card = {
    name: 'card 3',
    minor: 3,
    busId: '0000:03:00.0',
    file: this.file,
    lostReason: undefined as string | undefined,
    submitsCommands: false,
    checkOpen: () => undefined,
    checkUsable: () => undefined,
    unusableReason: () => undefined,
    whyBusy: () => 'busy',
  };
  readonly events = {
    lastFault: undefined as DeviceFault | undefined,
    timedOutSeq: 0,
    onFault: (_fault: DeviceFault): void => undefined,
    listen: (listener: (fault: DeviceFault) => void): void => {
      this.events.onFault = listener;
    },
    poll: (): boolean => {
      this.polls += 1;
      return false;
    },
  };
  readonly hostMemory = {
    map: (address: number, byteLength: number) => {
      this.rings.push(new Int32Array(viewAt(address, byteLength)));
      const unmap = (): void => {
        this.unmaps += 1;
      };
      return { low: 0, high: 0x7000, unmap };
    },
  };

  open(options: DeviceDmaOptions = {}, profile: AsicProfile = GAUDI2_PROFILE): DeviceDma {
    const imports = { touches: () => false };
    const { card, events, hostMemory } = this;
    return new DeviceDma({ card, info: { profile }, hostMemory, events, imports, options } as never);
  }
}

let closing: DeviceDma | undefined;
let endWaits: (() => void) | undefined;
afterEach(async () => {
  closing?.abort(Status.CANCELED);
  closing?.close();
  endWaits?.();
  await new Promise((resolve) => setImmediate(resolve));
});

function setUp(options: DeviceDmaOptions = {}, profile: AsicProfile = GAUDI2_PROFILE) {
  const driver = new Driver();
  const clock = new ManualClock();
  const dma = driver.open({ clock, slots: 4, ...options }, profile);
  closing = dma;
  endWaits = () => {
    for (const end of driver.ends) end(0);
  };
  const mapping = new FakeMemory(0x100, 4096, driver.card);
  const [block, other] = [new FakeMemory(0x200, 4096, driver.card), new FakeMemory(0x300, 4096, driver.card)];
  const put = () => dma.dmaHostToDeviceAsync(mapping as never, 0, block, 0, 64)!;
  const get = () => dma.dmaDeviceToHostAsync(block, 0, mapping as never, 0, 64)!;
  const copy = () => dma.dmaDeviceToDeviceAsync(block, 0, other, 0, 64)!;
  return { driver, clock, dma, mapping, block, other, put, get, copy };
}

describe('a transfer in flight', () => {
  it.each(['put', 'get', 'copy'] as const)('holds both of its memories until it ends: %s', (kind) => {
    const made = setUp();
    const request = made[kind]();
    const held = () => [made.mapping.inFlight, made.block.inFlight, made.other.inFlight];
    expect(held()).toEqual(kind === 'copy' ? [0, 1, 1] : [1, 1, 0]);
    expect(() => made.dma.dmaRequestFree(request)).toThrow(BUSY);
    // Its owner may release the memory when it is called.
    let inCall: number[] = [];
    request.onComplete = () => {
      inCall = held();
    };
    made.driver.rings[0]![0] = 1;
    expect(made.dma.dmaPoll(request)).toBe(Status.OK);
    expect([held(), inCall]).toEqual([
      [0, 0, 0],
      [0, 0, 0],
    ]);
    made.dma.dmaRequestFree(request);
    expect(() => made.dma.dmaPoll(request)).toThrow(INVALID);
    expect(() => made.dma.dmaRequestFree(request)).toThrow(INVALID);
  });

  it('is known to its own card only', () => {
    const { put, dma } = setUp();
    const request = put();
    const other = new Driver().open();
    expect(() => other.dmaPoll(request)).toThrow(INVALID);
    expect(() => other.dmaRequestFree(request)).toThrow(INVALID);
    expect(dma.dmaPoll(request)).toBe(Status.INPROGRESS);
  });

  it('uses no memory after the device was closed, though the memory is live', () => {
    const { dma, put, mapping } = setUp();
    dma.abort(Status.CANCELED);
    expect(mapping.live).toBe(true);
    expect(put).toThrow(INVALID);
  });

  it('of a card that cannot be used is refused before a queue is opened', () => {
    const { driver, put } = setUp();
    driver.card.checkUsable = () => {
      throw new Error('in reset');
    };
    expect(put).toThrow('in reset');
    expect(driver.rings).toEqual([]);
  });
});

describe('submissions', () => {
  it('go to the queue of their direction', () => {
    const { driver, put, get, copy } = setUp();
    for (const start of [put, get, copy]) start();
    const { PDMA_0, PDMA_1, DCORE0_EDMA_0 } = Gaudi2QueueBase;
    expect(driver.queues).toEqual([PDMA_0, PDMA_1, DCORE0_EDMA_0]);
    closing?.abort(Status.CANCELED);
    closing?.close();
    expect(driver.unmaps).toBe(3);
  });

  it('of gaudi go to a stream of their own within the card, in a command buffer of the driver', () => {
    const { driver, dma, put, get, copy } = setUp({}, GAUDI_PROFILE);
    const words = new Uint32Array(10_000);
    let destroyed = 0;
    const destroy = (): void => {
      destroyed += 1;
    };
    expect(dma.createKernelBuffer).toBeDefined();
    Object.assign(dma, { createKernelBuffer: () => ({ handle: 7n, words, destroy }) });
    for (const start of [put, get, copy]) start();
    const { DMA_0, DMA_1 } = GaudiQueueBase;
    expect(driver.queues).toEqual([DMA_0, DMA_1, DMA_0 + 1]);
    dma.abort(Status.CANCELED);
    dma.close();
    expect(destroyed).toBe(3);
    expect(setUp().dma.createKernelBuffer).toBeUndefined();
  });

  it('leave the reserved ones of the driver free, exactly', () => {
    const { driver, dma, put } = setUp({ submissionsReserved: GAUDI2_PROFILE.maxPendingCs - 2 });
    for (let i = 0; i < 3; i++) put();
    expect([driver.queues.length, dma.submissions]).toEqual([2, { inFlight: 2, max: 2 }]);
    driver.rings[0]![0] = 1;
    dma.progress();
    expect([driver.queues.length, dma.submissions.inFlight]).toEqual([3, 2]);
    driver.rings[0]![0] = 3;
    dma.progress();
    expect([dma.submissions.inFlight, dma.flushed]).toEqual([0, true]);
  });

  it('that are corked start when all are uncorked, in every direction, as one of each', () => {
    const { driver, dma, put, get } = setUp();
    dma.cork();
    for (const start of [put, put, get]) start();
    expect(driver.queues).toEqual([]);
    dma.uncork();
    expect(driver.queues).toEqual([Gaudi2QueueBase.PDMA_0, Gaudi2QueueBase.PDMA_1]);
    put();
    expect(driver.queues).toHaveLength(3);
  });

  it('read the faults before them only once there was one, or other commands were submitted', () => {
    const { driver, put } = setUp();
    put();
    expect(driver.polls).toBe(0);
    driver.card.submitsCommands = true;
    put();
    expect(driver.polls).toBe(1);
    driver.card.submitsCommands = false;
    driver.events.lastFault = FAULT;
    put();
    expect(driver.polls).toBe(2);
  });
});

describe('faults', () => {
  it('that may have spoiled data fail what is in flight; a time-out alone does not', () => {
    const { driver, dma, put } = setUp();
    const kept = put();
    driver.events.onFault({ ...FAULT, mask: HL_NOTIFIER_EVENT.CS_TIMEOUT });
    driver.rings[0]![0] = 1;
    expect(dma.dmaPoll(kept)).toBe(Status.OK);
    const spoiled = put();
    driver.events.onFault(FAULT);
    driver.rings[0]![0] = 2;
    expect(dma.dmaPoll(spoiled)).toBe(Status.IO_ERROR);
    expect([dma.failure, dma.hasFailed]).toEqual([Status.OK, false]);
  });

  it('of a card that is lost fail later transfers, in every direction that was used', () => {
    const { driver, dma, put, get } = setUp();
    const [first] = [put(), get()];
    driver.card.lostReason = 'reset';
    driver.events.onFault({ ...FAULT, mask: HL_NOTIFIER_EVENT.DEVICE_RESET });
    expect([dma.failure, dma.hasFailed, put().status, get().status]).toEqual([
      Status.IO_ERROR,
      true,
      Status.IO_ERROR,
      Status.IO_ERROR,
    ]);
    driver.rings[0]![0] = 1;
    expect(dma.dmaPoll(first!)).toBe(Status.IO_ERROR);
  });

  it('of the second queue are those of the card', () => {
    const { driver, dma, put, get } = setUp();
    put();
    driver.csResult = -Errno.EIO;
    expect(get().status).toBe(Status.IO_ERROR);
    expect([dma.failure, dma.hasFailed]).toEqual([Status.OK, true]);
    expect(dma.errorOf(Status.IO_ERROR).message).toMatch(/rejected its submission with EIO/);
    driver.csResult = -Errno.ENODEV;
    get();
    expect(dma.failure).toBe(Status.IO_ERROR);
    expect(dma.errorOf(Status.IO_ERROR).message).toMatch(/accepts no more transfers/);
  });
});

describe('counters', () => {
  it('are those of each direction, and room that of the fullest', () => {
    const { driver, dma, put, get } = setUp();
    const [first] = [put(), put(), get()];
    driver.rings[0]![0] = 1;
    dma.progress();
    const { hostToDevice, deviceToHost, deviceToDevice } = dma.counts;
    expect(hostToDevice).toEqual({ operations: 1, bytes: 64, errors: 0, submissions: 2, in_flight: 1 });
    expect(deviceToHost).toEqual({ operations: 0, bytes: 0, errors: 0, submissions: 1, in_flight: 1 });
    expect([deviceToDevice, dma.room, dma.outstanding]).toEqual([undefined, 4094, 2]);
    dma.dmaRequestFree(first!);
    expect(dma.room).toBe(4095);
  });
});

describe('a wait', () => {
  it('watches every queue, and ends with the progress of any', async () => {
    const { driver, dma, clock, put, get } = setUp();
    for (const start of [put, get]) start();
    const [first, second] = [dma.wait(1e9), dma.wait(2e9)];
    expect([driver.waits, clock.pendingTimers, clock.nextDeadlineNs]).toEqual([[1, 2], 1, 1e9]);
    driver.rings[1]![0] = 1;
    expect(dma.progress()).toBe(1);
    expect(clock.pendingTimers).toBe(0);
    await Promise.all([first, second]);
  });

  it('ends when the driver answers, although nothing calls progress', async () => {
    const { driver, dma, clock, put } = setUp();
    put();
    const waiting = dma.wait(1e9);
    driver.ends[0]!(0);
    await waiting;
    expect(clock.pendingTimers).toBe(0);
  });

  it('includes a transfer that starts meanwhile on another queue', async () => {
    const { driver, dma, put, get } = setUp();
    put();
    const waiting = dma.wait(1e9);
    get();
    expect(driver.waits).toEqual([1, 2]);
    driver.ends[1]!(0);
    await waiting;
  });

  it('is over at once without transfers, and at the close of the device', async () => {
    const { dma, clock, put } = setUp();
    await dma.wait(1e9);
    expect(clock.pendingTimers).toBe(0);
    put();
    const waiting = dma.wait(1e9);
    dma.abort(Status.CANCELED);
    await waiting;
    expect(clock.pendingTimers).toBe(0);
  });

  it('for the driver to accept a submission is at most the requested time and a millisecond', async () => {
    const { driver, dma, clock, put } = setUp();
    driver.csResult = -Errno.EAGAIN;
    put();
    const first = dma.wait(1e9);
    expect(clock.nextDeadlineNs).toBe(1e6);
    const second = dma.wait(1000);
    expect(clock.nextDeadlineNs).toBe(1000);
    clock.advance(1000);
    await Promise.all([first, second]);
  });
});
