/** Events of a card: who is told, and what a device remembers. */

import { describe, expect, it } from 'vitest';
import { useEmulatedDevice } from '../../test/fixtures/emulated-device.ts';
import { scriptedCard } from '../../test/fixtures/scripted-card.ts';
import { createTestLog } from '../../test/fixtures/test-log.ts';
import { HL_NOTIFIER_EVENT } from '../uapi/index.ts';
import { DeviceEvents } from './index.ts';

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

  it('tells nobody after the end of a subscription', () => {
    const device = fixture.setUp();
    fixture.log.allow(/device_reset/);
    const masks: number[] = [];
    {
      using _subscription = device.events.register((mask) => masks.push(mask));
    }
    fixture.node.inject(0, { kind: 'hard-reset' });
    expect(device.events.receive()).toBe(HL_NOTIFIER_EVENT.DEVICE_RESET);
    expect(masks).toEqual([]);
  });

  it('logs once what happened', () => {
    const device = fixture.setUp();
    fixture.log.allow(/device_reset/);
    fixture.node.inject(0, { kind: 'hard-reset' });
    expect([device.events.poll(), device.events.poll()]).toEqual([true, false]);
    expect(fixture.log.records.filter(({ message }) => message.includes('device_reset'))).toHaveLength(1);
  });

  it('does without where the driver has none', () => {
    const { card, close } = scriptedCard(() => -22);
    const events = new DeviceEvents(card, createTestLog().log);
    expect(events.supported).toBe(false);
    expect(events.poll()).toBe(false);
    expect(events.receive()).toBe(0);
    expect(() => events.register(() => undefined)).toThrow(/event fd/);
    close();
    events.close();
  });
});
