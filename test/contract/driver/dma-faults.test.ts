/**
 * Which transfers fail when a card reports a fault, for all readers of events and all times: a transfer that may have faulted never ends with OK, one
 * that
 * cannot have faulted ends with OK. On the generations whose queues continue
 * after a fault; a channel of gaudi3 stops.
 */

import { describe, expect, it } from 'vitest';
import {
  type Device,
  type DeviceBlock,
  type DmaRequest,
  type EventSubscription,
  HostMapping,
  type ImportedMapping,
  open,
} from '../../../src/hlthunk/index.ts';
import { allocateScratch, close as closeFd, mapAnonymous } from '../../../src/sys/index.ts';
import { type AsicName, HL_INFO_OP, HL_NOTIFIER_EVENT } from '../../../src/uapi/index.ts';
import { isUcxError } from '../../../src/ucs/type/error.ts';
import { Status } from '../../../src/ucs/type/status.ts';
import { type PinnedMemory, settle, useEmulatedDevice } from '../../fixtures/driver/emulated-device.ts';
import { fillPattern } from '../../fixtures/pattern.ts';

const BYTES = 8192;
/** Host addresses of the card that nothing is mapped at. */
const STRAY: Readonly<Record<AsicName, bigint>> = {
  gaudi: 0x1700000000000n,
  gaudi2: 0xfff0700000000000n,
  gaudi3: 0xff70700000000000n,
};
const ROUNDS = 4;
const fixture = useEmulatedDevice();

/** Consumes the events of the driver, as another library on the same file does. */
function steal(device: Device): void {
  const answer = allocateScratch(8);
  device.card.tryInfo(HL_INFO_OP.GET_EVENTS, answer);
  answer.free();
}

/** Readers of events between the steps of a case, besides the queues. */
const READERS: Readonly<Record<string, (device: Device) => void>> = {
  none: () => undefined,
  receive: (device) => device.events.receive(),
  poll: (device) => device.events.poll(),
  'another reader of the file': steal,
};

/** Bit n: the reader reads after step n. */
const POINTS = [0b001, 0b010, 0b100, 0b111];

interface Bench {
  readonly device: Device;
  readonly pinned: PinnedMemory;
  readonly block: DeviceBlock;
  /** Unmapped addresses. */
  readonly stray: HostMapping;
}

function setUp(asic: AsicName): Bench {
  const device = fixture.setUp({ asic, inlineBytesMax: 0 });
  fixture.log.allow(/reports/);
  fixture.log.allow(/left out/);
  const address = STRAY[asic];
  return {
    device,
    pinned: fixture.pin(device, BYTES),
    block: device.memory.allocate(BYTES),
    stray: new HostMapping(device.hostMemory, { card: device.card, address, byteLength: BYTES }, 0x1000),
  };
}

const put = ({ device, pinned, block }: Bench): DmaRequest =>
  device.dma.dmaHostToDeviceAsync(pinned.mapping, 0, block, 0, BYTES)!;
const strayGet = ({ device, stray, block }: Bench): DmaRequest =>
  device.dma.dmaDeviceToHostAsync(block, 0, stray, 0, BYTES)!;
const strayPut = ({ device, stray, block }: Bench): DmaRequest =>
  device.dma.dmaHostToDeviceAsync(stray, 0, block, 0, BYTES)!;

/** The contents of the block, by a transfer without faults. */
async function contents({ device, block }: Bench): Promise<Uint8Array> {
  const memory = mapAnonymous(BYTES);
  const mapping = device.hostMemoryMap(memory.address, BYTES);
  expect(await settle(device, device.dma.dmaDeviceToHostAsync(block, 0, mapping, 0, BYTES))).toBe(Status.OK);
  const bytes = memory.u8.slice();
  mapping.unmap();
  memory.close();
  return bytes;
}

