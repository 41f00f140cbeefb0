/** The fault records of a card: the first of each kind, the fields of each, and the events of which users are notified. */

import { describe, expect, it } from 'vitest';
import { expectNoLeaks } from '../../../../test/fixtures/leak-check.ts';
import { close, EventFd, pipe2 } from '../../../sys/index.ts';
import {
  engineIdOf,
  GAUDI_PROFILE,
  GAUDI2_PROFILE,
  HL_INFO_FW_ERR_TYPE,
  HL_NOTIFIER_EVENT,
  HL_RAZWI,
  STREAMS_PER_QMAN,
} from '../../../uapi/index.ts';
import { ManualClock } from '../../../ucs/sys/clock.ts';
import { Stream } from '../../device/queue/stream.ts';
import { ErrorRecords } from './error-records.ts';
import { Notifier, Notifiers } from './notifier.ts';

expectNoLeaks();

const { PAGE_FAULT, RAZWI, USER_ENGINE_ERR, UNDEFINED_OPCODE, DEVICE_RESET, CRITICL_HW_ERR, CRITICL_FW_ERR } =
  HL_NOTIFIER_EVENT;
const MAPPINGS = [{ address: 7n, byteLength: 8 }];

describe.each([GAUDI_PROFILE, GAUDI2_PROFILE])('faults of $name', (profile) => {
  const isGaudi = profile.name === 'gaudi';
  const queueId = profile.queues.findIndex(({ stream, kind }) => stream === 2 && kind !== 'cpu');
  const queue = profile.queues[queueId]!;
  const engineId = engineIdOf(profile.name, queue);
  const stream = new Stream(queue, engineId, new Stream(queue, engineId, undefined));

  function open() {
    const clock = new ManualClock(100);
    const notifiers = new Notifiers();
    const notifier = new Notifier();
    notifiers.add(notifier);
    const asked: bigint[] = [];
    const records = new ErrorRecords({
      profile,
      clock,
      notifiers,
      mappingsBeside: (address) => {
        asked.push(address);
        return MAPPINGS;
      },
      onEngineError: () => {},
    });
    return { clock, notifier, records, asked };
  }

  it('are recorded at their first, with all that is known', () => {
    const { clock, notifier, records, asked } = open();
    records.pageFault(stream, 0x1001, 0x18, true);
    clock.advance(5);
    records.pageFault(stream, 0x2002, 0x28, false);
    expect(records.lastPageFault).toEqual({
      timestampNs: 100,
      address: 0x1001_0000_0018n,
      engineId,
      mappings: MAPPINGS,
    });
    const flags = HL_RAZWI.WRITE | (isGaudi ? 0 : HL_RAZWI.HBW);
    expect(records.lastRazwi).toEqual({ timestampNs: 100, address: 0x1001_0000_0018n, engineId, flags });
    expect(records.lastEngineError).toEqual(isGaudi ? undefined : { timestampNs: 100, engineId: 0xffff });
    expect([asked, notifier.takeEvents()]).toEqual([[0x1001_0000_0018n], PAGE_FAULT | RAZWI | USER_ENGINE_ERR]);
  });

  it('of an illegal address have their direction, and reset gaudi by name only', () => {
    const { notifier, records } = open();
    records.razwi(stream, 1, 2, false);
    const flags = HL_RAZWI.READ | (isGaudi ? 0 : HL_RAZWI.HBW);
    expect(records.lastRazwi).toEqual({ timestampNs: 100, address: 0x1_0000_0002n, engineId, flags });
    expect(records.lastPageFault).toBeUndefined();
    expect(notifier.takeEvents()).toBe(RAZWI | USER_ENGINE_ERR | (isGaudi ? DEVICE_RESET : 0));
  });

  it('of an opcode name the stream, or the lower command processor behind the last stream', () => {
    const { notifier, records } = open();
    records.undefinedOpcode(stream, 0x1e);
    expect(records.lastUndefinedOpcode).toEqual({
      timestampNs: 100,
      engineId,
      // A stream with a lower one is an upper one.
      streamId: 2,
      opcode: 0x1e,
    });
    expect(records.lastEngineError).toEqual(isGaudi ? undefined : { timestampNs: 100, engineId });
    expect(notifier.takeEvents()).toBe(UNDEFINED_OPCODE | USER_ENGINE_ERR | (isGaudi ? DEVICE_RESET : 0));
    records.clear();
    records.undefinedOpcode(new Stream(queue, engineId, undefined), 0x1f);
    expect(records.lastUndefinedOpcode).toMatchObject({ streamId: STREAMS_PER_QMAN, opcode: 0x1f });
  });

  it('of the hardware, the firmware and a time-out are of the first, until they are cleared for the next user', () => {
    const { clock, records } = open();
    expect([records.hardwareError(77), records.heartbeatLost()]).toEqual([CRITICL_HW_ERR, CRITICL_FW_ERR]);
    clock.advance(1);
    expect([records.csTimeout(9), records.csTimeout(10)]).toEqual([true, false]);
    records.hardwareError(78);
    expect(records.lastHardwareError).toEqual({ timestampNs: 100, event: 77 });
    expect(records.lastFirmwareError).toEqual({ timestampNs: 100, type: HL_INFO_FW_ERR_TYPE.HEARTBEAT });
    expect(records.lastCsTimeout).toEqual({ timestampNs: 101, seq: 9 });
    records.pageFault(stream, 1, 2, true);
    records.undefinedOpcode(stream, 3);
    records.clear();
    const { lastPageFault, lastRazwi, lastUndefinedOpcode, lastCsTimeout } = records;
    const { lastEngineError, lastHardwareError, lastFirmwareError } = records;
    expect([lastPageFault, lastRazwi, lastUndefinedOpcode, lastCsTimeout]).toEqual(new Array(4).fill(undefined));
    expect([lastEngineError, lastHardwareError, lastFirmwareError]).toEqual(new Array(3).fill(undefined));
    expect(records.csTimeout(11)).toBe(true);
  });
});

describe('a notifier', () => {
  it('collects events, also without a descriptor, and keeps those that are unread when it is unregistered', () => {
    const [notifier, notifiers] = [new Notifier(), new Notifiers()];
    notifiers.add(notifier);
    notifiers.raise(1);
    expect([notifiers.anyRegistered, notifier.unregister()]).toEqual([false, 22]);
    const event = new EventFd();
    expect([notifier.register(event.fd), notifiers.anyRegistered]).toEqual([0, true]);
    notifiers.raise(4);
    expect([notifier.unregister(), notifiers.anyRegistered, event.tryRead()]).toEqual([0, false, 1]);
    expect(notifier.takeEvents()).toBe(5);
    notifiers.delete(notifier);
    notifiers.raise(8);
    expect(notifier.takeEvents()).toBe(0);
    event.close();
  });

  it('closes no descriptor of another kind, nor keeps it', () => {
    const [read, write] = pipe2(0);
    const notifier = new Notifier();
    expect([notifier.register(read), notifier.registered]).toEqual([22, false]);
    close(read);
    close(write);
  });
});
