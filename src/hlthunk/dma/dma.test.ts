/** Transfers of the emulated cards: data, splitting, batching, limits, faults, aborts. */

import { describe, expect, it } from 'vitest';
import { settle, useEmulatedDevice } from '../../../test/fixtures/driver/emulated-device.ts';
import { fillPattern } from '../../../test/fixtures/pattern.ts';
import { fenceCfg, Gaudi2QueueBase, HL_CS_CHUNK_FLAGS, PacketOpcode, packetCtl, writeFence } from '../../uapi/index.ts';
import { ManualClock } from '../../ucs/sys/clock.ts';
import { Status } from '../../ucs/type/status.ts';
import {
  commandSubmission,
  type DeviceBlock,
  type DmaRequest,
  GaudiErrorCode,
  HostMapping,
  open,
  requestCommandBuffer,
} from '../index.ts';

const fixture = useEmulatedDevice();
const MIB = 2 ** 20;
const INVALID = expect.objectContaining({ code: GaudiErrorCode.INVALID_PARAMS });
const BUSY = expect.objectContaining({ code: GaudiErrorCode.DEVICE_BUSY });

const SETTINGS = [
  { asic: 'gaudi2', dmaThreads: 0 },
  { asic: 'gaudi2', dmaThreads: 1 },
  { asic: 'gaudi', dmaThreads: 0 },
  { asic: 'gaudi', dmaThreads: 1 },
  { asic: 'gaudi3', dmaThreads: 0, strict: true },
  { asic: 'gaudi3', dmaThreads: 1, strict: true },
] as const;

