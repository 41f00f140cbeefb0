/** How events reach the users of a card, with a driver that a test answers for. */

import { writeSync } from 'node:fs';
import { setImmediate } from 'node:timers/promises';
import { afterEach, describe, expect, it, vi } from 'vitest';
import { infoResult, scriptedFileCard } from '../../../test/fixtures/driver/scripted-file.ts';
import { expectNoLeaks } from '../../../test/fixtures/leak-check.ts';
import { createTestLog, type TestLog } from '../../../test/fixtures/test-log.ts';
import { Errno, PollSubscription, pollReadable } from '../../sys/index.ts';
import { HL_INFO_ARGS, HL_INFO_OP, HL_NOTIFIER_EVENT } from '../../uapi/index.ts';
import { ManualClock } from '../../ucs/sys/clock.ts';
import { DeviceEvents, type DeviceFault } from './events.ts';

const { TPC_ASSERT, UNDEFINED_OPCODE, DEVICE_RESET } = HL_NOTIFIER_EVENT;

/** The events of a card. */
interface EventCard {
  readonly events: DeviceEvents;
  readonly log: TestLog;
  /** The descriptor that the driver signals. */
  readonly eventFd: number;
  /** Why the card is lost. */
  lostReason(): string | undefined;
  /** Signals events, as the driver does. */
  happens(mask: number): void;
  close(): void;
}

function eventCard(): EventCard {
  let eventFd = -1;
  let mask = 0;
  const answer = (args: DataView): number => {
    const { op, eventfd } = HL_INFO_ARGS.decode(args);
    if (op === HL_INFO_OP.REGISTER_EVENTFD) eventFd = eventfd;
    else if (op === HL_INFO_OP.GET_EVENTS) {
      infoResult(args).setUint32(0, mask, true);
      mask = 0;
    } else return -Errno.EINVAL;
    return 0;
  };
  const { card } = scriptedFileCard({ INFO: answer });
  const log = createTestLog();
  log.allow(/reports/);
  const events = new DeviceEvents(card, log.log, new ManualClock(1e9));
  return {
    events,
    log,
    eventFd,
    lostReason: () => card.lostReason,
    happens: (bits) => {
      mask |= bits;
      writeSync(eventFd, Uint8Array.of(1, 0, 0, 0, 0, 0, 0, 0));
    },
    close: () => {
      card.close();
      events.close();
      log.expectQuiet();
    },
  };
}

/** Waits until the event loop has seen that a descriptor is readable, and has run all callbacks for it. */
async function seenReadable(fd: number): Promise<void> {
  await new Promise<void>((resolve) => {
    const subscription = pollReadable(fd, () => {
      subscription.close();
      resolve();
    });
  });
  await setImmediate();
}

describe('events', () => {
  expectNoLeaks();
  afterEach(() => {
    vi.restoreAllMocks();
  });

  it('add up until they are received, then are received once', () => {
    const { events, happens, close } = eventCard();
    for (const mask of [TPC_ASSERT, UNDEFINED_OPCODE]) {
      happens(mask);
      expect(events.poll()).toBe(true);
    }
    expect([events.receive(), events.receive()]).toEqual([TPC_ASSERT | UNDEFINED_OPCODE, 0]);
    close();
  });

  it('of a reset mean that the memory of the card is lost; others do not', () => {
    const { events, happens, lostReason, close } = eventCard();
    happens(TPC_ASSERT);
    events.poll();
    expect(lostReason()).toBeUndefined();
    happens(DEVICE_RESET);
    events.poll();
    expect(lostReason()).toMatch(/the driver resets the card, so the contents of its memory are lost/);
    close();
  });

  it('wait for callbacks in at most 64 reports, the oldest of which are dropped', async () => {
    const { events, happens, close } = eventCard();
    const faults: DeviceFault[] = [];
    events.register((_mask, fault) => faults.push(fault));
    for (let report = 1; report <= 70; report++) {
      happens(TPC_ASSERT);
      events.poll();
    }
    expect(faults).toEqual([]);
    await Promise.resolve();
    expect(faults.map(({ sequence }) => sequence)).toEqual(Array.from({ length: 64 }, (_, index) => index + 7));
    close();
  });

  it('reach the remaining callbacks after one is removed', async () => {
    const { events, happens, close } = eventCard();
    const removed = events.register(() => expect.fail('a removed callback'));
    const told = new Promise<number>((resolve) => {
      events.register(resolve);
    });
    removed.close();
    happens(TPC_ASSERT);
    expect(await told).toBe(TPC_ASSERT);
    close();
  });

  it('are not read by the event loop after the last callback is removed', async () => {
    const { events, happens, eventFd, close } = eventCard();
    events.register(() => expect.fail('a removed callback')).close();
    happens(TPC_ASSERT);
    await seenReadable(eventFd);
    expect(events.lastFault).toBeUndefined();
    expect(events.receive()).toBe(TPC_ASSERT);
    close();
  });

  it('do not keep the process alive', () => {
    const unref = vi.spyOn(PollSubscription.prototype, 'unref');
    const { events, close } = eventCard();
    events.register(() => undefined);
    expect(unref).toHaveBeenCalledTimes(1);
    close();
  });
});
