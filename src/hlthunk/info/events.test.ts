/** Events of a card: notification of subscribers, and the records of a device. */

import { describe, expect, it } from 'vitest';
import { useEmulatedDevice } from '../../../test/fixtures/driver/emulated-device.ts';
import { scriptedCard } from '../../../test/fixtures/driver/scripted-file.ts';
import { createTestLog } from '../../../test/fixtures/test-log.ts';
import { allocateScratch, Errno } from '../../sys/index.ts';
import { HL_INFO_OP, HL_NOTIFIER_EVENT } from '../../uapi/index.ts';
import { WINDOW_NS } from '../../ucs/debug/limited-log.ts';
import { ManualClock } from '../../ucs/sys/clock.ts';
import { Status } from '../../ucs/type/status.ts';
import { DeviceEvents, HostMapping } from '../index.ts';

const fixture = useEmulatedDevice();

describe('events', () => {
  it('calls back from the event loop, every subscriber once', async () => {
    const device = fixture.setUp();
    fixture.log.allow(/device_reset/);
    const masks: number[] = [];
    const told = new Promise<void>((resolve) => {
      device.events.register((mask) => masks.push(mask));
      device.events.register(() => resolve());
    });
    fixture.node.inject(0, { kind: 'hard-reset' });
    await told;
    expect(masks).toEqual([HL_NOTIFIER_EVENT.DEVICE_RESET]);
    expect(device.events.lastFault?.events).toEqual(['DEVICE_RESET']);
    expect(device.events.poll()).toBe(false);
  });

  it('reports nothing after the end of a subscription', () => {
    const device = fixture.setUp();
    fixture.log.allow(/device_reset/);
    const masks: number[] = [];
    {
      using _subscription = device.events.register((mask) => masks.push(mask));
    }
    const { close } = device.events.register((mask) => masks.push(mask));
    close();
    close();
    fixture.node.inject(0, { kind: 'hard-reset' });
    expect(device.events.receive()).toBe(HL_NOTIFIER_EVENT.DEVICE_RESET);
    expect(masks).toEqual([]);
  });

  it('logs a repeated report once, then the number of repetitions', () => {
    const clock = new ManualClock(1e9);
    const device = fixture.setUp({}, { dma: { clock } });
    fixture.log.allow(/page_fault/);
    const stray = new HostMapping(
      device.hostMemory,
      { card: device.card, address: 0xfff0700000000000n, byteLength: 4096 },
      0x1000,
    );
    const block = device.memory.allocate(4096);
    const fault = (): void => {
      const request = device.dma.dmaHostToDeviceAsync(stray, 0, block, 0, 8)!;
      while (device.dma.dmaPoll(request) === Status.INPROGRESS) {}
      expect(request.status).toBe(Status.IO_ERROR);
      device.dma.dmaRequestFree(request);
    };
    const lines = (): string[] =>
      fixture.log.records.map(({ message }) => message).filter((message) => message.includes('page_fault'));
    for (let i = 0; i < 1000; i++) fault();
    expect(lines()).toEqual([
      expect.stringMatching(/reports user_engine_err, razwi, page_fault; page fault at 0xfff0700000000000/),
    ]);
    expect(device.events.lastFault).toMatchObject({ sequence: 1000, pageFault: undefined });
    clock.advance(WINDOW_NS);
    fault();
    fault();
    const left = /^(999|1) more reports of card 0 .*\(user_engine_err, razwi, page_fault\) were left out$/;
    expect(lines().slice(1)).toEqual([
      expect.stringMatching(left),
      expect.stringMatching(/reports user_engine_err, razwi, page_fault$/),
    ]);
    device.close();
    expect(lines().slice(3)).toEqual([expect.stringMatching(left)]);
  });

  it('continues when a subscriber throws, also with later subscribers', async () => {
    const device = fixture.setUp();
    fixture.log.allow(/device_reset/);
    const masks: number[] = [];
    const thrown = new Promise<unknown>((resolve) => {
      process.once('uncaughtException', resolve);
    });
    const listeners = process.listeners('uncaughtException').slice(0, -1);
    for (const listener of listeners) process.off('uncaughtException', listener);
    device.events.register(() => {
      throw new Error('of the subscriber');
    });
    device.events.register((mask) => masks.push(mask));
    fixture.node.inject(0, { kind: 'hard-reset' });
    expect(device.events.receive()).toBe(HL_NOTIFIER_EVENT.DEVICE_RESET);
    expect(masks).toEqual([HL_NOTIFIER_EVENT.DEVICE_RESET]);
    expect(await thrown).toMatchObject({ message: 'of the subscriber' });
    for (const listener of listeners) process.on('uncaughtException', listener);
  });

  it('logs that the events were consumed by another reader', () => {
    const device = fixture.setUp();
    fixture.log.allow(/could not be read/);
    fixture.node.inject(0, { kind: 'hard-reset' });
    using answer = allocateScratch(8);
    device.card.tryInfo(HL_INFO_OP.GET_EVENTS, answer);
    expect(device.events.receive()).toBe(0);
    expect(device.events.lastFault).toMatchObject({ mask: 0, events: [], sequence: 1 });
  });

  it('throws if there is no descriptor for events', () => {
    const { card, close } = scriptedCard(() => -Errno.EMFILE);
    expect(() => new DeviceEvents(card, createTestLog().log)).toThrow(/event fd/);
    close();
  });

  it('logs an event once', () => {
    const device = fixture.setUp();
    fixture.log.allow(/device_reset/);
    fixture.node.inject(0, { kind: 'hard-reset' });
    expect([device.events.poll(), device.events.poll()]).toEqual([true, false]);
    expect(fixture.log.records.filter(({ message }) => message.includes('device_reset'))).toHaveLength(1);
  });

  it('does not need events if the driver has none', () => {
    const { card, close } = scriptedCard(() => -Errno.EINVAL);
    const log = createTestLog();
    const events = new DeviceEvents(card, log.log);
    expect(log.records.map(({ message }) => message)).toEqual([expect.stringMatching(/faults .* cannot be detected/)]);
    expect(events.supported).toBe(false);
    expect(events.poll()).toBe(false);
    expect(events.receive()).toBe(0);
    expect(() => events.register(() => undefined)).toThrow(/does not report events/);
    close();
    events.close();
  });
});