describe.each(SETTINGS)('on $asic with $dmaThreads dma threads', (setting) => {
  it.each([1, 7, 4096, 65_537, 3 * MIB + 13])('moves %i bytes there, across and back', async (byteLength) => {
    const device = fixture.setUp(setting);
    const source = fixture.pin(device, byteLength + 5);
    const target = fixture.pin(device, byteLength + 5);
    const first = device.memory.allocate(byteLength + 3);
    const second = device.memory.allocate(byteLength + 3);
    fillPattern(source.memory.u8, byteLength);

    expect(await settle(device, device.dma.dmaHostToDeviceAsync(source.mapping, 5, first, 3, byteLength))).toBe(0);
    expect(await settle(device, device.dma.dmaDeviceToDeviceAsync(first, 3, second, 1, byteLength))).toBe(0);
    expect(await settle(device, device.dma.dmaDeviceToHostAsync(second, 1, target.mapping, 2, byteLength))).toBe(0);

    const got = Buffer.from(target.memory.u8.subarray(2, 2 + byteLength));
    expect(got.equals(source.memory.u8.subarray(5))).toBe(true);
    expect(target.memory.u8.subarray(0, 2)).toEqual(new Uint8Array(2));
    expect(target.memory.u8.subarray(2 + byteLength)).toEqual(new Uint8Array(3));
    expect(device.dma.flushed).toBe(true);
  });

  it('splits a transfer into packets and batches', async () => {
    const device = fixture.setUp(setting, { dma: { slots: 2, packetBytesMax: 1000 } });
    const byteLength = 200_001;
    const source = fixture.pin(device, byteLength);
    const target = fixture.pin(device, byteLength);
    const block = device.memory.allocate(byteLength);
    fillPattern(source.memory.u8, 3);
    expect(await settle(device, device.dma.dmaHostToDeviceAsync(source.mapping, 0, block, 0, byteLength))).toBe(0);
    expect(await settle(device, device.dma.dmaDeviceToHostAsync(block, 0, target.mapping, 0, byteLength))).toBe(0);
    expect(Buffer.from(target.memory.u8).equals(source.memory.u8)).toBe(true);
  });

  it('puts and gets short', async () => {
    const device = fixture.setUp(setting);
    const block = device.memory.allocate(4096);
    const bytes = new Uint8Array(1030);
    fillPattern(bytes, 9);
    for (const byteLength of [1, 8, 1000, 1024]) {
      const sent = bytes.slice(6);
      const put = device.dma.putShort(sent, 0, block, 11, byteLength);
      sent.fill(0);
      expect(await settle(device, put)).toBe(Status.OK);
      const got = new Uint8Array(byteLength + 2);
      expect(await settle(device, device.dma.getShort(got, 1, block, 11, byteLength))).toBe(Status.OK);
      expect(got.subarray(1, 1 + byteLength)).toEqual(bytes.subarray(6, 6 + byteLength));
      expect([got[0], got.at(-1)]).toEqual([0, 0]);
    }
  });

  it('runs more requests than there are slots, in order, and ends each once', async () => {
    const device = fixture.setUp(setting, { dma: { slots: 4, submissionsReserved: 60 } });
    const count = 500;
    const source = fixture.pin(device, count * 64);
    const target = fixture.pin(device, count * 64);
    const block = device.memory.allocate(count * 64);
    fillPattern(source.memory.u8, 4);
    const ends = new Array<number>(count).fill(0);
    const order: number[] = [];
    const watch = (request: DmaRequest | undefined, index: number): DmaRequest => {
      expect(request).toBeDefined();
      request!.context = index;
      request!.onComplete = (ended) => {
        ends[ended.context as number]! += 1;
        order.push(ended.context as number);
      };
      return request!;
    };
    for (const back of [false, true]) {
      order.length = 0;
      const requests = ends.map((_, index) =>
        watch(
          back
            ? device.dma.dmaDeviceToHostAsync(block, index * 64, target.mapping, index * 64, 64)
            : device.dma.dmaHostToDeviceAsync(source.mapping, index * 64, block, index * 64, 64),
          index,
        ),
      );
      while (!device.dma.flushed) if (device.dma.progress() === 0) await device.dma.wait(1e6);
      expect(order).toEqual(ends.map((_, index) => index));
      for (const request of requests) device.dma.dmaRequestFree(request);
    }
    expect(ends).toEqual(new Array(count).fill(2));
    expect(Buffer.from(target.memory.u8).equals(source.memory.u8)).toBe(true);
  });

  it('keeps memory while a transfer uses it', async () => {
    const device = fixture.setUp({ ...setting, inlineBytesMax: 0 });
    const { mapping } = fixture.pin(device, 4096);
    const block = device.memory.allocate(4096);
    const request = device.dma.dmaHostToDeviceAsync(mapping, 0, block, 0, 4096)!;
    expect(() => mapping.unmap()).toThrow(BUSY);
    expect(() => block.free()).toThrow(BUSY);
    expect(() => device.dma.dmaRequestFree(request)).toThrow(BUSY);
    expect(await settle(device, request)).toBe(Status.OK);
    expect(() => device.dma.dmaRequestFree(request)).toThrow(INVALID);
    mapping.unmap();
    block.free();
    expect(() => mapping.unmap()).toThrow(INVALID);
    expect(() => block.free()).toThrow(INVALID);
  });

  it('ends every request once when the card is reset', async () => {
    const device = fixture.setUp({ ...setting, inlineBytesMax: 0 }, { dma: { slots: 2 } });
    fixture.log.allow(/reports device_reset/);
    const { mapping } = fixture.pin(device, MIB);
    const block = device.memory.allocate(MIB);
    let ended = 0;
    const requests: DmaRequest[] = [];
    for (let i = 0; i < 200; i++) {
      const request = device.dma.dmaHostToDeviceAsync(mapping, 0, block, 0, MIB)!;
      request.onComplete = () => {
        ended += 1;
      };
      requests.push(request);
    }
    fixture.node.inject(0, { kind: 'hard-reset' });
    for (let round = 0; round < 100_000 && !device.dma.flushed; round++) {
      if (device.dma.progress() === 0) await device.dma.wait(1000);
    }
    expect(device.dma.flushed).toBe(true);
    expect(ended).toBe(200);
    const failed = requests.filter(({ status }) => status === Status.IO_ERROR).length;
    expect(failed).toBeGreaterThan(0);
    expect(requests.filter(({ status }) => status === Status.OK).length).toBe(200 - failed);
    expect(mapping.inFlight).toBe(0);
    for (const request of requests) device.dma.dmaRequestFree(request);
    const late = device.dma.dmaHostToDeviceAsync(mapping, 0, block, 0, 8)!;
    expect(late.status).toBe(Status.IO_ERROR);
    device.dma.dmaRequestFree(late);
    expect(device.dma.failure).toBe(Status.IO_ERROR);
    mapping.unmap();
    expect(device.pinnedBytes).toBeGreaterThan(0);
  });

  it('cancels what is in flight when the device is closed', () => {
    const device = fixture.setUp({ ...setting, inlineBytesMax: 0 });
    const { mapping } = fixture.pin(device, MIB);
    const block = device.memory.allocate(MIB);
    const statuses: Status[] = [];
    for (let i = 0; i < 10; i++) {
      device.dma.dmaDeviceToHostAsync(block, 0, mapping, 0, MIB)!.onComplete = ({ status }) => statuses.push(status);
    }
    device.close();
    device.close();
    expect(statuses).toEqual(new Array(10).fill(Status.CANCELED));
    expect(() => device.dma.dmaDeviceToHostAsync(block, 0, mapping, 0, 1)).toThrow(INVALID);
    expect(() => device.memory.allocate(1)).toThrow(expect.objectContaining({ code: 'ERR_CLOSED' }));
    block.free();
    mapping.unmap();
  });
});

