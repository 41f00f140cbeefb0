/** Waits for user interrupts and timestamps on the emulated cards. */

import { describe, expect, it } from 'vitest';
import { useEmulatedDevice } from '../../../test/fixtures/driver/emulated-device.ts';
import { HL_CS_CHUNK_FLAGS, HL_WAIT_CS_STATUS, msgLongCtl, writeMsgLong } from '../../uapi/index.ts';
import { highWord, lowWord } from '../../ucs/type/int64.ts';
import {
  ANY_CQ_INTERRUPT,
  allocateTimestampElements,
  commandSubmission,
  type Device,
  GaudiErrorCode,
  type InterruptCounter,
  malloc,
  open,
  registerTimestampInterrupt,
  requestCommandBuffer,
  waitForInterrupt,
  waitForInterruptAsync,
} from '../index.ts';

const fixture = useEmulatedDevice();
const INTERRUPT = 50;
const { BUSY, COMPLETED, ABORTED } = HL_WAIT_CS_STATUS;
const refusal = (argument: string): unknown =>
  expect.objectContaining({
    code: GaudiErrorCode.INVALID_PARAMS,
    details: expect.objectContaining({ argument, rule: expect.any(String), value: expect.any(String) }),
  });
const INVALID = expect.objectContaining({ code: GaudiErrorCode.INVALID_PARAMS });

/** Makes the card write a counter at a device address and raise the interrupt. */
function raise(device: Device, counter: bigint, value: number): void {
  const commands = requestCommandBuffer(device, 4096, { mapped: true });
  const doorbell = device.info.profile.va.reservedHost[0]!.start;
  const at = writeMsgLong(commands.words, 0, msgLongCtl(), value, lowWord(counter), highWord(counter));
  const end = writeMsgLong(commands.words, at, msgLongCtl(), INTERRUPT, lowWord(doorbell), highWord(doorbell));
  const chunk = { queueIndex: 0, cbHandle: commands.deviceAddress!, cbSize: end * 4 };
  commandSubmission(device, [{ ...chunk, flags: HL_CS_CHUNK_FLAGS.USER_ALLOC_CB }]);
}

describe('interrupts of gaudi2', () => {
  it('end waits for a counter in host memory', async () => {
    const device = fixture.setUp();
    using host = malloc(4096);
    const mapping = device.hostMemoryMap(host.address, 4096);
    const counter = host.address + 16;
    expect(waitForInterrupt(device, counter, 3n, INTERRUPT, 0)).toMatchObject({ status: BUSY, timestampNs: undefined });
    const waiting = waitForInterruptAsync(device, counter, 3n, ANY_CQ_INTERRUPT, 60e6);
    raise(device, mapping.address + 16n, 3);
    const result = await waiting;
    expect(result).toMatchObject({ status: COMPLETED, errno: 0 });
    expect(result.timestampNs).toBeGreaterThan(0n);
    expect(waitForInterrupt(device, counter, 4n, INTERRUPT, 1).status).toBe(BUSY);
    mapping.unmap();
  });

  it('end waits for a counter in a command buffer, and write the registered timestamps', () => {
    const device = fixture.setUp();
    const buffer = requestCommandBuffer(device, 4096, { mapped: true });
    const counter = { buffer, index: 511 };
    using timestamps = allocateTimestampElements(device, 4);
    registerTimestampInterrupt(device, INTERRUPT, counter, 2n, timestamps, 3);
    expect([...timestamps.values]).toEqual([0n, 0n, 0n, 0n]);
    raise(device, buffer.deviceAddress! + 511n * 8n, 2);
    expect(waitForInterrupt(device, counter, 2n, INTERRUPT, 60e6).status).toBe(COMPLETED);
    expect(timestamps.values[3]).toBeGreaterThan(0n);
    expect([...timestamps.values.subarray(0, 3)]).toEqual([0n, 0n, 0n]);
  });

  it('end with the device', async () => {
    const device = fixture.setUp();
    using host = malloc(4096);
    const waiting = waitForInterruptAsync(device, host.address, 1n, INTERRUPT, 60e6);
    device.close();
    await expect(waiting).resolves.toMatchObject({ status: ABORTED, errno: 5 });
  });

  it('reject invalid counters, targets and times, with their names', () => {
    const device = fixture.setUp({ cards: 2 });
    using other = open(fixture.node, { minor: 1 }, { log: fixture.log.log });
    const buffer = requestCommandBuffer(device, 4096);
    const foreign = requestCommandBuffer(other, 4096);
    const destroyed = requestCommandBuffer(device, 4096);
    destroyed.destroy();
    const wait =
      (counter: InterruptCounter, target = 0n, id = INTERRUPT, timeoutUs = 0) =>
      () =>
        waitForInterrupt(device, counter, target, id, timeoutUs);
    for (const address of [0, -8, 2 ** 47, 4097, 4100, 0.5]) expect(wait(address)).toThrow(refusal('counter'));
    expect(wait(64)).toThrow(INVALID);
    expect(wait({ buffer: foreign, index: 0 })).toThrow(refusal('counter.buffer'));
    expect(wait({ buffer: destroyed, index: 0 })).toThrow(refusal('counter.buffer'));
    for (const index of [-1, 0.5, 512]) expect(wait({ buffer, index })).toThrow(refusal('counter.index'));
    const good = { buffer, index: 0 };
    for (const target of [-1n, 2n ** 64n]) expect(wait(good, target)).toThrow(refusal('target'));
    for (const id of [-1, 0.5, 4096]) expect(wait(good, 0n, id)).toThrow(refusal('interruptId'));
    expect(wait(good, 0n, 20)).toThrow(INVALID);
    expect(wait(good, 0n, INTERRUPT, -1)).toThrow(refusal('timeoutUs'));
  });

  it('reject invalid timestamps', () => {
    const device = fixture.setUp({ cards: 2 });
    using other = open(fixture.node, { minor: 1 }, { log: fixture.log.log });
    for (const count of [0, -1, 0.5, 2 ** 20 + 1]) {
      expect(() => allocateTimestampElements(device, count)).toThrow(refusal('count'));
    }
    allocateTimestampElements(device, 2 ** 20).close();
    const counter = { buffer: requestCommandBuffer(device, 4096), index: 0 };
    const timestamps = allocateTimestampElements(device, 8);
    const register = (buffer: typeof timestamps, index: number) => () =>
      registerTimestampInterrupt(device, INTERRUPT, counter, 1n, buffer, index);
    expect(register(allocateTimestampElements(other, 8), 0)).toThrow(refusal('timestamps'));
    for (const index of [-1, 0.5, 8]) expect(register(timestamps, index)).toThrow(refusal('timestampIndex'));
    timestamps.close();
    timestamps.close();
    expect(register(timestamps, 0)).toThrow(refusal('timestamps'));
  });
});

it('are reported as missing on gaudi', () => {
  const device = fixture.setUp({ asic: 'gaudi' });
  const counter = { buffer: requestCommandBuffer(device, 4096), index: 0 };
  const denied = expect.objectContaining({ code: GaudiErrorCode.PERMISSION_DENIED });
  expect(() => waitForInterrupt(device, counter, 0n, INTERRUPT, 0)).toThrow(denied);
  using timestamps = allocateTimestampElements(device, 1);
  expect(() => registerTimestampInterrupt(device, INTERRUPT, counter, 0n, timestamps, 0)).toThrow(denied);
});