describe('faults of gaudi3', () => {
  describe.each(Object.entries(READERS))('with events read by %s', (name, read) => {
    // If another reader takes the event of the fault, only the time-out of the queue is left, after 30 s.
    const points = POINTS.filter((point) => name !== 'another reader of the file' || (point & 1) === 0);
    it.each(points)('end the transfers of the channel, until the card is opened again (read at %s)', async (point) => {
      const bench = setUp('gaudi3');
      const { device, pinned } = bench;
      fillPattern(pinned.memory.u8, point);
      expect(await settle(device, put(bench))).toBe(Status.OK);
      expect(await contents(bench)).toEqual(pinned.memory.u8);
      const bad = point % 2 === 0 ? strayGet(bench) : strayPut(bench);
      if (point & 1) read(device);
      expect(await settle(device, bad)).toBe(Status.IO_ERROR);
      if (point & 2) read(device);
      // The same channel: it executes nothing more.
      const later = point % 2 === 0 ? strayGet : put;
      expect(await endOf(bench, later)).not.toBe(Status.OK);
      if (point & 4) read(device);
      device.close();
      const again = open(fixture.node, {}, { log: fixture.log.log });
      const other = { ...bench, device: again, block: again.memory.allocate(BYTES) };
      const memory = mapAnonymous(BYTES);
      fillPattern(memory.u8, 77);
      const mapping = again.hostMemoryMap(memory.address, BYTES);
      const there = again.dma.dmaHostToDeviceAsync(mapping, 0, other.block, 0, BYTES);
      expect(await settle(again, there)).toBe(Status.OK);
      expect(await contents(other)).toEqual(memory.u8);
      again.close();
      memory.close();
    });
  });
});

/** The status of a transfer, which may be rejected at once. */
async function endOf(bench: Bench, start: (bench: Bench) => DmaRequest): Promise<Status> {
  try {
    return await settle(bench.device, start(bench));
  } catch (error) {
    if (!isUcxError(error)) throw error;
    return error.status;
  }
}