describe('limits', () => {
  it.each([
    ['zero bytes', 0, 0, 0, 'byteLength'],
    ['half a byte', 0, 0, 0.5, 'byteLength'],
    ['more than a number holds', 0, 0, 2 ** 53, 'byteLength'],
    ['a negative length', 0, 0, -1, 'byteLength'],
    ['not a number', 0, 0, Number.NaN, 'byteLength'],
    ['a mapping that ends', 1, 0, 4096, 'mappingOffset'],
    ['a negative offset', -1, 0, 8, 'mappingOffset'],
    ['a block that ends', 0, 1, 4096, 'blockOffset'],
    ['a huge offset', 0, 2 ** 60, 1, 'blockOffset'],
  ])('refuses %s', (_, mappingOffset, blockOffset, byteLength, argument) => {
    const device = fixture.setUp();
    const { mapping } = fixture.pin(device, 4096);
    const block = device.memory.allocate(4096);
    const named = expect.objectContaining({
      code: GaudiErrorCode.INVALID_PARAMS,
      details: expect.objectContaining({ argument }),
    });
    expect(() => device.dma.dmaHostToDeviceAsync(mapping, mappingOffset, block, blockOffset, byteLength)).toThrow(
      named,
    );
    expect(() => device.dma.dmaDeviceToHostAsync(block, blockOffset, mapping, mappingOffset, byteLength)).toThrow(
      named,
    );
    expect(device.dma.outstanding).toBe(0);
    expect(mapping.inFlight).toBe(0);
  });

  it('rejects a short transfer that is too long', () => {
    const device = fixture.setUp();
    const block = device.memory.allocate(4096);
    const bytes = new Uint8Array(2000);
    expect(() => device.dma.putShort(bytes, 0, block, 0, 1025)).toThrow(INVALID);
    expect(() => device.dma.putShort(bytes, 1999, block, 0, 2)).toThrow(INVALID);
    expect(() => device.dma.getShort(bytes, 0, block, 4090, 7)).toThrow(INVALID);
  });

  it('rejects freed memory and memory of another device', () => {
    const device = fixture.setUp({ cards: 2 });
    const { mapping } = fixture.pin(device, 4096);
    const block = device.memory.allocate(4096);
    const other = open(fixture.node, { minor: 1 }, { log: fixture.log.log });
    const foreign = other.memory.allocate(4096);
    expect(foreign.address).toBe(block.address);
    expect(() => device.dma.dmaHostToDeviceAsync(mapping, 0, foreign, 0, 8)).toThrow(INVALID);
    expect(() => other.dma.dmaHostToDeviceAsync(mapping, 0, foreign, 0, 8)).toThrow(INVALID);
    other.close();
    block.free();
    expect(() => device.dma.dmaHostToDeviceAsync(mapping, 0, block, 0, 8)).toThrow(INVALID);
    const again = device.memory.allocate(4096);
    expect(again.address).toBe(block.address);
    expect(again.generation).not.toBe(block.generation);
  });

  it('returns NO_RESOURCE at the limit of requests', async () => {
    const device = fixture.setUp({ inlineBytesMax: 0 }, { dma: { slots: 2 } });
    const { mapping } = fixture.pin(device, 4096);
    const block = device.memory.allocate(4096);
    const requests: DmaRequest[] = [];
    for (;;) {
      const request = device.dma.dmaHostToDeviceAsync(mapping, 0, block, 0, 8);
      if (request === undefined) break;
      requests.push(request);
    }
    expect(requests.length).toBe(4096);
    expect(device.dma.room).toBe(0);
    expect(device.dma.putShort(new Uint8Array(8), 0, block, 0, 8)).toBeUndefined();
    while (!device.dma.flushed) if (device.dma.progress() === 0) await device.dma.wait(1e6);
    for (const request of requests) expect(await settle(device, request)).toBe(Status.OK);
    expect(device.dma.room).toBe(4096);
  });

  it('reports that a driver without channels for users has no transfers', () => {
    const device = fixture.setUp({ asic: 'gaudi3', channelMask: 0 });
    expect(device.dma.limitation).toBe('the driver of gaudi3 reports no DMA channel for users');
    const { mapping } = fixture.pin(device, 4096);
    const block = device.memory.allocate(4096);
    expect(() => device.dma.dmaHostToDeviceAsync(mapping, 0, block, 0, 8)).toThrow(/no free DMA channel/);
  });
});

