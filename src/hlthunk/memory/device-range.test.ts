/** Device memory by its address: transfers, permitted ranges, and their end. */

import { describe, expect, it } from 'vitest';
import { expectRoundTrip, useEmulatedDevice } from '../../../test/fixtures/driver/emulated-device.ts';
import { deviceMemoryAlloc, deviceMemoryFree, deviceMemoryMap, GaudiErrorCode, memoryUnmap } from '../index.ts';

const BYTES = 8192;
const INVALID = expect.objectContaining({ code: GaudiErrorCode.INVALID_PARAMS });
const BUSY = expect.objectContaining({ code: GaudiErrorCode.DEVICE_BUSY });
const fixture = useEmulatedDevice();

describe.each(['gaudi2', 'gaudi'] as const)('a range of %s', (asic) => {
  it('may be SRAM, which has no owner', async () => {
    const device = fixture.setUp({ asic });
    const { sramBaseAddress, sramSize } = device.info;
    await expectRoundTrip(fixture, device, sramBaseAddress);
    await expectRoundTrip(fixture, device, sramBaseAddress + BigInt(sramSize - BYTES));
    expect(() => device.deviceMemoryRange(sramBaseAddress + BigInt(sramSize - BYTES), BYTES + 1)).toThrow(INVALID);
    expect(() => device.deviceMemoryRange(sramBaseAddress - 1n, BYTES)).toThrow(INVALID);
  });

  it('may lie in a block, and ends with it', async () => {
    const device = fixture.setUp({ asic });
    const block = device.memory.allocate(2 * BYTES);
    await expectRoundTrip(fixture, device, block.address + BigInt(BYTES));
    expect(() => device.deviceMemoryRange(block.address + 1n, 2 * BYTES)).toThrow(INVALID);
    const range = device.deviceMemoryRange(block.address, BYTES);
    range.retain();
    expect(() => block.free()).toThrow(BUSY);
    expect(() => range.end()).toThrow(BUSY);
    range.release();
    block.free();
    expect(range.live).toBe(false);
    const { mapping } = fixture.pin(device, BYTES);
    expect(() => device.dma.dmaHostToDeviceAsync(mapping, 0, range, 0, BYTES)).toThrow(INVALID);
    expect(device.ranges.count).toBe(0);
  });

  it('ends once, and with its device', () => {
    const device = fixture.setUp({ asic });
    const { sramBaseAddress } = device.info;
    const range = device.deviceMemoryRange(sramBaseAddress, BYTES);
    range.end();
    range[Symbol.dispose]();
    expect(() => range.end()).toThrow(INVALID);
    const left = device.deviceMemoryRange(sramBaseAddress, BYTES);
    device.close();
    expect(left.live).toBe(false);
    left.end();
    expect(() => device.deviceMemoryRange(sramBaseAddress, BYTES)).toThrow(
      expect.objectContaining({ code: 'ERR_CLOSED' }),
    );
  });
});

it('may be a mapping of deviceMemoryMap, until it is unmapped', async () => {
  const device = fixture.setUp();
  const handle = deviceMemoryAlloc(device, BYTES);
  const address = deviceMemoryMap(device, handle);
  await expectRoundTrip(fixture, device, address);
  const range = device.deviceMemoryRange(address, BYTES);
  range.retain();
  expect(() => memoryUnmap(device, address)).toThrow(BUSY);
  range.release();
  memoryUnmap(device, address);
  expect(range.live).toBe(false);
  expect(() => device.deviceMemoryRange(address, BYTES)).toThrow(INVALID);
  deviceMemoryFree(device, handle);
});

it('is unallocated physical memory of gaudi', async () => {
  const device = fixture.setUp({ asic: 'gaudi', hbmBytes: 2 ** 30 });
  const { dramBaseAddress, dramSize } = device.info;
  await expectRoundTrip(fixture, device, dramBaseAddress);
  const last = dramBaseAddress + dramSize - BigInt(BYTES);
  const range = device.deviceMemoryRange(last, BYTES);
  expect(() => device.deviceMemoryRange(last, BYTES)).toThrow(INVALID);
  expect(() => device.deviceMemoryRange(last + 1n, BYTES)).toThrow(INVALID);
  const everything = Number(dramSize);
  expect(() => device.memory.allocate(everything)).toThrow(
    expect.objectContaining({ code: GaudiErrorCode.OUT_OF_MEMORY }),
  );
  range.end();
  const block = device.memory.allocate(everything);
  expect(() => device.deviceMemoryRange(block.address - 1n, 1)).toThrow(INVALID);
  block.free();
  device.memory.reclaim();
  device.deviceMemoryRange(last, BYTES).end();
});