describe.each(['gaudi', 'gaudi2'] as const)('faults of %s', (asic) => {
  describe.each(Object.entries(READERS))('with events read by %s', (name, read) => {
    it.each(POINTS)('fail the transfer that faults and no later one (read at %s)', async (points) => {
      const bench = setUp(asic);
      const { device, pinned } = bench;
      for (let round = 0; round < ROUNDS; round++) {
        fillPattern(pinned.memory.u8, round);
        const bad = round % 2 === 0 ? strayGet(bench) : strayPut(bench);
        if (points & 1) read(device);
        const good = put(bench);
        if (points & 2) read(device);
        const first = await settle(device, bad);
        if (points & 4) read(device);
        // Without its event the first fault has no record either, and nothing indicates that the card has faults.
        const isLost = round === 0 && name === 'another reader of the file' && (points & 3) !== 0;
        expect([first, await settle(device, good)]).toEqual([Status.IO_ERROR, isLost ? Status.IO_ERROR : Status.OK]);
        if (!isLost) expect(await contents(bench)).toEqual(pinned.memory.u8);
      }
    });

    it.each(POINTS)(
      'fail everything in flight if the driver does not attribute the fault (read at %s)',
      async (points) => {
        const bench = setUp(asic);
        const { device, pinned } = bench;
        for (let round = 0; round < ROUNDS; round++) {
          fillPattern(pinned.memory.u8, round);
          const good = put(bench);
          if (points & 1) read(device);
          const bad = strayGet(bench);
          if (points & 2) read(device);
          // Alternate the order in which the queues are polled.
          const [one, other] = round % 2 === 0 ? [bad, good] : [good, bad];
          const statuses = [await settle(device, one)];
          if (points & 4) read(device);
          statuses.push(await settle(device, other));
          if (round % 2 !== 0) statuses.reverse();
          // Only the first fault has a record, and only if its event was not consumed.
          const isKnown = round === 0 && !(name === 'another reader of the file' && (points & 2) !== 0);
          expect(statuses).toEqual([Status.IO_ERROR, isKnown ? Status.OK : Status.IO_ERROR]);
          expect(await settle(device, put(bench))).toBe(Status.OK);
          expect(await contents(bench)).toEqual(pinned.memory.u8);
        }
      },
    );
  });

  it('are delivered to every subscriber and to receive, although the queues read them', async () => {
    const bench = setUp(asic);
    const { device } = bench;
    const faults = HL_NOTIFIER_EVENT.PAGE_FAULT | HL_NOTIFIER_EVENT.RAZWI | HL_NOTIFIER_EVENT.USER_ENGINE_ERR;
    for (let round = 1; round <= ROUNDS; round++) {
      const masks: number[] = [];
      let subscriptions: EventSubscription[] = [];
      const told = new Promise<void>((resolve) => {
        subscriptions = [
          device.events.register((mask) => masks.push(mask)),
          device.events.register((mask, { sequence }) => {
            masks.push(mask);
            if (sequence === round) resolve();
          }),
        ];
      });
      expect(await settle(device, strayGet(bench))).toBe(Status.IO_ERROR);
      await told;
      expect(masks).toEqual([faults, faults]);
      expect([device.events.receive(), device.events.receive()]).toEqual([faults, 0]);
      for (const subscription of subscriptions) subscription.close();
    }
  });

  it.each([0, 1])(
    'are attributed to imported memory that its owner has unmapped, not to own memory (%s engine threads)',
    async (dmaThreads) => {
      const device = fixture.setUp({ asic, dmaThreads, inlineBytesMax: 0, cards: 2 });
      fixture.log.allow(/reports/);
      fixture.log.allow(/left out/);
      const pinned = fixture.pin(device, BYTES);
      const back = fixture.pin(device, BYTES);
      const block = device.memory.allocate(BYTES);
      const bench: Bench = { device, pinned, block, stray: undefined as unknown as HostMapping };
      for (let round = 0; round < ROUNDS; round++) {
        const owner = open(fixture.node, { minor: 1 }, { log: fixture.log.log });
        const { fd, offset } = owner.exportDmabuf(owner.memory.allocate(BYTES));
        const imported: ImportedMapping = device.registerDmabufFd(fd, BYTES, offset);
        closeFd(fd);
        fillPattern(pinned.memory.u8, round);
        owner.close();
        const requests = [
          put(bench),
          device.dma.dmaDeviceToHostAsync(imported, 0, back.mapping, 0, BYTES)!,
          put(bench),
          device.dma.dmaHostToDeviceAsync(pinned.mapping, 0, imported, 0, BYTES)!,
          device.dma.dmaDeviceToDeviceAsync(imported, 0, block, 0, BYTES)!,
          put(bench),
        ];
        const statuses: Status[] = [];
        for (const request of requests) statuses.push(await settle(device, request));
        const { OK, IO_ERROR } = Status;
        expect(statuses).toEqual([OK, IO_ERROR, OK, IO_ERROR, IO_ERROR, OK]);
        expect(await contents(bench)).toEqual(pinned.memory.u8);
        imported.unmap();
      }
    },
  );

  it.each([0, 1])(
    'do not affect a transfer whose memory is unmapped while engines work on it (%s threads)',
    async (dmaThreads) => {
      const device = fixture.setUp({ asic, dmaThreads, inlineBytesMax: 0, cards: 2 });
      const { memory, mapping } = fixture.pin(device, BYTES);
      const owner = open(fixture.node, { minor: 1 }, { log: fixture.log.log });
      const { fd, offset } = owner.exportDmabuf(owner.memory.allocate(BYTES));
      const imported = device.registerDmabufFd(fd, BYTES, offset);
      closeFd(fd);
      fillPattern(memory.u8, 9);
      expect(await settle(device, device.dma.dmaHostToDeviceAsync(mapping, 0, imported, 0, BYTES))).toBe(Status.OK);
      const expected = memory.u8.slice();
      memory.u8.fill(0);
      const get = device.dma.dmaDeviceToHostAsync(imported, 0, mapping, 0, BYTES);
      owner.close();
      expect(await settle(device, get)).toBe(Status.OK);
      expect(memory.u8).toEqual(expected);
      imported.unmap();
    },
  );
});