describe('faults', () => {
  it('fails transfers that complete after a page fault', async () => {
    const device = fixture.setUp();
    fixture.log.allow(/page_fault/);
    const { mapping } = fixture.pin(device, 4096);
    const stray = new HostMapping(
      device.hostMemory,
      { card: device.card, address: 0xfff0700000000000n, byteLength: 4096 },
      0x1000,
    );
    const block = device.memory.allocate(4096);
    expect(await settle(device, device.dma.dmaHostToDeviceAsync(stray, 0, block, 0, 4096))).toBe(Status.IO_ERROR);
    expect(device.events.lastFault?.events).toContain('PAGE_FAULT');
    expect(device.events.lastFault?.pageFault?.addr).toBe(0xfff0700000000000n);
    expect(device.dma.errorOf(Status.IO_ERROR)).toMatchObject({
      code: GaudiErrorCode.DMA_FAILED,
      message: expect.stringMatching(/card 0 .*PAGE_FAULT/),
    });
    expect(device.dma.errorOf(Status.TIMED_OUT).code).toBe(GaudiErrorCode.TIMEOUT);
    expect(device.dma.errorOf(Status.CANCELED).code).toBe(GaudiErrorCode.CHANNEL_FAILED);
    expect(await settle(device, device.dma.dmaHostToDeviceAsync(mapping, 0, block, 0, 4096))).toBe(Status.OK);
  });

  it('of a channel fail what is in flight, as the driver resets the card, and hang nothing', async () => {
    const device = fixture.setUp({ asic: 'gaudi3', dmaThreads: 0, strict: true });
    fixture.log.allow(/page_fault|engine_err/);
    const { mapping, memory } = fixture.pin(device, 8192);
    const address = 0xff70700000000000n;
    const stray = new HostMapping(device.hostMemory, { card: device.card, address, byteLength: 4096 }, 0x1000);
    const block = device.memory.allocate(4096);
    memory.u8.fill(5, 0, 4096);
    expect(await settle(device, device.dma.dmaHostToDeviceAsync(mapping, 0, block, 0, 4096))).toBe(Status.OK);
    const back = device.dma.dmaDeviceToHostAsync(block, 0, mapping, 4096, 4096)!;
    const failing = device.dma.dmaHostToDeviceAsync(stray, 0, block, 0, 4096)!;
    const behind = device.dma.dmaHostToDeviceAsync(mapping, 0, block, 0, 8)!;
    expect(await settle(device, failing)).toBe(Status.IO_ERROR);
    for (const request of [behind, back]) expect(await settle(device, request)).toBe(Status.IO_ERROR);
    // The copy in flight on another channel was executed before its request ended.
    expect(memory.u8.subarray(4096)).toEqual(new Uint8Array(4096).fill(5));
    expect(mapping.inFlight).toBe(0);
    expect(device.events.lastFault?.events).toContain('DEVICE_RESET');
    // The driver waits for the program to close the card.
    expect(device.dma.failure).toBe(Status.IO_ERROR);
  });

  it('of a driver that does not report them show as a time-out of the channel', async () => {
    const clock = new ManualClock();
    const device = fixture.setUp({ asic: 'gaudi3', clock }, { dma: { clock } });
    const { mapping } = fixture.pin(device, 4096);
    const block = device.memory.allocate(4096);
    fixture.node.inject(0, { kind: 'completion' });
    const request = device.dma.dmaHostToDeviceAsync(mapping, 0, block, 0, 4096)!;
    for (let poll = 0; poll < 256; poll++) device.dma.dmaPoll(request);
    expect(request.status).toBe(Status.INPROGRESS);
    clock.advance(30e9);
    expect(await settle(device, request)).toBe(Status.TIMED_OUT);
    expect(mapping.inFlight).toBe(0);
  });

  it('fails transfers behind a submission that timed out', async () => {
    const clock = new ManualClock();
    const device = fixture.setUp({ clock, csTimeoutSeconds: 5 });
    fixture.log.allow(/cs_timeout/);
    const { mapping } = fixture.pin(device, 4096);
    const block = device.memory.allocate(4096);
    const buffer = requestCommandBuffer(device, 4096, { mapped: true });
    writeFence(buffer.words, 0, packetCtl(PacketOpcode.FENCE), fenceCfg(0, 1, 1));
    const fence = { queueIndex: 0, cbHandle: buffer.deviceAddress!, cbSize: 8, flags: HL_CS_CHUNK_FLAGS.USER_ALLOC_CB };
    const stuck = commandSubmission(device, [fence]);
    const behind = device.dma.dmaHostToDeviceAsync(mapping, 0, block, 0, 4096)!;
    expect(device.dma.dmaPoll(behind)).toBe(Status.INPROGRESS);
    clock.advance(6e9);
    expect(await settle(device, behind)).toBe(Status.IO_ERROR);
    expect(device.events.lastFault?.csTimeout?.seq).toBe(stuck);
    expect(device.dma.failure).toBe(Status.IO_ERROR);
    expect(mapping.inFlight).toBe(0);
  });

  it('accepts the completion word if the driver reports no fault', async () => {
    const clock = new ManualClock();
    const device = fixture.setUp({ clock, csTimeoutSeconds: 5 });
    fixture.log.allow(/cs_timeout/);
    const { mapping } = fixture.pin(device, 4096);
    const block = device.memory.allocate(4096);
    fixture.node.inject(0, { kind: 'completion' });
    const request = device.dma.dmaHostToDeviceAsync(mapping, 0, block, 0, 4096);
    expect(await settle(device, request)).toBe(Status.OK);
    clock.advance(6e9);
    const next = device.dma.dmaHostToDeviceAsync(mapping, 0, block, 0, 4096);
    expect(await settle(device, next)).not.toBe(Status.INPROGRESS);
    expect(device.events.lastFault?.csTimeout?.seq).toBe(1n);
  });

  it('retries after EAGAIN and fails at any other errno', async () => {
    const device = fixture.setUp();
    const { mapping } = fixture.pin(device, 4096);
    const block = device.memory.allocate(4096);
    fixture.node.inject(0, { kind: 'ioctl', ioctl: 'CS', errno: 11 });
    expect(await settle(device, device.dma.dmaHostToDeviceAsync(mapping, 0, block, 0, 8))).toBe(Status.OK);
    fixture.node.inject(0, { kind: 'ioctl', ioctl: 'CS', errno: 5 });
    const failed = device.dma.dmaHostToDeviceAsync(mapping, 0, block, 0, 8)!;
    expect(failed.status).toBe(Status.IO_ERROR);
    expect(mapping.inFlight).toBe(0);
    device.dma.dmaRequestFree(failed);
  });

  it('survives the removal of the card', async () => {
    const device = fixture.setUp({ inlineBytesMax: 0 });
    const { mapping } = fixture.pin(device, 4096);
    const block = device.memory.allocate(4096);
    const ok = device.dma.dmaHostToDeviceAsync(mapping, 0, block, 0, 8)!;
    fixture.node.inject(0, { kind: 'unplug' });
    for (let round = 0; round < 1000 && !device.dma.flushed; round++) device.dma.progress();
    expect(ok.status).not.toBe(Status.INPROGRESS);
    device.dma.dmaRequestFree(ok);
    const late = device.dma.dmaHostToDeviceAsync(mapping, 0, block, 0, 8)!;
    expect(late.status).toBe(Status.IO_ERROR);
    device.dma.dmaRequestFree(late);
    mapping.unmap();
    block.free();
  });

  it('starts transfers from callbacks without overwriting pending data', async () => {
    const device = fixture.setUp({}, { dma: { slots: 4 } });
    const block: DeviceBlock = device.memory.allocate(4096);
    const bytes = new Uint8Array(64);
    fillPattern(bytes, 2);
    expect(await settle(device, device.dma.putShort(bytes, 0, block, 0, 64))).toBe(Status.OK);
    const targets = [0, 1, 2, 3].map(() => new Uint8Array(64));
    const requests = targets.map((target) => device.dma.getShort(target, 0, block, 0, 64)!);
    requests[0]!.onComplete = () => {
      for (let i = 0; i < 4; i++) {
        const more = device.dma.getShort(new Uint8Array(8), 0, block, 256, 8);
        if (more !== undefined) requests.push(more);
      }
    };
    while (!device.dma.flushed) device.dma.progress();
    for (const target of targets) expect(target).toEqual(bytes);
    for (const request of requests) device.dma.dmaRequestFree(request);
  });

  it('wakes for any queue, also for a transfer that starts during a shared sleep', async () => {
    // The clock of the sleep stands still: only progress ends it.
    const clock = new ManualClock();
    const device = fixture.setUp({ inlineBytesMax: 0 }, { dma: { clock } });
    const { mapping } = fixture.pin(device, 4096);
    const block = device.memory.allocate(8192);
    const buffer = requestCommandBuffer(device, 4096, { mapped: true });
    writeFence(buffer.words, 0, packetCtl(PacketOpcode.FENCE), fenceCfg(0, 1, 1));
    const flags = HL_CS_CHUNK_FLAGS.USER_ALLOC_CB;
    const queueIndex = Gaudi2QueueBase.DCORE0_EDMA_0;
    commandSubmission(device, [{ queueIndex, cbHandle: buffer.deviceAddress!, cbSize: 8, flags }]);
    const stuck = device.dma.dmaDeviceToDeviceAsync(block, 0, block, 4096, 4096)!;
    expect(device.dma.dmaPoll(stuck)).toBe(Status.INPROGRESS);

    const sleeping = [device.dma.wait(1e9), device.dma.wait(2e9)];
    expect(clock.pendingTimers).toBe(1);
    const put = device.dma.dmaHostToDeviceAsync(mapping, 0, block, 0, 4096)!;
    await Promise.all(sleeping);
    expect(clock.pendingTimers).toBe(0);
    while (device.dma.dmaPoll(put) === Status.INPROGRESS) await device.dma.wait(1e9);
    expect([put.status, stuck.status]).toEqual([Status.OK, Status.INPROGRESS]);
    device.dma.dmaRequestFree(put);

    // An earlier deadline shortens the sleep for all callers.
    const late = device.dma.wait(1e9);
    const soon = device.dma.wait(1000);
    expect([clock.pendingTimers, clock.nextDeadlineNs]).toEqual([1, 1000]);
    clock.advance(1000);
    await Promise.all([late, soon]);
    const closing = device.dma.wait(1e9);
    device.close();
    await closing;
    expect(clock.pendingTimers).toBe(0);
    expect(stuck.status).toBe(Status.CANCELED);
  });

  it('lets the event loop run while the driver rejects submissions and nothing is in flight', async () => {
    const clock = new ManualClock();
    const device = fixture.setUp({}, { dma: { clock } });
    const { mapping } = fixture.pin(device, 4096);
    const block = device.memory.allocate(4096);
    fixture.node.inject(0, { kind: 'ioctl', ioctl: 'CS', errno: 12 });
    const request = device.dma.dmaHostToDeviceAsync(mapping, 0, block, 0, 8)!;
    expect(request.status).toBe(Status.INPROGRESS);
    const waiting = device.dma.wait(1e9);
    expect(clock.nextDeadlineNs).toBe(1e6);
    clock.advance(1e6);
    await waiting;
    expect(await settle(device, request)).toBe(Status.OK);
  });

  it('returns from a wait at once when nothing is in flight', async () => {
    const device = fixture.setUp();
    await device.dma.wait(1e6);
    await expect(device.dma.wait(-1)).rejects.toEqual(INVALID);
  });
});
